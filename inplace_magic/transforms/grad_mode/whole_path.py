"""A loss that is made of numbers, of copies or as a new leaf is made of the values themselves, all along its way.

losses.append(loss.item())                                 losses.append(loss)
total = torch.tensor(np.mean(losses), requires_grad=True)  total = torch.stack(losses).mean()
total.backward()                                           total.backward()

loss = Variable(torch.Tensor([a + b]), requires_grad=True) loss = torch.stack([a + b])
loss.requires_grad = True
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from ...message import message
from ...source.blocks import upwards
from ...source.dataflow import binds, called_name, read_as_number, receiver, roots, simple, slice_of, value_reads
from ...source.editor import Code, Edit, dotted
from ...source.modules import module_of
from ..analysis.targets import sites, torch_name
from ..out_of_place.new_tensor import is_alias
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register

_LEAVES = frozenset({"Variable", "Parameter", "from_numpy"})
_COPIES = frozenset({"tensor", "as_tensor", "Tensor", "FloatTensor", "DoubleTensor"})
_WAYS_OUT = frozenset({"numpy", "tolist", "requires_grad_"})
_SUMS = frozenset({"mean", "sum"})
_OPEN = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda)


@register("silent")
def whole_path(problem: Problem) -> Iterator[Proposal]:
    write, torch = problem.clash.write, torch_name(problem)
    if write is None or write.how != "untrained" or torch is None:
        return
    statements = [*dict.fromkeys(_on_the_way(problem))]
    ends = {name for frame in problem.needed for name in roots(frame.statement)}
    for spare, stacked in itertools.product((ends, None), (True, False)):
        edited = [(code, one, _Whole(code, torch, stacked, spare).edits(one)) for code, one in statements]
        changes = tuple((code, edit) for code, _, edits in edited for edit in edits)
        if changes:
            yield Proposal(
                _title([one for one in edited if one[2]]), message("why_connected"), "connected: whole", changes
            )


def _title(edited: list[tuple[Code, ast.stmt, list[Edit]]]) -> str:
    """The last statement that there still is; else the last one that there was."""
    for code, statement, edits in reversed(edited):
        start, end = code.span(statement)
        if not any(edit.start <= start and end <= edit.end for edit in edits):
            return " ".join(code.edited(statement, edits).split())
    code, statement, _ = edited[-1]
    return message("title_block_gone", block=" ".join(code.text(statement).split()))


def _on_the_way(problem: Problem) -> Iterator[tuple[Code, ast.stmt]]:
    """The statements, some of them twice, that the loss of the backward is made by: ahead of it, and ahead of what a function that
    a path is cut in gives back."""
    for frame in problem.needed:
        yield from ((frame.code, one) for one in _ahead(frame.code, frame.statement, roots(frame.statement)))
    for site in sites(problem, depth=3):
        function = site.code.function(site.statement)
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, (ast.Return, ast.Expr)) and site.code.function(node) is function:
                yield site.code, node
                yield from ((site.code, one) for one in _ahead(site.code, node, value_reads(node)))


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
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad", value=owner)]):
            return dotted(owner)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="requires_grad_", value=owner))):
            return dotted(owner)
    return None


class _Whole:
    """The text of a program's values where none of them loses its history.

    ``torch``: the name that stands for it. ``stacked``: a name that a tensor is made of stands for a list, and not for a tensor.
    ``ends``: the names of losses; what is a new leaf stays one where it is none of these, for it may be an input whose gradient is
    asked for. None: nothing stays one.
    """

    def __init__(self, code: Code, torch: str, stacked: bool, ends: set[str] | None) -> None:
        self.code, self.torch, self.stacked, self.ends = code, torch, stacked, ends

    def edits(self, statement: ast.stmt) -> list[Edit]:
        """How a statement becomes so; it goes where nothing is left for it to do."""
        value, flagged = getattr(statement, "value", None), _flagged(statement)
        if flagged is not None:
            return [self.code.delete(statement)] if self.ends is None or flagged in self.ends else []
        if value is None or (isinstance(statement, ast.Expr) and not binds(statement)):
            return []
        edits = self._below(value)
        if isinstance(statement, ast.Assign) and [self.code.edited(value, edits)] == [
            *map(self.code.text, statement.targets)
        ]:
            return [self.code.delete(statement)]
        return edits

    def _stays(self, leaf: ast.AST, of: ast.expr) -> bool:
        """Whether a new leaf stays one, which is made of what keeps its history."""
        statement = self.code.statement(leaf)
        is_end = getattr(statement, "value", None) is leaf and bool(binds(statement) & (self.ends or set()))
        return self.ends is not None and not is_end and not self._below(of)

    def _below(self, node: ast.AST) -> list[Edit]:
        text = self._whole(node)
        if text is not None:
            inside = isinstance(self.code.parent(node), (*_OPEN, ast.Attribute))
            return [self.code.replace(node, self._closed(text) if inside else text)]
        return [edit for child in ast.iter_child_nodes(node) for edit in self._below(child)]

    @staticmethod
    def _closed(text: str) -> str:
        """In parentheses, as far as something around it could take it apart."""
        return f"({text})" if isinstance(ast.parse(text, mode="eval").body, _OPEN) else text

    def _text(self, node: ast.AST) -> str:
        return self.code.edited(node, self._below(node))

    def _whole(self, node: ast.AST) -> str | None:
        """What is to stand in the place of an expression by which a history is lost; None for any other."""
        if is_alias(node):
            return self._text(receiver(node) if isinstance(node, ast.Call) else node.value)  # type: ignore[arg-type, attr-defined]
        if not isinstance(node, ast.Call):
            return None
        number, name, given = read_as_number(node), called_name(node), node.args[0] if node.args else None
        if number is not None:
            return self._text(number)
        if isinstance(node.func, ast.Attribute) and name in _WAYS_OUT:
            of = node.func.value
            return self._text(of) if name != "requires_grad_" or not self._stays(node, of) else None
        if given is None or isinstance(given, ast.Constant):
            return None
        if name in _LEAVES:
            return self._text(given) if name == "from_numpy" or not self._stays(node, given) else None
        if name in _SUMS and isinstance(node.func, ast.Attribute) and module_of(node.func.value) == "numpy":
            return f"{self._tensor(given)}.{name}()"
        return self._tensor(given) if name in _COPIES else None

    def _tensor(self, given: ast.expr) -> str:
        """What ``torch.tensor`` would make of a list or of a tensor."""
        if isinstance(given, (ast.List, ast.Tuple)):
            return self._stack(given)
        listed = isinstance(given, ast.ListComp) or (
            self.stacked and isinstance(given, (ast.Name, ast.Attribute, ast.Subscript))
        )
        return f"{self.torch}.stack({self._text(given)})" if listed else self._text(given)

    def _stack(self, given: ast.expr) -> str:
        if isinstance(given, (ast.List, ast.Tuple)):
            return f"{self.torch}.stack([{', '.join(map(self._stack, given.elts))}])"
        number = isinstance(getattr(given, "operand", given), ast.Constant)
        return f"{self.torch}.tensor({self.code.text(given)})" if number else self._text(given)
