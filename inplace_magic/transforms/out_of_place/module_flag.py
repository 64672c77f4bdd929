"""A module writes because it was made with ``inplace=True``: the flag goes, also on the live module.

    self.act = nn.ReLU(inplace=True)          self.act = nn.ReLU()
    nn.LeakyReLU(0.2, True)                   nn.LeakyReLU(0.2)

A model whose source is in no cell is changed from the cell that uses it:

                                              for module in net.modules():
                                                  if hasattr(module, "inplace"):
                                                      module.inplace = False
    loss = net(x).sum()                       loss = net(x).sum()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...diagnosis import LiveChange
from ...message import message
from ...source.dataflow import called_name
from ...source.editor import Code, Edit, dotted
from ..analysis.targets import is_functional
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .inplace_flag import flag, position, without_flag

_WHY = message("why_module_flag")
_FUNCTION_OF = {"relu6": "hardtanh", "selu": "selu"}
_MOST = 3


@dataclass(frozen=True)
class Flag:
    """One place in the source where modules are made to work in place, and how well it fits what wrote."""

    code: Code
    edit: Edit
    title: str
    fit: int


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference")
def module_flag(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.origin != "nn" or write.operation in ("batch_norm", "embedding"):
        return
    live = _live(problem)
    flags = sorted(_flags(problem), key=lambda f: -f.fit)
    for found in flags[:_MOST]:
        spare = bool(live) and found.code.cell.number != problem.cell
        yield in_one_text(
            found.code, [found.edit], found.title, _WHY, "module_flag", live=live, spare=spare, local=True
        )
    if not flags:
        yield from _from_outside(problem, live)


def _live(problem: Problem) -> tuple[LiveChange, ...]:
    """The modules of the session that the source line made, as far as their paths tell: ``net.blocks[*].act``."""
    path = problem.clash.write.module if problem.clash.write is not None else None
    if path is None:
        return ()
    kind = dict(problem.evidence.inplace_modules).get(path)
    alike = [
        other
        for other, its_kind in problem.evidence.inplace_modules
        if its_kind == kind and _tail(other) == _tail(path)
    ]
    return tuple(LiveChange("set", one, "inplace", False) for one in dict.fromkeys([path, *alike]))


def _tail(path: str) -> str:
    """The last attribute of a path with its index: ``act``, ``main[1]``."""
    return path.rpartition(".")[2]


# ---- in the source ----------------------------------------------------------------------------------------------


def _flags(problem: Problem) -> Iterator[Flag]:
    for code in problem.codes():
        for node in ast.walk(code.tree):
            if isinstance(node, ast.Call):
                edit = _call_edit(code, node)
                if edit is not None:
                    yield Flag(code, edit, code.edited(node, [edit]), _fit(problem, code, node))


def _call_edit(code: Code, call: ast.Call) -> Edit | None:
    """The edit that takes the flag out of a constructor's arguments."""
    if isinstance(call.func, ast.Attribute) and is_functional(call.func.value) and call.func.attr.islower():
        return None
    given = flag(call)
    return without_flag(code, call, given) if given is not None else None


def _fit(problem: Problem, code: Code, call: ast.Call) -> int:
    """How surely a constructor's call made the module that wrote."""
    write = problem.clash.write
    assert write is not None
    fit = 0
    operation = write.operation.strip("_").replace("_", "")
    name = called_name(call).lower()
    kind = dict(problem.evidence.inplace_modules).get(write.module or "", "").lower()
    if kind and position(called_name(call)) is not None:
        if name != kind:
            return -10
        fit += 4
    elif operation in (name, _FUNCTION_OF.get(name)):
        fit += 3
    attribute, index = _attribute_of(code, call)
    path = write.module or ""
    if attribute is not None and re.search(rf"(^|\.){re.escape(attribute)}(\[|\.|$)", path):
        fit += 2
        place = re.search(rf"(?:^|\.){re.escape(attribute)}\[(\d+)\]", path)
        if place is not None and index is not None:
            fit += 3 if int(place.group(1)) == index else -3
    owner = next((n.name for n in code.parents(call) if isinstance(n, ast.ClassDef)), None)
    if owner is not None and any(s.function.startswith(f"{owner}.") for s in problem.write_stack):
        fit += 2
    return fit


def _attribute_of(code: Code, call: ast.Call) -> tuple[str | None, int | None]:
    """The name under which a module ends up, and its index in the nn.Sequential that it is an argument of."""
    above, index = code.parent(call), None
    if isinstance(above, ast.Call) and called_name(above) == "Sequential" and call in above.args:
        index = above.args.index(call)
    statement = code.statement(call)
    if isinstance(statement, ast.Assign):
        target = dotted(statement.targets[0])
        return (target or "").rpartition(".")[2] or None, index
    return None, index


# ---- from the user's cell ---------------------------------------------------------------------------------------


def _from_outside(problem: Problem, live: tuple[LiveChange, ...]) -> Iterator[Proposal]:
    """A library's model: the failing cell switches the flags off before it uses the model."""
    path = problem.clash.write.module if problem.clash.write is not None else None
    model = re.match(r"\w+", path or "")
    spots = [s for s in (*problem.write_stack, *problem.need_stack) if s.cell == problem.cell]
    code = problem.code(problem.cell)
    if model is None or code is None or not spots:
        return
    inside = code.at(spots[-1])
    if inside is None:
        return
    statement = code.statement(inside)
    for above in code.parents(statement):
        if isinstance(above, ast.stmt):
            statement = above
    name, step = model.group(), code.indent_step
    lines = [
        f"for module in {name}.modules():",
        f'{step}if hasattr(module, "inplace"):',
        f"{step * 2}module.inplace = False",
    ]
    title = message("title_every_module", name=name)
    yield in_one_text(code, [code.insert_before(statement, *lines)], title, _WHY, "module_flag", local=True)
