"""What a write writes into, as the code says it: the expression, its names, where they were bound.

x[:, 0] = 1             writes into `x[:, 0]`, a part of `x`
scale.mul_(2).tanh_()   writes into `scale`, as getattr(scale, name)(2) does
F.relu(h, inplace=True) writes into `h`
torch.add(a, b, out=c)  writes into `c`
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...families import is_of_base
from ...record.evidence import Write
from ...source.bindings import argument, loop_of, reads, value_of
from ...source.blocks import upwards
from ...source.dataflow import (
    assigned,
    called_name,
    calls_named,
    given_to,
    is_inplace_name,
    key_of,
    keyword_named,
    receiver,
)
from ...source.editor import Code, Edit, dotted
from ..problem import Frame, Problem

# Methods, attributes and functions of torch that give another look at the same memory.
VIEW_METHODS = frozenset({
    "view", "view_as", "reshape", "reshape_as", "permute", "transpose", "t", "squeeze", "unsqueeze", "flatten",
    "expand", "expand_as", "narrow", "select", "detach", "diagonal", "unfold", "as_strided", "swapaxes", "movedim",
    "contiguous", "numpy", "real", "imag", "unbind", "chunk", "split", "requires_grad_", "broadcast_to", "ravel",
    "unflatten", "to", "float", "double", "T", "type", "type_as", "cpu", "values", "adjoint", "view_as_complex",
    "view_as_real",
})  # fmt: skip
SEVERAL_VIEWS = frozenset({"unbind", "chunk", "split"})  # of these the methods that give several at once
_OF_LEAF = ("grad", "requires_grad", "requires_grad_", "is_leaf")
VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})


@dataclass(frozen=True)
class Site(Frame):
    """One place where something is written, and the event that was recorded."""

    event: Write

    @cached_property
    def target(self) -> ast.expr | None:
        """What is written, as far as this frame tells."""
        ran, statement = self.expression, self.statement
        if isinstance(ran, ast.Attribute) and isinstance(ran.ctx, ast.Store):  # ``x.imag = 0``
            return ran
        stored: list[ast.expr] = [one for one in (*getattr(self.node, "targets", ()), ran) if _is_stored_into(one)]
        if stored:
            return stored[0]
        if isinstance(statement, ast.AugAssign) and ran in (statement, statement.target):
            return statement.target
        return called_target(ran, self.event.held) if isinstance(ran, ast.Call) else None

    @property
    def root(self) -> ast.expr | None:
        """The name or attribute that holds the written tensor or its base."""
        return root(self.target)

    @property
    def root_text(self) -> str | None:
        return root_text(self.code, self.target)

    @property
    def sets_data(self) -> bool:
        """``x.data = y``: it is for who holds the tensor, and a copy of that would be of no use."""
        return getattr(self.target, "attr", "") == "data" and self.target in getattr(self.statement, "targets", ())


def sites(problem: Problem, depth: int = 4) -> list[Site]:
    """The frames of the write, innermost first; only the first one's target is what was written."""
    event = problem.clash.write
    frames = problem.frames(problem.write_stack[:depth])[::-1]
    return [Site(f.code, f.node, f.spot, event) for f in frames if event is not None]


def handed_down(problem: Problem, depth: int = 4) -> Iterator[tuple[Site, str]]:
    """The frames of the write, innermost first, with their names for what is written, as far as one hands it to the next."""
    inner: Site | None = None
    name: str | None = None
    for site in sites(problem, depth):
        name = site.root_text if inner is None else outside(inner, site, str(name))
        if name is None:
            return
        yield site, name
        inner = site


def outside(inner: Frame, outer: Frame, name: str) -> str | None:
    """The caller's name for what the callee calls ``name``."""
    call = outer.expression
    if name.startswith("self.") and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        owner = dotted(call.func.value)
        return None if owner is None else owner + name[len("self") :]
    return root_text(outer.code, argument(inner.code.function(inner.statement), name, call))


def written(problem: Problem) -> Site | None:
    """The write itself, or None where it is not known, or its text."""
    return next(iter(sites(problem, depth=1)), None)


def written_here(problem: Problem) -> Site | None:
    """The write, where the line itself is what writes, or is refused: not for an earlier write into the base of its view."""
    write = written(problem)
    return write if write and _by_this_line(write) and not is_of_base(problem.clash.message) else None


def _by_this_line(write: Site) -> bool:
    """Whether the line itself writes: no optimizer, no module somewhere inside of the one that it calls."""
    event, called = write.event, getattr(write.expression, "func", None)
    if event.origin != "nn" or event.module is None:
        return event.origin != "optim"
    last = event.module.rpartition(".")[2]
    return not isinstance(called, ast.Attribute) or last in (called.attr, f"{called.attr}[0]")


def _is_stored_into(node: ast.AST) -> bool:
    """``x[0]``, ``x.data`` on the left of an assignment: they give a tensor that is there already other values."""
    stored = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data")
    return stored and isinstance(node.ctx, ast.Store)  # type: ignore[attr-defined]


def called_target(call: ast.Call, held: tuple[str, ...] = ()) -> ast.expr | None:
    """What a call writes into, by torch's conventions; else the argument that leads to it by one of the paths, or the first."""
    out = keyword_named(call, "out")
    if out is not None:
        return out.value
    if isinstance(call.func, ast.Call) and called_name(call.func) == "getattr":
        return call.func.args[0]
    inner: ast.expr | None = call
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and is_inplace_name(inner.func.attr):
        inner = receiver(inner)
    if inner is not call:
        return inner
    known = (one for one in given_to(call) if any(ast.unparse(node) in held for node in chain(one)))
    return next(known, call.args[0] if call.args else None)


def applies_function(problem: Problem, frame: Frame) -> bool:
    """Whether a frame applies a custom Function: ``Halve.apply(x)``, or ``halve(x)`` for ``halve = Halve.apply``."""
    call = frame.expression
    called = [call.func] if isinstance(call, ast.Call) else []
    named = [one.id for one in called if isinstance(one, ast.Name)]
    made = [one.value for name in named for _, one in problem.bindings(frame.code, name, frame.statement)]
    return any(isinstance(one, ast.Attribute) and one.attr == "apply" for one in (*called, *made))


def written_by(node: ast.AST) -> list[ast.expr]:
    """What a statement, or a call, writes in place."""
    node = node.value if isinstance(node, ast.Expr) else node
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        return [t for t in assigned(node) if not isinstance(t, ast.Name) or isinstance(node, ast.AugAssign)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_inplace_name(node.func.attr):
        target = called_target(node)
        return [target] if target is not None else []
    return []


def puts_constant(write: Site) -> bool:
    """``x[:, 0] = 0``, ``x[:, 0].zero_()``: no step of an update."""
    given = given_to(write.expression)
    given += [write.statement.value] if isinstance(write.statement, (ast.Assign, ast.AugAssign)) else []
    return write.target is not write.root and all(isinstance(one, ast.Constant) for one in given)


def reads_gradient(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(node))


def root(node: ast.expr | None) -> ast.expr | None:
    """The name or attribute that a chain of subscripts, views and in-place calls starts from."""
    start = [None, *chain(node)][-1]
    return start if isinstance(start, (ast.Name, ast.Attribute)) else None


def root_text(code: Code, node: ast.expr | None) -> str | None:
    found = root(node)
    return code.text(found) if found is not None else None


def chain(node: ast.expr | None) -> Iterator[ast.expr]:
    """What is looked at, by what it is looked at through, down to the name or attribute, or to what has memory of its own."""
    while node is not None:
        yield node
        node = _looked_at(node)


def _looked_at(node: ast.expr) -> ast.expr | None:
    """What an expression is another look at: ``x`` of ``x[0]``, ``x.T``, ``x.view(-1)``, ``x.mul_(2)``."""
    if isinstance(node, ast.Attribute) and dotted(node.value) != "self":  # which has a field of that name
        return node.value if node.attr in VIEW_ATTRIBUTES else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return receiver(node) if node.func.attr in VIEW_METHODS or is_inplace_name(node.func.attr) else None
    return node.value if isinstance(node, ast.Subscript) else None


def tensor_written(write: Site) -> ast.expr | None:
    """What of a written expression names a tensor: its root, or the item of the list or dict that the root is.

    ``parts[0][i] += 1`` writes into ``parts[0]`` where ``parts`` is a list, and into ``parts`` where it is a tensor.
    """
    if write.root is None:
        return None
    inwards = list(chain(write.target))[::-1]
    items = list(itertools.takewhile(lambda node: isinstance(node, ast.Subscript), inwards[1:]))
    path = re.compile(rf"{re.escape(write.code.text(write.root))}((?:\[[^]]*\])*)")
    depths = [match[1].count("[") for held in write.event.held if (match := path.fullmatch(held))]
    if not depths:  # in an object that is not the user's; none of torch's is indexed by a text
        depths = [max((depth for depth, item in enumerate(items, 1) if has_key(item)), default=0)]
    return [write.root, *items][min(*depths, len(items))]


def has_key(item: ast.expr) -> bool:
    """``boxes["out"]``"""
    return isinstance(item, ast.Subscript) and isinstance(getattr(item.slice, "value", None), str)


def loop_to_keep(write: Site, name: str) -> ast.For | None:
    """The loop whose items would stay what they are, were its name bound anew: they are leaves, or nobody reads the name on."""
    code, loop = write.code, loop_of(write.code, write.statement, name)
    at_once = not is_whole(write) and not isinstance(write.target, ast.Subscript)
    within = itertools.takewhile(lambda s: s is not loop, upwards(code, write.statement))
    read_on = at_once or any(reads(code, name, [*code.following(s)]) for s in within)
    return loop if write.event.of_leaf or not read_on else None


def is_whole(write: Site) -> bool:
    """Whether a statement does nothing but write, so that nobody has what the write gives."""
    return isinstance(write.statement, (ast.AugAssign, ast.Expr)) and not gives_out(write.statement)


def gives_out(statement: ast.stmt) -> bool:
    """``yield x.mul_(2)``"""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Yield, ast.YieldFrom, ast.Await))


def torch_name(problem: Problem) -> str | None:
    """The name that stands for torch where the write is made, or where the cell fails; None if there is none."""
    codes = [*(f.code for f in problem.frames(problem.write_stack[:1])), *problem.codes()]
    found = [[name for name, module in code.cell.modules.items() if module == "torch"] for code in codes]
    return next(("torch" if "torch" in names else names[0] for names in found if names), None)


def torch_in(problem: Problem, code: Code) -> tuple[str, list[Edit]] | None:
    """The name that stands for torch, and the import that a text needs for it where there is none; None where that name
    is somebody else's."""
    name = torch_name(problem)
    if name is not None:
        return name, []
    if any(isinstance(n, ast.Name) and n.id == "torch" for one in (code, *problem.codes()) for n in ast.walk(one.tree)):
        return None
    future = [s for s in code.tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    first = code.tree.body[0]
    edit = code.insert_after(future[-1], "import torch") if future else code.insert_before(first, "import torch")
    return "torch", [edit]


def seen_through(code: Code, name: str, near: ast.stmt) -> str | None:
    """The tensor that ``name`` is only another look at (``head = base[:3]``), or None."""
    value = value_of(code, name, near)
    start = None if value is None or has_key(value) else root_text(code, value)
    return start if start != name else None


def is_of_leaf(code: Code, read: ast.expr) -> bool:
    """``weight.grad``, ``weight.requires_grad = False``: what a leaf is asked, or told, that no value made of it could be."""
    above = code.parent(read)
    return isinstance(above, ast.Attribute) and (above.attr in _OF_LEAF or isinstance(above.ctx, ast.Store))


def updates_leaf(problem: Problem, body: ast.AST) -> bool:
    """Whether a step, or a write by hand, in some code changes a leaf."""
    if any(isinstance(call.func, ast.Attribute) for call in calls_named(body, "step")):
        return True
    leaves = {leaf for one in problem.evidence.passes for leaf in one.leaves}
    for node in ast.walk(body):
        if isinstance(node, ast.For) and calls_named(node.iter, "parameters", "named_parameters"):
            leaves |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    for node in ast.walk(body):
        targets = assigned(node) if isinstance(node, ast.stmt) else written_by(node)
        texts = {text for one in targets for text in (key_of(one), ast.unparse(one)) if text}
        paths = {text.removesuffix(".data") for text in texts}
        read = {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Attribute)} if paths else set()
        if paths & leaves or read & {f"{path}.grad" for path in paths}:
            return True
    return False
