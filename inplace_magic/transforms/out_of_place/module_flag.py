"""A module writes because it was made with ``inplace=True``: the flag goes, also on the live module.

    self.act = nn.ReLU(inplace=True)          self.act = nn.ReLU()
    nn.LeakyReLU(0.2, True)                   nn.LeakyReLU(0.2)

The flag is there to save memory: nobody sets it for the sake of those who hold the module's input and find it overwritten.

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

from ...diagnosis import LiveChange
from ...message import message
from ...record.evidence import Write
from ...source.dataflow import called_name, is_functional
from ...source.editor import Code, Edit, dotted
from ...source.names import first_name
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register
from .inplace_flag import flag, position, without_flag

_WHY = message("why_module_flag")
_MOST = 3


@register("modified", "leaf", "view_of_leaf", "multi_output_view", "no_grad_view", "overlap", "inference", "silent")
def module_flag(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.origin != "nn" or write.operation in ("batch_norm", "embedding"):
        return
    live, flags = _live(problem, write), list(_flags(problem))
    for code, call, edit in sorted(flags, key=lambda flag: _fit(problem, write, *flag[:2]), reverse=True)[:_MOST]:
        spared = problem.spared(code) if live else ()
        yield in_one_text(code, [edit], call, _WHY, "module_flag", live=live, spared=spared, meant=True)
    if not flags:
        yield from _from_outside(problem, write)


def _live(problem: Problem, write: Write) -> tuple[LiveChange, ...]:
    """The modules of the session that the source line made, as far as their paths tell: ``net.blocks[*].act``."""
    path, kinds = write.module, dict(problem.evidence.inplace_modules)
    if path is None:
        return ()
    last = path.rpartition(".")[2]  # ``act``, ``main[1]``
    alike = [one for one, kind in kinds.items() if kind == kinds.get(path) and one.rpartition(".")[2] == last]
    return tuple(LiveChange("set", one, "inplace", False) for one in dict.fromkeys([path, *alike]))


# ---- in the source ----------------------------------------------------------------------------------------------


def _flags(problem: Problem) -> Iterator[tuple[Code, ast.Call, Edit]]:
    """The constructors that are asked to work in place, with the edit that takes the flag out of their arguments."""
    for code, call in problem.nodes(ast.Call):
        function = isinstance(call.func, ast.Attribute) and is_functional(call.func.value) and call.func.attr.islower()
        given = None if function else flag(call)
        if given is not None:
            yield code, call, without_flag(code, call, given)


def _fit(problem: Problem, write: Write, code: Code, call: ast.Call) -> tuple[bool, ...]:
    """How surely a constructor's call made the module that wrote: what says most first."""
    name, path = called_name(call).lower(), write.module or ""
    kind = dict(problem.evidence.inplace_modules).get(path, "").lower()
    known = bool(kind) and position(called_name(call)) is not None
    attribute, index = _attribute_of(code, call)
    place = re.search(rf"(?:^|\.){re.escape(attribute)}(?:\[(\d+)\]|\.|$)", path) if attribute else None
    owner = next((n.name for n in code.parents(call) if isinstance(n, ast.ClassDef)), None)
    return (
        not known or name == kind,
        place is None or None in (place[1], index) or place[1] == str(index),
        place is not None,
        any(spot.function.startswith(f"{owner}.") for spot in problem.write_stack),
    )


def _attribute_of(code: Code, call: ast.Call) -> tuple[str, int | None]:
    """The name under which a module ends up, and its index in the nn.Sequential that it is an argument of."""
    above, statement = code.parent(call), code.statement(call)
    beside = above.args if isinstance(above, ast.Call) and called_name(above) == "Sequential" else []
    target = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    return (target or "").rpartition(".")[2], beside.index(call) if call in beside else None


# ---- from the user's cell ---------------------------------------------------------------------------------------


def _from_outside(problem: Problem, write: Write) -> Iterator[Proposal]:
    """A library's model: the failing cell switches the flags off before it uses the model."""
    frames = problem.frames([s for s in (*problem.write_stack, *problem.need_stack) if s.cell == problem.cell])
    if write.module is None or not frames:
        return
    code, name = frames[0].code, first_name(write.module)
    top = next(s for s in code.tree.body if frames[0].statement in ast.walk(s))
    module = problem.unused("module", code, top)
    lines = [
        f"for {module} in {name}.modules():",
        f'{code.indent_step}if hasattr({module}, "inplace"):',
        f"{code.indent_step * 2}{module}.inplace = False",
    ]
    title = message("title_every_module", name=name)
    yield in_one_text(code, [code.insert_before(top, *lines)], title, _WHY, "module_flag", meant=True)
