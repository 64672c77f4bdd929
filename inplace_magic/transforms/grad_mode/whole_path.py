"""A loss that is made of numbers, of copies or as a new leaf is made of the values themselves, all the way from the cut on.

losses.append(loss.item())                                 losses.append(loss)
total = torch.tensor(np.mean(losses), requires_grad=True)  total = torch.stack(losses).mean()
total.backward()                                           total.backward()

loss = Variable(torch.Tensor([a + b]), requires_grad=True) loss = torch.stack([a + b])
loss.requires_grad = True

Whatever else there is to the loss stays as it is: a target, a baseline may be a number on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...message import message
from ...source.bindings import value_of
from ...source.blocks import scope, upwards
from ...source.dataflow import (
    binds,
    called_name,
    calls_named,
    given_to,
    keyword_named,
    read_as_number,
    reads,
    rebinds,
    receiver,
    roots,
    simple,
    slice_of,
    value_reads,
)
from ...source.editor import Code, Edit, dotted
from ...source.modules import module_of
from ..analysis.targets import Site, sites, torch_in
from ..out_of_place.new_tensor import is_alias
from ..problem import Problem
from ..proposal import Change, Proposal
from ..registry import register
from .connected import is_straight_through, stacked

_LEAVES = frozenset({"Variable", "Parameter", "from_numpy"})
_COPIES = frozenset({"tensor", "as_tensor", "Tensor", "FloatTensor", "DoubleTensor"})
_WAYS_OUT = frozenset({"numpy", "tolist"})
_NUMBERS = frozenset({"item", "float"})
_SUMS = frozenset({"mean", "sum"})
_OPEN = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr)
_DEPTH = 4  # of the calls around the cut


@register("silent")
def whole_path(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.how not in ("untrained", "unreached", "constant"):
        return
    for of_lists in (True, False):
        changes, titles = _of_one(problem, of_lists)
        if changes:
            yield Proposal(titles[-1], message("why_connected"), "connected: whole", changes)
        together = dict.fromkeys(changes)
        for other in _alike(problem):
            more, of_other = _of_one(other, of_lists)
            together |= dict.fromkeys(more)
            titles += of_other
        if len(together) > len(changes):
            yield Proposal(titles[-1], message("why_connected"), "connected: all", tuple(together))


def _alike(problem: Problem) -> Iterator[Problem]:
    """The other cuts, of any optimizer, by a call of the same name, which makes a tensor or a number."""
    name = next((called_name(site.node) for site in sites(problem, 1)), "")
    for clash in problem.evidence.clashes:
        if clash is not problem.clash and clash.write is not None and clash.write.how == "untrained":
            other = replace(problem, clash=clash)
            if name in _COPIES | _LEAVES | _NUMBERS and [called_name(site.node) for site in sites(other, 1)] == [name]:
                yield other


def _of_one(problem: Problem, of_lists: bool) -> tuple[tuple[Change, ...], list[str]]:
    """The changes for one cut, and a title for each statement that they change."""
    changes: list[Change] = []
    titles: list[str] = []
    tainted = set[str]()
    for site in sites(problem, _DEPTH):
        named = torch_in(problem, site.code)
        if named is None:
            return (), []
        path = _Path(site.code, named[0], of_lists, tainted, site.node)
        for statement in _behind(problem, site):
            path.follow(statement)
        edits = path.edits()
        if any(f"{named[0]}." in edit.text for edit in edits):
            edits += named[1]
        changes += ((site.code, edit) for edit in edits)
        titles += path.titles
        tainted = {name for name in tainted if "." in name}  # which objects keep
    return tuple(changes), titles


def _behind(problem: Problem, site: Site) -> list[ast.stmt]:
    """The simple statements of a function, from the one of the cut or the call on, that what it gives, or goes back from, is made
    by, with the last one; none where the cut is not on that way.
    """
    code, function = site.code, site.code.function(site.statement)
    ends = [f.statement for f in problem.needed if f.code is code and code.function(f.statement) is function]
    if not ends and function is not None:
        ends = [n for n in ast.walk(function) if isinstance(n, ast.Return | ast.Expr) and _gives(code, n, function)]
    made = [s for end in ends for s in (*_ahead(code, end, roots(end)), end)]
    found = {s for s in made if s.lineno >= site.statement.lineno}
    return sorted(found, key=lambda s: s.lineno) if site.statement in found else []


def _gives(code: Code, statement: ast.stmt, function: ast.AST) -> bool:
    given = isinstance(statement, ast.Return) or isinstance(getattr(statement, "value", None), ast.Yield)
    return given and code.function(statement) is function


def _ahead(code: Code, statement: ast.stmt, wanted: set[str]) -> Iterator[ast.stmt]:
    """The simple statements ahead of one, in its function, by which the wanted values are made."""
    for around in upwards(code, statement):
        yield from _making(code.preceding(around), wanted)
        wanted = wanted | value_reads(around)


def _making(statements: Sequence[ast.stmt], wanted: set[str]) -> Iterator[ast.stmt]:
    chosen, _ = slice_of(statements, wanted)
    wanted = wanted.union(*map(value_reads, chosen))
    for statement in statements:
        if statement in chosen and not simple(statement):
            for name in ("body", "orelse", "finalbody"):
                yield from _making(getattr(statement, name, []), wanted)
        elif statement in chosen or _flagged(statement) in wanted:
            yield statement


def _flagged(statement: ast.stmt) -> str | None:
    """``x`` for ``x.requires_grad = True`` and ``x.requires_grad_()``."""
    match statement:
        case ast.Assign([ast.Attribute(owner, "requires_grad")], ast.Constant(True)):
            return dotted(owner)
        case ast.Expr(ast.Call(ast.Attribute(owner, "requires_grad_"), [] | [ast.Constant(True)])):
            return dotted(owner)
    return None


@dataclass
class _Path:
    """The way of a value through a function, from where it loses its history.

    ``torch``: the name that stands for it. ``of_lists``: a name of which nothing more is known, and that a tensor is made of,
    stands for a list. ``tainted``: the names whose values come of the ``cut``, the node of a call that loses the history, or in
    which it is lost.
    """

    code: Code
    torch: str
    of_lists: bool
    tainted: set[str]
    cut: ast.AST
    titles: list[str] = field(default_factory=list)
    _edits: list[Edit] = field(default_factory=list)
    _gone: list[ast.stmt] = field(default_factory=list)

    def follow(self, statement: ast.stmt) -> None:
        """Notes how a statement is to read where the values that come to it have their history; what it has nothing left to do
        for goes."""
        flagged, value = _flagged(statement), getattr(statement, "value", None)
        if flagged is not None:
            self._gone += [statement] if flagged in self.tainted else []
            return
        comes = self._is_cut(statement) or bool(reads(statement) & self.tainted)
        if not comes and self.code.parent(statement) in {*self.code.parents(self.cut)}:  # under no condition of its own
            self.tainted -= rebinds(statement)
        shows = isinstance(statement, ast.Expr) and not (binds(statement) or self._is_cut(statement))
        if value is None or not comes or shows:
            return
        edits = self._below(value)
        self.tainted |= binds(statement)
        text = self.code.edited(value, edits)
        if isinstance(statement, ast.Assign) and [text] == [*map(self.code.text, statement.targets)]:
            self._gone.append(statement)
        elif edits:
            self._edits += edits
            self.titles.append(" ".join(self.code.edited(statement, edits).split()))

    def edits(self) -> list[Edit]:
        if self._gone and not self.titles:
            self.titles.append(message("title_block_gone", block=" ".join(self.code.text(self._gone[-1]).split())))
        return [*self._edits, *(self.code.delete(one, *self._gone) for one in self._gone)]

    def _is_cut(self, node: ast.AST) -> bool:
        """Whether a node is, or holds, the one of the cut; is in it, where that makes a tensor or a number, or no less than a statement is
        known."""
        whole = isinstance(self.cut, ast.stmt) or called_name(self.cut) in _COPIES | _LEAVES | _NUMBERS
        within = whole and self.cut in self.code.parents(node)
        return node is self.cut or within or node in self.code.parents(self.cut)

    def _below(self, node: ast.AST) -> list[Edit]:
        text = self._whole(node)
        if text is not None:
            above = self.code.parent(node)
            of_item = isinstance(above, ast.Subscript) and above.value is node
            inside = of_item or "\n" in text or isinstance(above, (*_OPEN, ast.Attribute))
            return [self.code.replace(node, self._closed(text) if inside else text)]
        return [edit for child in ast.iter_child_nodes(node) for edit in self._below(child)]

    @staticmethod
    def _closed(text: str) -> str:
        """In parentheses, as far as something around it could take it apart."""
        return f"({text})" if isinstance(ast.parse(f"({text})", mode="eval").body, _OPEN) or "\n" in text else text

    def _text(self, node: ast.AST) -> str:
        return self.code.edited(node, self._below(node))

    def _whole(self, node: ast.AST) -> str | None:
        """What is to stand in the place of an expression by which a history is lost; None for any other, and for values that come
        from elsewhere.
        """
        if not (self._is_cut(node) or reads(node) & self.tainted):
            return None
        if is_alias(node):
            inner = receiver(node) if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
            return self._text(inner) if inner is not None and not is_straight_through(self.code, node) else None
        if not isinstance(node, ast.Call):
            return None
        number, name, given = read_as_number(node), called_name(node), node.args[0] if node.args else None
        if number is not None:
            return self._text(number)
        flag = name == "requires_grad_" and [ast.unparse(one) for one in given_to(node)] in ([], ["True"])
        if isinstance(node.func, ast.Attribute) and (name in _WAYS_OUT or flag):
            return self._text(node.func.value)
        if given is None or isinstance(given, ast.Constant | ast.Starred):
            return None
        if name in _LEAVES:
            return self._text(given)
        of_numpy = isinstance(node.func, ast.Attribute) and module_of(node.func.value) == "numpy"
        if name in _SUMS and of_numpy and not node.keywords and len(node.args) == 1:
            return f"{self._closed(self._tensor(given))}.{name}()"
        if name not in _COPIES:
            return None
        kind = keyword_named(node, "dtype")
        tensor = self._tensor(given)
        return tensor if kind is None else f"{self._closed(tensor)}.to({self.code.text(kind.value)})"

    def _tensor(self, given: ast.expr) -> str:
        """What ``torch.tensor`` would make of a list or of a tensor."""
        if isinstance(given, ast.List | ast.Tuple):
            return stacked(self.code, self.torch, given, self._text)
        return f"{self.torch}.stack({self._text(given)})" if self._is_list(given) else self._text(given)

    def _is_list(self, node: ast.expr) -> bool:
        if isinstance(node, ast.ListComp):
            return True
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return False
        text = self.code.text(node)
        value = value_of(self.code, text, self.code.statement(node))
        around = scope(self.code, node)
        filled = (call.func for call in calls_named(around, "append") if isinstance(call.func, ast.Attribute))
        if isinstance(value, ast.List | ast.ListComp) or any(self.code.text(one.value) == text for one in filled):
            return True
        return self.of_lists and not isinstance(value, ast.BinOp | ast.Constant)
