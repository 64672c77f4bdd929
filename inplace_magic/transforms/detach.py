"""A value is taken without its history where it passes from one backward's graph into the next one's.

critic_loss(real, fake).backward()        critic_loss(real, fake.detach()).backward()

loss.backward()                           loss.backward()
optimizer.step()                          optimizer.step()
                                          memory["h"] = memory["h"].detach()

self.avg = 0.9 * self.avg + r             self.avg = 0.9 * self.avg.detach() + r

total += loss                             total += loss.detach()
total.backward()                          loss.backward()

bank.append(z)                            bank.append(z.detach())
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..message import message
from ..record.evidence import Edge, Holder
from ..source.bindings import bound_anew
from ..source.dataflow import added, binds, called_name, calls_named, handed_on, live_in
from ..source.editor import Code, Edit, Function, atom
from .analysis.backward_calls import freeing
from .analysis.meetings import loops, meeting, within
from .analysis.placement import assignments_to_follow, end_of_update, read_on
from .analysis.points import Use, alike, bound_by, crossing, detached, is_named, uses
from .problem import Frame, Problem
from .proposal import Change, Proposal
from .registry import register

_CARRIED = message("why_values_alone")
_GIVEN = message("why_counts_as_given")
_SHARED = message("why_left_to_the_later")
_UNTRAINED = message("why_not_stepped")
_SUMMED = message("why_sum_of_values")


@register("modified", "second_backward", "silent")
def detach(problem: Problem) -> Iterator[Proposal]:
    if not _passes_on(problem):
        return
    found = crossing(problem)
    later = {edge.used for edge in found.over}
    earlier = [e for e in found.shared if e.used not in later and _steps_on_less(problem)]
    yield from _at_uses(problem, earlier, "shared", _SHARED)
    yield from _at_uses(problem, [e for e in found.untrained if e.used not in later], "untrained", _UNTRAINED)
    if not any(edge.root for edge in found.over):
        yield from _summed(problem, found.over)
        between = meeting(problem) is not None
        again = any(edge.again for edge in found.over)
        given = bool(found.over) and all(_before_turns(problem, edge) and _given(problem, edge) for edge in found.over)
        form = "again" if again else "between" if between else "once" if given else "use"
        idle = _term_of_every_loss(problem, found.over)
        boundary = _at_boundary(problem, found.over, between) if not idle else ()
        once = _before_loop(problem, found.over) or ([] if given else _where_made_once(problem, found.over))
        cuts = once, boundary, _at_uses(problem, found.over, form, _CARRIED)
        for proposal in itertools.chain(*cuts, _at_stores(problem, found.over)):
            yield replace(proposal, idle=idle)
        if not any(uses(problem, edge) for edge in found.over):
            yield from _candidates(problem, _behind_uses(problem, found.over), "gathered", _CARRIED)


def _passes_on(problem: Problem) -> bool:
    """Whether something goes from one backward's graph, or past an optimizer's step, into a later one.

    A value that is written within its own forward is still to give its gradient: to cut it off is no fix.
    """
    clash = problem.clash
    if clash.kind == "second_backward" or clash.save is None or clash.need is None:
        return True
    if clash.write is not None and clash.write.origin == "optim":
        return True
    saved, needed = clash.save.clock, clash.need.clock
    return any(saved < one.backward.clock < needed for one in problem.evidence.passes)


def _term_of_every_loss(problem: Problem, edges: Sequence[Edge]) -> str:
    """A penalty that was computed before the loop and is added to every loss in it: cut off, it is there for nothing."""
    event = problem.clash.cause
    if event is None or event.stack != problem.need_stack:
        return ""
    once = (edge for edge in edges if edge.term and _before_turns(problem, edge))
    return next((ast.unparse(use.node) for edge in once for use in uses(problem, edge)), "")


def _before_turns(problem: Problem, edge: Edge) -> bool:
    """Whether a value is older than the loop that runs the backward again and again."""
    turns = False  # whether the call that both were made in runs in a loop itself
    for maker, need in zip(problem.frames(edge.made), problem.frames(problem.need_stack)):
        around = loops(need.code, need.statement)
        if maker.statement is not need.statement:
            return within(need.code, around[0].body, maker.statement) is None if around else not turns
        turns = turns or bool(around)
    return False


def _given(problem: Problem, edge: Edge) -> bool:
    """Whether a value is handed, once, to the code that runs the backward again and again."""
    calls = {frame.statement for frame in problem.frames(problem.need_stack)[:-1]}
    read = uses(problem, edge)
    return bool(read) and all(
        use.frame.statement in calls and not loops(use.frame.code, use.frame.statement) for use in read
    )


# ---- where it is used ----------------------------------------------------------------------------------------------


def _at_uses(problem: Problem, edges: Sequence[Edge], form: str, why: str) -> Iterator[Proposal]:
    """Each edge cut at the expression that reads the value."""
    read = [use for edge in edges for use in uses(problem, edge)]
    if why == _CARRIED:
        read = [same for use in read for same in alike(use)]
    found = {(id(use.frame.code), use.frame.code.span(use.node)): use for use in read}
    if any(_is_root(use) for use in found.values()):
        return
    changes = [(use.frame.code, edit) for use in found.values() if (edit := _cut(use)) is not None]
    changes += [change for edge in edges if not uses(problem, edge) for change in _where_made(problem, edge)]
    for use in found.values():
        statement = use.frame.statement
        if isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == use.holder.path:
            return
    if not changes:
        changes = [change for edge in edges for change in _into_itself(problem, edge)]
    if not changes and why == _CARRIED:
        for change in _operands(problem, edges):
            yield from _candidates(problem, [change], form, why)
    several = {use.holder.shape for use in found.values()} - {"Tensor"}
    if form == "use" and several and _of_containers({h.shape for edge in edges for h in edge.holders} | several):
        form = "use of containers"
    yield from _candidates(problem, changes, form, why)


def _steps_on_less(problem: Problem) -> bool:
    """Whether the earlier backward also reached leaves that the steps after it leave alone: it was not meant for them."""
    freed, passes = problem.clash.freed, problem.evidence.passes
    if freed is None or freed.index >= len(passes):
        return False
    one = passes[freed.index]
    return not {g.leaf for g in one.gradients} <= {g.leaf for step in one.steps for g in step}


def _is_root(use: Use) -> bool:
    """``fake.backward()``: nothing to cut."""
    above = use.frame.code.parent(use.node)
    return isinstance(above, ast.Attribute) and above.attr == "backward"


def _cut(use: Use) -> Edit | None:
    code, text = use.frame.code, atom(use.frame.code, use.node)
    new = detached(text, use.holder.shape)
    above = code.parent(use.node)
    if isinstance(above, ast.Subscript) and above.value is use.node and use.holder.shape != "Tensor":
        return code.behind(above, ".detach()")  # one item of what is held
    return None if new is None else code.replace(use.node, new)


def _where_made(problem: Problem, edge: Edge) -> Iterator[Change]:
    """``f(g(x))``, where no name ever held what ``g`` made."""
    for user, maker in zip(problem.frames(edge.used), problem.frames(edge.made)):
        node, within_use = maker.node, user.code is maker.code and maker.node is not user.node
        if within_use and isinstance(node, ast.expr) and any(inner is node for inner in ast.walk(user.node)):
            yield maker.code, maker.code.behind(node, ".detach()")
            return


def _operands(problem: Problem, edges: Sequence[Edge]) -> Iterator[Change]:
    """``h, n = state; h = cell(x, h)``, where what was held has other things in it: one operand or another is the value."""
    frames = {id(f.node): f for edge in edges for f in problem.frames(edge.used)[-1:]}
    for frame in frames.values() if len(frames) == 1 else ():
        call = frame.expression
        given = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
        for operand in given:
            if isinstance(operand, (ast.Name, ast.Attribute, ast.Subscript)):
                yield frame.code, frame.code.behind(operand, ".detach()")


def _behind_uses(problem: Problem, edges: Sequence[Edge]) -> list[Change]:
    """``torch.stack(states)``, where no name is known to have held the items: what is made of them is cut off."""
    made = [frame for edge in edges if edge.used for frame in problem.frames(edge.used[:1])]
    calls = {(id(f.code), f.code.span(f.node)): f for f in made if isinstance(f.node, ast.Call)}
    return [(f.code, f.code.behind(f.node, ".detach()")) for f in calls.values()]


def _into_itself(problem: Problem, edge: Edge) -> Iterator[Change]:
    """``total += x``, whose target is read without being written as an expression."""
    for frame in problem.frames(edge.used):
        statement = frame.statement
        if isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) in {h.path for h in edge.holders}:
            target = frame.code.text(statement.target)
            yield frame.code, frame.code.insert_before(statement, f"{target} = {target}.detach()")
            return


# ---- the sum that is kept for show -----------------------------------------------------------------------------------


def _summed(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """``total += loss; total.backward()``: the loss goes back, the sum keeps its values."""
    for edge in edges:
        for frame in problem.frames(edge.used):
            paths = {h.path for h in edge.holders} | {f"self.{h.path}" for h in edge.holders}
            sum_and_term = added(frame.statement)
            if sum_and_term is None or (total := ast.unparse(sum_and_term[0])) not in paths:
                continue
            code, value = frame.code, sum_and_term[1]
            need = next((f for f in problem.frames(problem.need_stack) if f.code is code), None)
            one_loop = need is not None and loops(code, frame.statement) == loops(code, need.statement)
            roots = _roots_named(need, total) if need is not None and one_loop else []
            if roots and isinstance(value, (ast.Name, ast.Attribute)):
                assert need is not None
                changes = [(code, code.behind(value, ".detach()"))]
                changes += [(code, code.replace(root, code.text(value))) for root in roots]
                yield from _candidates(problem, changes, "summed", _SUMMED)
                return


def _roots_named(need: Frame, total: str) -> list[ast.expr]:
    """Where the backward's statement goes back from the sum."""
    return [
        call.func.value
        for call in calls_named(need.statement, "backward")
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == total
    ]


# ---- before the loop that uses it again and again -----------------------------------------------------------------------


def _before_loop(problem: Problem, edges: Sequence[Edge]) -> list[Proposal]:
    """A value that was computed once, and is used in every iteration."""
    found = [use for edge in edges for use in uses(problem, edge)]
    held = dict.fromkeys((use.holder.path, detached(use.holder.path, use.holder.shape)) for use in found)
    if not found or not all(uses(problem, edge) for edge in edges) or any(new is None for _, new in held):
        return []
    frame = found[0].frame
    around = loops(frame.code, frame.statement)
    made = [f.statement for edge in edges for f in problem.frames(edge.made) if f.code is frame.code]
    outer = [loop for loop in around if not any(within(frame.code, loop.body, s) for s in made)]
    one_place = all(use.frame.code is frame.code and use.frame.spot.function == frame.spot.function for use in found)
    if outer and one_place and (len(found) > 1 or len(held) == 1) and all("[" not in path for path, _ in held):
        line = _in_one_line([(path, str(new)) for path, new in held])
        return list(_candidates(problem, [(frame.code, frame.code.insert_before(outer[-1], line))], "once", _GIVEN))
    return []


def _where_made_once(problem: Problem, edges: Sequence[Edge]) -> list[Proposal]:
    """A value that was computed once and comes into the loop through objects, as the items of a data set do."""
    makers = [_maker(problem, edge) if _before_turns(problem, edge) else None for edge in edges]
    changes: list[Change] = []
    for edge, maker in zip(edges, makers):
        if maker is None:
            return []
        code, statement, value = maker.code, maker.statement, maker.expression
        bound = binds(statement) if value is getattr(statement, "value", None) else set()
        held = {(h.path, h.shape) for h in edge.holders if h.scope == maker.spot.function and h.path in bound}
        if held and (len(bound) > 1 or any(shape != "Tensor" for _, shape in held)):
            lines = [f"{path} = {new}" for path, shape in sorted(held) if (new := detached(path, shape)) is not None]
            changes += [(code, code.insert_after(statement, line)) for line in lines]
        elif isinstance(value, ast.expr):
            changes.append((code, code.behind(value, ".detach()")))
    return list(_candidates(problem, changes, "made once", _GIVEN))


def _maker(problem: Problem, edge: Edge) -> Frame | None:
    """The outermost call that gave a value apart from the loop; a constructor gives none."""
    made, need = problem.frames(edge.made), problem.frames(problem.need_stack)
    apart = itertools.dropwhile(
        lambda pair: None not in pair and pair[0].statement is pair[1].statement, itertools.zip_longest(made, need)
    )
    own = [maker for maker, _ in apart if maker is not None]
    given = list(itertools.takewhile(lambda frame: frame.spot.function.endswith("__init__"), own[1:]))
    return [*own[:1], *given][-1] if own else None


# ---- once the iteration is over ------------------------------------------------------------------------------------------


def _at_boundary(problem: Problem, edges: Sequence[Edge], between: bool) -> Iterator[Proposal]:
    """What the names hold is cut off behind the update, in a frame that has the names: the outermost first.

    Nobody can tell from the lines whether the event and the need were in one call of an outer loop; then only a cut in
    an inner one comes between them.
    """
    event, outermost = problem.clash.cause, True
    if event is None:
        return
    for frame in problem.frames(event.stack):
        if frame.spot is not event.stack[0] and _around_both(problem, frame):
            continue
        chosen = [h for edge in edges if (h := _visible(problem, frame, edge, carried=not between)) is not None]
        if not chosen or len({h.path for h in chosen}) > 6:
            continue
        texts = {use.holder.path: use.frame.code.text(use.node) for edge in edges for use in uses(problem, edge)}
        texts = {path: text if ast.unparse(ast.parse(text)) == path else path for path, text in texts.items()}
        held = [(texts.get(h.path, h.path), h.shape) for h in dict.fromkeys(chosen)]
        pairs = [(path, detached(path, shape)) for path, shape in held]
        if any(new is None for _, new in pairs):
            continue
        asked = _asked_for_gradients(frame)
        tensors = asked & {path for path, shape in held if shape == "Tensor"}
        pairs = [(path, f"{new}.requires_grad_()" if path in tensors else new) for path, new in pairs]
        changes, cuts_within = _lines_where_assigned(problem, frame, [(path, str(new)) for path, new in pairs])
        form = "between" if between else _boundary(held)
        again = (cuts_within or not outermost) and not between
        yield from _candidates(problem, changes, "again" if again else form, _CARRIED)
        outermost = False
    if not between:
        yield from _candidates(problem, list(_handed_to_next(problem, edges)), "boundary", _CARRIED)


def _boundary(held: Sequence[tuple[str, str]]) -> str:
    if _of_containers(shape for _, shape in held):
        return "boundary of containers"
    return "boundary of objects" if any("." in path for path, _ in held) else "boundary"


def _of_containers(shapes: Iterable[str]) -> bool:
    """Whether something is kept in what others fill, and would be created anew."""
    return any(shape.startswith(("list", "dict", "mapping", "deque")) for shape in shapes)


def _handed_to_next(problem: Problem, edges: Sequence[Edge]) -> Iterator[Change]:
    """``x = x - rate * noise`` behind the backward: what it makes of an old value, the next iteration begins with."""
    after = {(id(f.code), f.spot.function): f.statement for f in problem.frames(problem.need_stack)}
    used = {id(f.statement): f for edge in edges for f in problem.frames(edge.used)}
    for frame in used.values():
        code, statement = frame.code, frame.statement
        around, need = loops(code, statement), after.get((id(code), frame.spot.function))
        if not around or need is None or need.lineno >= statement.lineno or within(code, around[0].body, need) is None:
            continue
        for name in sorted(n for n in binds(statement) & live_in(around[0].body) if n.isidentifier()):
            asked = ".requires_grad_()" if name in _asked_for_gradients(frame) else ""
            yield code, code.insert_after(statement, f"{name} = {name}.detach(){asked}")


def _asked_for_gradients(frame: Frame) -> set[str]:
    """What the frame's code asks a gradient of: it has to require one however it is made."""
    top = frame.code.function(frame.statement) or frame.code.tree
    given = [k.value for call in calls_named(top, "grad", "backward") for k in call.keywords if k.arg == "inputs"]
    given += [call.args[1] for call in calls_named(top, "grad") if len(call.args) > 1]
    read = [n.value for n in ast.walk(top) if isinstance(n, ast.Attribute) and n.attr == "grad"]
    items = [e for one in given for e in (one.elts if isinstance(one, (ast.Tuple, ast.List)) else [one])]
    return {ast.unparse(one) for one in (*items, *read)}


def _around_both(problem: Problem, frame: Frame) -> bool:
    """Whether the frame's call, made once, has both the event and the need in it: what stands behind it is too late."""
    needed = any(other.statement is frame.statement for other in problem.frames(problem.need_stack))
    return needed and not loops(frame.code, frame.statement)


def _lines_where_assigned(problem: Problem, frame: Frame, pairs: list[tuple[str, str]]) -> tuple[list[Change], bool]:
    """``h, c = h.detach(), c.detach()`` behind the update; a name that only a branch assigns is cut there.

    With them, whether that cuts what the same iteration still reads.
    """
    code, together, changes, within = frame.code, [], [], False
    for path, new in pairs:
        follow = assignments_to_follow(problem, frame, path)
        if follow is None:
            return [], False
        within = within or read_on(frame, path, follow)
        changes += [(code, code.insert_after(one, f"{path} = {new}")) for one in follow]
        given = None if follow else _handed_on(frame, path, new)
        changes += [] if given is None else [(code, given)]
        together += [] if follow or given is not None else [(path, new)]
    if together:
        line = _in_one_line(together)
        lines = [line] if len(line) <= 90 else [_in_one_line([pair]) for pair in together]
        changes.append((code, code.insert_after(_last_use(frame, [path for path, _ in together]), *lines)))
    return changes, within


def _handed_on(frame: Frame, path: str, new: str) -> Edit | None:
    """``previous = now`` behind the update, as ``previous = now.detach()``."""
    end, code = end_of_update(frame), frame.code
    block = code.block(end)
    pairs = [pair for s in block[block.index(end) + 1 :] for pair in handed_on(s)]
    given = [value for target, value in pairs if code.text(target) == path]
    plain = given and isinstance(given[-1], (ast.Name, ast.Attribute)) and new.startswith(f"{path}.detach()")
    return code.behind(given[-1], new.removeprefix(path)) if plain else None


def _last_use(frame: Frame, paths: Sequence[str]) -> ast.stmt:
    """The end of the update, and of what binds the names anew or reads the gradients of what they hold: a tensor without
    history has none."""
    end = end_of_update(frame)
    block = frame.code.block(end)
    gradients = {f"{path}.grad" for path in paths}

    def concerns(statement: ast.stmt) -> bool:
        read = (ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Attribute))
        return bool(binds(statement) & set(paths)) or any(text in gradients for text in read)

    return [end, *filter(concerns, block[block.index(end) + 1 :])][-1]


def _in_one_line(pairs: Sequence[tuple[str, str]]) -> str:
    """``h, c = h.detach(), c.detach()``"""
    return f"{', '.join(path for path, _ in pairs)} = {', '.join(new for _, new in pairs)}"


def _visible(problem: Problem, frame: Frame, edge: Edge, carried: bool) -> Holder | None:
    """The holder of an edge that the frame's function can set: one that is read where the value is used, else any.

    ``carried``: into another iteration, which a name that each iteration binds anew does not do.
    """
    holders = edge.holders or bound_by(problem, edge, frame)
    mine = [h for h in holders if _settable(frame, h) and "[...]" not in h.path]
    found = uses(problem, edge)
    read = {use.holder for use in found}
    exact = {use.holder for use in found if ast.unparse(use.node) == use.holder.path}
    writable = [h for h in mine if detached(h.path, h.shape) is not None]

    def order(holder: Holder) -> tuple[bool, bool, bool, bool, int]:
        item, own = "[" in holder.path, holder.scope == frame.spot.function
        return (
            carried and own and bound_anew(frame.code, frame.statement, holder.path),
            holder not in exact,
            holder not in read and not (found and not item),
            item,
            len(holder.path),
        )

    own = [h for h in writable if h.scope == frame.spot.function]
    return min(own or writable, key=order, default=None)


def _settable(frame: Frame, holder: Holder) -> bool:
    """A name of the frame's function, or an attribute of an object that it reads under a name from around it."""
    if holder.scope == frame.spot.function:
        return True
    function, name = frame.code.function(frame.node), holder.path.partition(".")[0]
    if function is None or holder.scope.startswith("class ") or name == holder.path or "[" in holder.path:
        return False
    read = any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(function))
    return read and is_named(frame, holder)


# ---- where it is kept ------------------------------------------------------------------------------------------------


def _at_stores(problem: Problem, edges: Sequence[Edge]) -> Iterator[Proposal]:
    """What is put into a container, or an attribute, goes there without its history."""
    holders = {h for edge in edges for h in edge.holders}
    containers = {(h.scope, h.path.partition("[")[0]) for h in holders if h.shape != "Tensor" or "[" in h.path}
    filled = {
        (h.scope, h.path)
        for edge in edges
        for h in edge.holders
        if any(_put(f.statement, {(h.scope, h.path)}) is not None for f in problem.frames(edge.used))
    }
    attributes = {h.path for h in holders if h.scope.startswith("class ") and h.shape == "Tensor" and "[" not in h.path}
    nodes = [(code, node) for code in problem.codes() for node in ast.walk(code.tree)]
    for form, kept in ("put", containers), ("put into a tensor", filled - containers):
        values = [(code, node, found) for code, node in nodes if (found := _put(node, kept)) is not None]
        changes = [
            change
            for code, node, (value, path) in values
            for change in _without_history(problem, code, node, value, _items_held(holders, path))
        ]
        yield from _candidates(problem, changes, form, _CARRIED)
    given = [(code, value) for code, node in nodes if (value := _set(code, node, attributes)) is not None]
    sets = [(code, code.behind(value, ".detach()")) for code, value in given]
    yield from _candidates(problem, sets or list(_set_together(problem, edges)), "set", _CARRIED)


def _put(node: ast.AST, containers: set[tuple[str, str]]) -> tuple[ast.expr, str] | None:
    """What ``bank.append(z)`` or ``bank[k] = z`` puts into one of the containers, or tensors, and the path of that one."""
    into: ast.expr | None = None
    value: ast.expr | None = None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        into = node.value.func.value
        value = node.value.args[-1] if node.value.args and node.value.func.attr not in ("remove", "pop") else None
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        into, value = node.targets[0], node.value
    while isinstance(into, ast.Subscript):
        into = into.value
    text = ast.unparse(into) if into is not None and not isinstance(value, ast.Constant) else ""
    own = text.partition(".")[2]
    into_one = (path for scope, path in containers if (own if scope.startswith("class ") else text) == path)
    path = next(into_one, None)
    return None if value is None or path is None else (value, path)


def _items_held(holders: Iterable[Holder], container: str) -> set[str]:
    """Where in what a container keeps a history was: ``{"[0]"}`` if ``memory[3][0]`` held one, ``{".state"}``."""
    item = re.compile(rf"(?:.*\.)?{re.escape(container)}\[[^]]*\](\[[^]]*\]|\.\w+)")
    return {match[1] for holder in holders if (match := item.match(holder.path))}


def _without_history(problem: Problem, code: Code, node: ast.AST, value: ast.expr, items: set[str]) -> list[Change]:
    """``items``: which parts of a value that has some hold a history, where that is known."""
    parts = [(key, c, part) for key, c, part in _parts(problem, code, value) if not isinstance(part, ast.Constant)]
    held = [(c, part) for key, c, part in parts if key in items]
    if held or isinstance(value, (ast.Tuple, ast.List)):
        return [(c, c.behind(part, ".detach()")) for c, part in held or [(c, part) for _, c, part in parts]]
    if isinstance(node, ast.Expr) and called_name(node.value).startswith("extend"):
        return [(code, code.replace(value, f"[m.detach() for m in {code.text(value)}]"))]
    return [(code, code.behind(value, ".detach()"))]


def _parts(problem: Problem, code: Code, value: ast.expr) -> Iterator[tuple[str, Code, ast.expr]]:
    """``(s, r)``, ``{"s": s}``, ``Step(s, reward=r)``: the expressions in it, each with the way to what it becomes.

    Those of ``Step(*args)`` are what the function that got ``*args`` is called with.
    """
    if isinstance(value, ast.Dict):
        yield from ((f"[{ast.unparse(key)}]", code, part) for key, part in zip(value.keys, value.values) if key)
    given = value.elts if isinstance(value, (ast.Tuple, ast.List)) else getattr(value, "args", [])
    function = code.function(value)
    for i, part in enumerate(given):
        if not isinstance(part, ast.Starred):
            yield f"[{i}]", code, part
        elif (
            isinstance(function, Function)
            and function.args.vararg
            and ast.unparse(part.value) == function.args.vararg.arg
        ):
            calls = ((c, call) for c in problem.codes() for call in calls_named(c.tree, function.name))
            yield from ((f"[{i + j}]", c, one) for c, call in calls for j, one in enumerate(call.args))
            return
    yield from ((f".{keyword.arg}", code, keyword.value) for keyword in getattr(value, "keywords", []))


def _set(code: Code, node: ast.AST, attributes: set[str]) -> ast.expr | None:
    """What a method sets an attribute to; a constructor too, where the value is made from something."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or isinstance(node.value, ast.Constant):
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.attr not in attributes:
        return None
    return node.value if isinstance(code.function(node), Function) else None


def _set_together(problem: Problem, edges: Sequence[Edge]) -> Iterator[Change]:
    """``out, self.state = self.lstm(x, self.state)``: what is set together with others, or is itself several tensors."""
    kept = {
        h.path: h.shape for edge in edges for h in edge.holders if h.scope.startswith("class ") and "[" not in h.path
    }
    made = {id(f.statement): f for edge in edges for f in problem.frames(edge.made)}
    for frame in made.values():
        code, statement = frame.code, frame.statement
        targets = statement.targets[0] if isinstance(statement, ast.Assign) else None
        for target in targets.elts if isinstance(targets, (ast.Tuple, ast.List)) else [targets]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.attr in kept:
                path = code.text(target)
                if (new := detached(path, kept[target.attr])) is not None:
                    yield code, code.insert_after(statement, f"{path} = {new}")


# ---- candidates ------------------------------------------------------------------------------------------------------


def _candidates(problem: Problem, changes: Sequence[Change], form: str, why: str) -> Iterator[Proposal]:
    if not changes:
        return
    code, first = changes[0]
    event = problem.clash.cause
    backwards = problem.frames((*(event.stack if event is not None else ()), *problem.need_stack))
    for texts in freeing(changes, backwards):
        yield Proposal(_line_at(texts[code.cell.number], first), why, f"detach: {form}", texts)


def _line_at(text: str, edit: Edit) -> str:
    """The new line, as a title."""
    inserted = edit.text.strip("; \r\n\t") if edit.start == edit.end or "\n" in edit.text else ""
    if inserted:
        return inserted.splitlines()[0].strip()
    start = text.rfind("\n", 0, edit.start) + 1
    end = text.find("\n", edit.start + 1)
    return text[start : end if end >= 0 else len(text)].strip()
