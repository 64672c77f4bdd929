"""A state that goes from round to round takes its graph along; it is cut off where it is carried.

    h_cur = h_next                            h_cur = h_next.detach()

    out, hidden = lstm(x, hidden)             out, hidden = lstm(x, hidden)
                                              hidden = tuple(h.detach() for h in hidden)

    self.M = self.M + update                  self.M = (self.M + update).detach()

``retain_graph=True``, which people add on the way here, is taken out again if the loop runs without it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..source.editor import Code, Edit, Function, atom, dotted
from . import Problem, Proposal, register
from .flow import (
    assigned,
    binds,
    frames,
    is_step,
    key_of,
    loops,
    meeting,
    reads,
    roots,
    simple,
    slice_of,
    value_reads,
    within,
    without_retain,
)

_WHY = "The next round starts from the values alone; gradients no longer flow back into earlier rounds."
_AFTER_LOOP = 25  # the rank of a cut in the class, where one round calls it many times
_NO_GRAPH = frozenset({"zeros", "zeros_like", "ones", "ones_like", "new_zeros", "rand", "randn", "full", "empty", "detach",
                       "item", "tolist", "numpy"})  # fmt: skip


@dataclass(frozen=True)
class Round:
    """A block that runs again and again, the function that it is in, and where in it the failing backward stands."""

    code: Code
    body: list[ast.stmt]
    need: ast.stmt
    function: str
    fixed: frozenset[str]
    inner: ast.stmt
    loop: bool = True


@register("modified", "second_backward", "silent", rank=20)
def carried_state(problem: Problem) -> Iterator[Proposal]:
    held = holdings(problem)
    offered = 0
    for turn in rounds(problem):
        names = {name: kind for name in carried(turn) if (kind := kind_of_name(turn, name, held)) is not None}
        if not names:
            continue
        if turn.loop:
            edits = [edit for group in _by_binding(turn, names) for edit in _cut(turn, group)]
        else:
            edits = _cut_on_entry(turn, names)
        if not edits:
            continue
        retained = without_retain(turn.code, turn.body)
        line = _title(turn, names, edits)
        for extra in [retained, []] if retained else [[]]:
            yield Proposal(line, _WHY, "carried_state", {turn.code.cell.number: turn.code.apply(*edits, *extra)})
        offered += 1
        if offered == 2:
            return


@register("modified", "second_backward", "silent", rank=23)
def carried_attribute(problem: Problem) -> Iterator[Proposal]:
    """A state that an object keeps: cut where its class keeps it, whichever cell that is in."""
    if meeting(problem) is not None:
        return
    held = holdings(problem)
    for scope, names in held.items():
        if not scope.startswith("class "):
            continue
        for code in problem.codes():
            cls = _class(code, scope.removeprefix("class "))
            if cls is None:
                continue
            edits, lines = _keepers(code, cls, names)
            if edits:
                texts = {code.cell.number: code.apply(*edits)}
                yield Proposal(
                    lines[0],
                    _WHY,
                    "carried_attribute",
                    _free_of_retain(problem, texts),
                    rank=_AFTER_LOOP if _many_steps(problem, lines) else None,
                )


@register("modified", "second_backward", "silent", rank=24)
def kept_object(problem: Problem) -> Iterator[Proposal]:
    """A state that an object keeps: cut in the training loop, once a round is over."""
    if meeting(problem) is not None:
        return
    held = holdings(problem)
    for turn in rounds(problem):
        paths = {
            path: kind
            for path, kind in held.get(turn.function, {}).items()
            if "." in path and path.split(".")[0].split("[")[0] in {n for s in turn.body for n in reads(s)}
        }
        if not paths or len(paths) > 4 or _stores(turn, paths):
            continue
        after = _step_after(turn.body, turn.need)
        plain = all(kind == "Tensor" for kind in paths.values())
        lines = [f"{', '.join(paths)} = {', '.join(detached(p, k) for p, k in paths.items())}"]
        if not plain or len(lines[0]) > 80:
            lines = [f"{path} = {detached(path, kind)}" for path, kind in paths.items()]
        edit = turn.code.insert_after(after, *lines)
        text = turn.code.apply(edit, *without_retain(turn.code, turn.body))
        yield Proposal(lines[0], _WHY, "kept_object", {turn.code.cell.number: text})
        return


# ---- what is carried ---------------------------------------------------------------------------------------------


def holdings(problem: Problem) -> dict[str, dict[str, str]]:
    """Every name that held a graph at some backward, by function, over all passes."""
    found: dict[str, dict[str, str]] = {}
    for one in problem.evidence.passes:
        for scope, names in one.held.items():
            found.setdefault(scope, {}).update(names)
    return found


def rounds(problem: Problem) -> Iterator[Round]:
    """The loops around the failing backward, the innermost first; then the functions that may be called in turn."""
    stack = list(reversed(frames(problem, problem.need_stack)))
    spots = problem.need_stack
    for (code, statement), spot in zip(stack, spots[len(spots) - len(stack) :]):
        for loop in loops(code, statement):
            need = within(code, loop.body, statement)
            if need is not None:
                fixed = binds_of_target(loop)
                yield Round(code, loop.body, need, spot.function, frozenset(fixed), statement)
    if meeting(problem) is not None:
        return
    for (code, statement), spot in zip(stack, spots[len(spots) - len(stack) :]):
        function = code.function(statement)
        body = function.body if isinstance(function, Function) else code.tree.body
        need = within(code, body, statement)
        if need is not None:
            yield Round(code, body, need, spot.function, frozenset(), statement, loop=False)


def binds_of_target(loop: ast.stmt) -> set[str]:
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return set()
    return {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}


def carried(turn: Round) -> list[str]:
    """Names that the loss is made from, that a round finds bound, and binds anew for the next."""
    at = turn.body.index(turn.need)
    wanted = roots(turn.need) if simple(turn.need) else value_reads(turn.need)
    needed = slice_of(turn.body[:at], wanted)[1]
    bound = {name for statement in turn.body for name in binds(statement)}
    sums = {name for s in ast.walk(_module(turn.body)) if (name := _summed(s)) is not None}
    return sorted((needed & bound) - turn.fixed - (wanted & sums))


def _summed(node: ast.AST) -> str | None:
    """The name that a statement adds something to."""
    if isinstance(node, ast.AugAssign):
        return key_of(node.target)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        name = key_of(node.targets[0])
        return name if name in (dotted(node.value.left), dotted(node.value.right)) else None
    return None


def _module(body: list[ast.stmt]) -> ast.Module:
    return ast.Module(body, [])


def kind_of_name(turn: Round, name: str, held: dict[str, dict[str, str]]) -> str | None:
    """How the name holds its graph; None if it holds none. A name that nobody looked at is taken for a tensor."""
    if not held:
        return "Tensor"
    kind = held.get(turn.function, {}).get(name)
    if kind is None and "." in name:
        attribute = name.split(".")[1]
        kind = next(
            (names[attribute] for s, names in held.items() if s.startswith("class ") and attribute in names), None
        )
    return kind


# ---- cutting it --------------------------------------------------------------------------------------------------


def detached(name: str, kind: str, item: str = "h") -> str:
    """The expression that cuts a value of this shape off from its graph."""
    if kind == "Tensor":
        return f"{name}.detach()"
    outer, inner = kind.split("[", 1)
    variable = item if inner == "Tensor]" else "state"
    each = detached(variable, inner[:-1], item)
    if outer == "list":
        return f"[{each} for {variable} in {name}]"
    if outer == "dict":
        return f"{{key: {each} for key, {variable} in {name}.items()}}"
    if outer == "tuple":
        return f"tuple({each} for {variable} in {name})"
    return f"type({name})(*({each} for {variable} in {name}))"


def _by_binding(turn: Round, names: dict[str, str]) -> list[tuple[ast.stmt, dict[str, str]]]:
    """The carried names by the statement of the body that binds them last."""
    groups: dict[int, tuple[ast.stmt, dict[str, str]]] = {}
    for name, kind in names.items():
        binding = [s for s in turn.body if name in binds(s)][-1]
        groups.setdefault(id(binding), (binding, {}))[1][name] = kind
    return list(groups.values())


def _cut(turn: Round, group: tuple[ast.stmt, dict[str, str]]) -> list[Edit]:
    binding, names = group
    code = turn.code
    later = turn.body[turn.body.index(binding) + 1 :]
    alias = _alias(binding)
    if alias is not None and len(names) == 1:
        ((name, kind),) = names.items()
        if not any(name in reads(s) for s in later):
            return [code.replace(alias, detached(atom(code, alias), kind))]
    if isinstance(turn.need, ast.If):  # a backward every few rounds: the state is kept whole until then
        return [code.insert_after(_step_after(code.block(turn.inner), turn.inner), _line(names))]
    last = binding
    readers = [s for s in later if names.keys() & reads(s)]
    if readers:
        last = max([readers[-1], turn.need], key=turn.body.index)
        following = turn.body[turn.body.index(last) + 1 :]
        if following and is_step(following[0]):
            last = following[0]
    line = _line(names)
    if isinstance(last, (ast.Return, ast.Break, ast.Continue)):
        return [code.insert_before(last, line)]
    return [code.insert_after(last, line)]


def _step_after(block: list[ast.stmt], backward: ast.stmt) -> ast.stmt:
    """The step that follows a backward in its block, or the backward."""
    return next((s for s in block[block.index(backward) + 1 :] if is_step(s)), backward)


def _cut_on_entry(turn: Round, names: dict[str, str]) -> list[Edit]:
    """For a cell or a function that starts from what its last run left."""
    first = next(s for s in turn.body if names.keys() & reads(s))
    return [turn.code.insert_before(first, _line(names))]


def _alias(binding: ast.stmt) -> ast.expr | None:
    """The right side of ``h = h_next``, where a detach fits in."""
    if not isinstance(binding, ast.Assign) or len(binding.targets) != 1 or len(assigned(binding)) != 1:
        return None
    packed = isinstance(binding.targets[0], (ast.Tuple, ast.List))
    return None if packed or dotted(binding.value) is None else binding.value


def _line(names: dict[str, str]) -> str:
    ordered = sorted(names, key=_natural)
    return f"{', '.join(ordered)} = {', '.join(detached(n, names[n]) for n in ordered)}"


def _natural(name: str) -> tuple[bool, str]:
    return not name.startswith("h"), name  # (h, c), as everybody writes them


def _title(turn: Round, names: dict[str, str], edits: list[Edit]) -> str:
    inserted = next((e.text.strip() for e in edits if "\n" in e.text), None)
    if inserted is not None:
        return inserted
    edit = edits[0]
    line = turn.code.cell.raw[: edit.start].splitlines()[-1] if edit.start else ""
    return f"{line.strip()} {edit.text}".strip() if line.strip() else edit.text


def _stores(turn: Round, paths: dict[str, str]) -> bool:
    return any(path in binds(s) for path in paths for s in turn.body)


# ---- attributes --------------------------------------------------------------------------------------------------


def _many_steps(problem: Problem, lines: list[str]) -> bool:
    """Whether a round may go through the state several times, so that a cut in the class cuts within the round too."""
    need = {id(s) for _, s in frames(problem, problem.need_stack)}
    inner = [(c, s) for c, s in frames(problem, problem.save_stack) if id(s) not in need]
    outer = [loop for code, s in frames(problem, problem.need_stack) for loop in loops(code, s)]
    looped = any(loop not in outer for code, s in inner for loop in loops(code, s))
    return looped or any(line.split(" = ")[0] in line.split(" = ", 1)[1].split(".detach")[:1] for line in lines)


def _class(code: Code, qualname: str) -> ast.ClassDef | None:
    name = qualname.split(".")[-1]
    return next((n for n in ast.walk(code.tree) if isinstance(n, ast.ClassDef) and n.name == name), None)


def _keepers(code: Code, cls: ast.ClassDef, names: dict[str, str]) -> tuple[list[Edit], list[str]]:
    """The edits that cut every state of a class where it is kept, and how the first ones read."""
    edits: list[Edit] = []
    lines: list[str] = []
    for statement in ast.walk(cls):
        if not isinstance(statement, (ast.Assign, ast.AugAssign)):
            continue
        function = code.function(statement)
        if not isinstance(function, Function) or function.name == "__init__":
            continue
        kept = {
            target.attr: target
            for target in assigned(statement)
            if isinstance(target, ast.Attribute) and target.attr in names and _owner(target)
        }
        if not kept and (value := _written_part(statement, names)) is not None and not _without_graph(value):
            text = detached(atom(code, value), "Tensor")
            edits.append(code.replace(value, text))
            lines.append(" ".join(code.edited(statement, edits[-1:]).split()))
        if not kept or not _read_in(cls, kept.keys()) or _without_graph(statement.value):
            continue
        new, line = _keep(code, function, statement, {_path(t): names[a] for a, t in kept.items()})
        edits += new
        lines += line
    return edits, lines


def _written_part(statement: ast.Assign | ast.AugAssign, names: dict[str, str]) -> ast.expr | None:
    """What is written into a part of a state that is a tensor: ``self.buffer[i] = x``."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    held = target.value if isinstance(target, ast.Subscript) else None
    if not isinstance(held, ast.Attribute) or names.get(held.attr) != "Tensor" or not _owner(held):
        return None
    return statement.value


def _owner(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name)


def _path(target: ast.Attribute) -> str:
    return dotted(target) or target.attr


def _read_in(cls: ast.ClassDef, names: object) -> bool:
    return any(
        isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr in names  # type: ignore[operator]
        for n in ast.walk(cls)
    )


def _without_graph(value: ast.expr) -> bool:
    """A constant, or a value made of fresh tensors alone."""
    made = [n for n in ast.walk(value) if isinstance(n, ast.Call)]
    names = {c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "") for c in made}
    return isinstance(value, ast.Constant) or (bool(made) and names <= _NO_GRAPH)


def _keep(
    code: Code, function: ast.AST, statement: ast.Assign | ast.AugAssign, paths: dict[str, str]
) -> tuple[list[Edit], list[str]]:
    body = function.body  # type: ignore[attr-defined]
    top = within(code, body, statement)
    after = body[body.index(top) + 1 :] if top in body else []
    read_later = any(path in reads(s) for path in paths for s in after) or any(
        path in reads(s) for path in paths for s in _rest_of_block(code, statement)
    )
    ((path, kind),) = list(paths.items())[:1]
    simple = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and len(assigned(statement)) == 1
    inner = [node for node in ast.walk(statement.value) if dotted(node) == path and isinstance(node, ast.expr)]
    if read_later and inner and kind == "Tensor" and not isinstance(statement, ast.AugAssign):
        edits = [code.replace(node, f"{path}.detach()") for node in inner]  # cut on its way in: what comes out is used
        return edits, [" ".join(code.edited(statement, edits).split())]
    first_round = top is not statement and _guards(top)  # made in it alone, and kept for all others
    if simple and kind == "Tensor" and (first_round or not read_later):
        value = detached(atom(code, statement.value), kind)
        return [code.replace(statement.value, value)], [f"{path} = {' '.join(value.split())}"]
    if read_later:
        first = next((s for s in body if path in reads(s) and not _guards(s)), top)
        if not isinstance(first, ast.stmt) or (top in body and body.index(first) > body.index(top)):
            return [], []  # behind it, a cut would take the gradient of the round itself
        line = _line(paths)
        return [code.insert_before(first, line)], [line]
    line = _line(paths)
    return [code.insert_after(statement, line)], [line]


def _rest_of_block(code: Code, statement: ast.stmt) -> list[ast.stmt]:
    block = code.block(statement)
    return block[block.index(statement) + 1 :]


def _guards(statement: ast.stmt | None) -> bool:
    """``if self.mem is None: ...``, after which the state exists."""
    return isinstance(statement, ast.If) and any(
        isinstance(n, ast.Constant) and n.value is None for n in ast.walk(statement.test)
    )


def _free_of_retain(problem: Problem, texts: dict[int, str]) -> dict[int, str]:
    """The failing loop loses its ``retain_graph=True`` as well."""
    for code, statement in frames(problem, problem.need_stack):
        edits = without_retain(code, [statement])
        if edits and code.cell.number not in texts:
            return {**texts, code.cell.number: code.apply(*edits)}
    return texts
