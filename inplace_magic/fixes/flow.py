"""How values flow through a block of statements: what a statement reads and binds, what a loss was made from.

Values are known by their names: ``x``, or ``self.x`` and ``agent.x`` for an attribute; an item of a container counts
as the container.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..record.evidence import RecordedConflict
from ..source.editor import Code, Edit, Function, Loop, dotted
from ..source.location import SourceRange
from . import Problem

_WITHOUT_GRAPH = frozenset({"item", "detach", "data", "shape", "device", "dtype"})
_FILLING = frozenset({"append", "extend", "insert", "add", "setdefault", "put", "push"})


def key_of(node: ast.AST) -> str | None:
    """The name under which a value is known: ``x``, ``self.x``; None for anything without a name."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    path = dotted(node)
    return None if path is None else ".".join(path.split(".")[:2])


def reads(node: ast.AST) -> set[str]:
    """Names and attributes of names that are read anywhere below the node, inner functions included."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name):
            found.add(f"{child.value.id}.{child.attr}")
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            found.add(child.id)
    for child in ast.walk(node):
        if isinstance(child, ast.AugAssign) and (key := key_of(child.target)) is not None:
            found.add(key)
    return found


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """The single targets of an assignment, tuples taken apart."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from targets(item)
    elif isinstance(node, ast.Starred):
        yield from targets(node.value)
    elif isinstance(node, ast.expr):
        yield node


def assigned(statement: ast.stmt) -> list[ast.expr]:
    """What one assignment statement binds; empty for other statements."""
    if isinstance(statement, ast.Assign):
        return [t for target in statement.targets for t in targets(target)]
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return [statement.target]
    return []


def binds(node: ast.stmt) -> set[str]:
    """Names that the statement binds or fills, at its own level of function."""
    found: set[str] = set()
    todo: list[ast.AST] = [node]
    while todo:
        child = todo.pop()
        if isinstance(child, (*Function, ast.ClassDef)):
            found.add(child.name)
            continue
        if isinstance(child, ast.Lambda):
            continue
        bound: list[ast.expr] = assigned(child) if isinstance(child, ast.stmt) else []
        if isinstance(child, (ast.For, ast.AsyncFor)):
            bound = list(targets(child.target))
        elif isinstance(child, ast.withitem) and child.optional_vars is not None:
            bound = list(targets(child.optional_vars))
        elif isinstance(child, ast.NamedExpr):
            bound = [child.target]
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in _FILLING:
            bound = [child.func.value]
        found.update(key for target in bound if (key := key_of(target)) is not None)
        todo.extend(ast.iter_child_nodes(child))
    return found


def rebinds(statement: ast.stmt) -> set[str]:
    """Names whose old value plays no part after the statement. A loop is taken to run at least once."""
    if isinstance(statement, ast.Assign):
        plain = {t.id for t in assigned(statement) if isinstance(t, ast.Name)}
        plain |= {
            p for t in assigned(statement) if isinstance(t, ast.Attribute) and (p := key_of(t)) == dotted(t) and p
        }
        return plain
    if isinstance(statement, (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While)):
        return _all_rebinds(statement.body)
    if isinstance(statement, ast.If):
        return _all_rebinds(statement.body) & _all_rebinds(statement.orelse)
    return set()


def _all_rebinds(statements: Sequence[ast.stmt]) -> set[str]:
    return {name for statement in statements for name in rebinds(statement)}


def slice_of(statements: Sequence[ast.stmt], wanted: set[str]) -> tuple[list[ast.stmt], set[str]]:
    """The statements that the wanted values are made from, in order, and the names that must exist before them."""
    wanted = set(wanted)
    found: list[ast.stmt] = []
    for statement in reversed(statements):
        if isinstance(statement, (*Function, ast.ClassDef)) or not binds(statement) & wanted:
            continue
        found.append(statement)
        wanted -= rebinds(statement)
        wanted |= value_reads(statement)
    return found[::-1], wanted


def value_reads(statement: ast.stmt) -> set[str]:
    """Names that must have a value before the statement, for what it binds."""
    if isinstance(statement, ast.Assign):
        below = [statement.value, *(t.slice for t in assigned(statement) if isinstance(t, ast.Subscript))]
        return {name for node in below for name in reads(node)}
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        bound = {key for t in targets(statement.target) if (key := key_of(t)) is not None}
        return reads(statement.iter) | (live_in(statement.body) - bound) | live_in(statement.orelse)
    if isinstance(statement, (ast.While, ast.If)):
        return reads(statement.test) | live_in(statement.body) | live_in(statement.orelse)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return {n for item in statement.items for n in reads(item.context_expr)} | live_in(statement.body)
    return reads(statement)


def live_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that must have a value before a block."""
    wanted: set[str] = set()
    for statement in reversed(statements):
        wanted = (wanted - rebinds(statement)) | value_reads(statement)
    return wanted


def roots(statement: ast.stmt) -> set[str]:
    """What a statement with a backward in it goes back from: the loss, or the arguments of a helper that does it."""
    for call in calls(statement):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "backward" and isinstance(call.func, ast.Attribute):
            owner = dotted(call.func.value)
            return (
                reads(call.args[0]) if owner in ("torch.autograd", "autograd") and call.args else reads(call.func.value)
            )
        if name == "grad" and call.args:
            return reads(call.args[0])
    return reads(statement)


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call))


def calls_named(node: ast.AST, *names: str) -> list[ast.Call]:
    """Calls of methods or functions of these names, below the node."""
    return [
        call
        for call in calls(node)
        if (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)) in names
    ]


@dataclass(frozen=True)
class Meeting:
    """Two events of one round in one block: ``first`` (a step, a backward that frees) stands before ``need``.

    ``first`` and ``need`` are statements of ``block``; ``save`` is too, or None if the saving lies elsewhere.
    """

    code: Code
    block: list[ast.stmt]
    first: ast.stmt
    need: ast.stmt
    save: ast.stmt | None

    @property
    def between(self) -> list[ast.stmt]:
        return self.block[self.block.index(self.first) + 1 : self.block.index(self.need)]

    @property
    def before(self) -> list[ast.stmt]:
        return self.block[: self.block.index(self.first)]

    @property
    def loss(self) -> list[ast.stmt]:
        """The statements of the block that the needed loss was made from."""
        return slice_of(self.block[: self.block.index(self.need)], roots(self.need))[0]

    @property
    def first_loss(self) -> list[ast.stmt]:
        """The statements that the loss of the first update was made from."""
        backward = backward_before(self.block, self.first) or self.first
        return slice_of(self.block[: self.block.index(backward)], roots(backward))[0]


def first_stack(clash: RecordedConflict) -> tuple[SourceRange, ...]:
    """Where the tensor was lost: the write, or the backward that freed the graph."""
    event = clash.freed if clash.kind == "second_backward" else clash.write
    return event.stack if event is not None else ()


def frames(problem: Problem, stack: tuple[SourceRange, ...]) -> list[tuple[Code, ast.stmt]]:
    """The statements of a stack, outermost first, as far as their cells are known."""
    found = []
    for spot in reversed(stack):
        code = problem.code(spot.cell)
        statement = code.statement_at(spot.line, spot.column) if code is not None else None
        if code is None or statement is None:
            break
        found.append((code, statement))
    return found


def updates_weights(problem: Problem) -> bool:
    """Whether the graph was used up, or what was written is a weight: by an optimizer, or in place by hand."""
    write = problem.clash.write
    if problem.clash.kind == "second_backward":
        return True
    if write is None or write.origin == "optim":
        return write is not None
    leaves = {g.leaf for one in problem.evidence.passes for g in one.gradients}
    return write.name in leaves


def update_between(problem: Problem) -> Meeting | None:
    """The meeting, if it is an update that comes between: nobody wants the write of a mere value somewhere else."""
    return meeting(problem) if updates_weights(problem) else None


def meeting(problem: Problem) -> Meeting | None:
    """Where the two events of a conflict stand one after the other; None if they are a round apart, or cells."""
    first, need = frames(problem, first_stack(problem.clash)), frames(problem, problem.need_stack)
    saved = frames(problem, problem.save_stack)
    for depth, ((code, a), (other, b)) in enumerate(zip(first, need)):
        if code is not other:
            return None
        if a is b:
            continue
        common = _common_block(code, a, b)
        if common is None:
            return None
        block, one, two = common
        if block.index(one) >= block.index(two):
            return None
        save = saved[depth][1] if depth < len(saved) and saved[depth][0] is code else None
        return Meeting(code, block, one, two, within(code, block, save) if save is not None else None)
    return None


def update_after_save(problem: Problem) -> Meeting | None:
    """``update_between`` with what stands before it in the blocks around, as far as the saving; None if that is not found."""
    found = update_between(problem)
    if found is None or found.save is not None:
        return found
    block = found.block
    for above in list(upwards(found.code, found.first))[1:]:
        around = found.code.block(above)
        block = [*around[: around.index(above)], *block]
        for code, statement in frames(problem, problem.save_stack):
            save = within(code, around, statement) if code is found.code else None
            if save is not None and save in block:
                return replace(found, block=block, save=save)
    return None


def graph_reads(code: Code, nodes: Iterable[ast.AST], names: set[str]) -> list[ast.Name]:
    """Where these names are read for a value that has a history: not for ``x.shape``, nor for what is detached already."""
    return [
        node
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and node.id in names
        and not (isinstance(above := code.parent(node), ast.Attribute) and above.attr in _WITHOUT_GRAPH)
    ]


def _common_block(code: Code, a: ast.stmt, b: ast.stmt) -> tuple[list[ast.stmt], ast.stmt, ast.stmt] | None:
    """The innermost block that holds both, with its statements in which they lie."""
    for above in upwards(code, a):
        block = code.block(above)
        other = within(code, block, b)
        if other is not None and other is not above:
            return block, above, other
    return None


def within(code: Code, block: list[ast.stmt], statement: ast.stmt) -> ast.stmt | None:
    """The statement of the block that is, or holds, this one."""
    return next((above for above in upwards(code, statement) if any(above is s for s in block)), None)


def upwards(code: Code, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statement and those around it, not beyond its function."""
    yield statement
    for above in code.parents(statement):
        if isinstance(above, (*Function, ast.ClassDef)):
            return
        if isinstance(above, ast.stmt):
            yield above


def loops(code: Code, statement: ast.stmt) -> list[ast.For | ast.While | ast.AsyncFor]:
    """The loops around a statement within its function, the innermost first."""
    return [above for above in upwards(code, statement) if isinstance(above, Loop) and above is not statement]


def retain_flags(node: ast.AST) -> list[tuple[ast.Call, ast.keyword]]:
    """The ``retain_graph=True`` arguments of calls below the node."""
    return [
        (call, keyword)
        for call in calls(node)
        for keyword in call.keywords
        if keyword.arg == "retain_graph" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
    ]


def without_retain(code: Code, nodes: Iterable[ast.AST]) -> list[Edit]:
    """Takes ``retain_graph=True`` out of the calls below the nodes."""
    return [drop_argument(code, call, keyword) for node in nodes for call, keyword in retain_flags(node)]


def drop_argument(code: Code, call: ast.Call, keyword: ast.keyword) -> Edit:
    """Takes one keyword argument out of a call, with the comma that belongs to it."""
    start, end = code.span(keyword)
    raw = code.cell.raw
    before = raw[:start].rstrip()
    if before.endswith(","):
        return Edit(len(before) - 1, end, "")
    rest = raw[end:]
    after = rest.lstrip()
    return Edit(start, end + len(rest) - len(after[1:].lstrip()) if after.startswith(",") else end, "")


def with_retain(code: Code, call: ast.Call) -> Edit | None:
    """``retain_graph=True`` put into a call of backward; None where it is there already."""
    given = next((k for k in call.keywords if k.arg == "retain_graph"), None)
    if given is not None:
        value = given.value
        return None if isinstance(value, ast.Constant) and value.value is True else code.replace(value, "True")
    path = dotted(call.func) or ""
    ahead = 3 if path.endswith("grad") else 2 if path.endswith("autograd.backward") else 1  # positions before it
    if len(call.args) > ahead:
        return None
    return add_argument(code, call, "retain_graph=True")


def with_create(code: Code, call: ast.Call) -> Edit | None:
    """``create_graph=True`` put into a call of ``autograd.grad``; None where the graph is asked to be created or kept."""
    given = {k.arg for k in call.keywords}
    if not (dotted(call.func) or "").endswith("grad") or len(call.args) > 3 or given & {"create_graph", "retain_graph"}:
        return None
    return add_argument(code, call, "create_graph=True")


def add_argument(code: Code, call: ast.Call, argument: str) -> Edit:
    """One more argument at the end of a call."""
    _, end = code.span(call)
    raw = code.cell.raw
    given = [*call.args, *call.keywords]
    if not given:
        return Edit(end - 1, end - 1, argument)
    last = max(code.span(node)[1] for node in given)
    gap = raw[last : end - 1]
    return Edit(last, last, f", {argument}") if "," not in gap else Edit(end - 1, end - 1, f" {argument}")


def unused(name: str, code: Code) -> str:
    """The name, or one like it that the cell does not use yet."""
    taken = {node.id for node in ast.walk(code.tree) if isinstance(node, ast.Name)}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100))) if n not in taken)


def is_call(statement: ast.stmt, *methods: str) -> bool:
    """Whether the statement is nothing but a call of one of these methods."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr in methods
    )


def is_step(statement: ast.stmt) -> bool:
    """``optimizer.step()``, and what a GradScaler makes of it."""
    return is_call(statement, "step") and bool(calls_named(statement, "step"))


def simple(statement: ast.stmt) -> bool:
    """A statement without statements in it."""
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr))


def update_of(block: list[ast.stmt], backward: ast.stmt) -> list[ast.stmt]:
    """The statements of one update: zero_grad, backward, clipping and step, as far as they stand together.

    A helper that does it all is an update of its own.
    """
    at = block.index(backward)
    if not calls_named(backward, "backward") or not simple(backward):
        return [backward]
    first, last = at, at
    while first > 0 and is_call(block[first - 1], "zero_grad"):
        first -= 1
    for i in range(at + 1, len(block)):
        if is_step(block[i]):
            last = i
            break
        if calls_named(block[i], "backward") or not calls_named(block[i], *_CLIPS):
            break
    return block[first : last + 1]


_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "unscale_")


def backward_before(block: list[ast.stmt], step: ast.stmt) -> ast.stmt | None:
    """The statement whose gradients a step uses: the nearest backward above it; the step itself if it is a helper."""
    if calls_named(step, "backward") or not is_step(step):
        return step
    return next((s for s in reversed(block[: block.index(step)]) if calls_named(s, "backward")), None)


@dataclass(frozen=True)
class Lifted:
    """Whole lines taken out of a cell, with the comments right above them."""

    text: str
    edits: tuple[Edit, ...]


def lift(code: Code, statements: Sequence[ast.stmt]) -> Lifted | None:
    """Takes statements out, to be put elsewhere; None where they share lines with others.

    Where a blank line parts them from what is above, it goes with them, and stands behind them at the new place.
    """
    if not statements or not all(code.alone(s) for s in statements):
        return None
    raw = code.cell.raw
    text, edits = "", []
    for statement in statements:
        start = start_with_comments(code, statement)
        end = line_end(code, statement)
        text += raw[start:end] if raw[start:end].endswith("\n") else raw[start:end] + code.newline
        edits.append(Edit(start, end, ""))
    above = raw[: edits[0].start].splitlines(keepends=True)
    if above and not above[-1].strip() and statements[0] is not code.block(statements[0])[0]:
        edits[0] = Edit(edits[0].start - len(above[-1]), edits[0].end, "")
        text += code.newline
    return Lifted(text, tuple(edits))


def start_with_comments(code: Code, statement: ast.stmt) -> int:
    """Where the statement's line begins, or the comment lines right above it."""
    lines = code.cell.raw.splitlines(keepends=True)
    first = statement.lineno - 1
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
    return sum(len(line) for line in lines[:first])


def line_end(code: Code, statement: ast.stmt) -> int:
    lines = code.cell.raw.splitlines(keepends=True)
    return sum(len(line) for line in lines[: statement.end_lineno])


def steps_between(problem: Problem) -> bool:
    """Whether an optimizer stepped after the backward that freed the graph and before the one that needs it."""
    clash = problem.clash
    if clash.freed is None or clash.need is None:
        return True
    return any(one.steps for one in problem.evidence.passes[clash.freed.index : clash.need.index])


def source_lines(code: Code, statement: ast.stmt, edits: Iterable[Edit] = ()) -> list[str]:
    """The statement's text as lines to insert, its further lines as deep as the first."""
    lines = code.edited(statement, edits).splitlines()
    indent = code.indent(statement)
    return [lines[0], *(line.removeprefix(indent) for line in lines[1:])]
