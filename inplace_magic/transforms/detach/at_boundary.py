"""What an iteration hands on to the next one is cut off once its update is over.

loss.backward()                           loss.backward()
optimizer.step()                          optimizer.step()
                                          memory["h"] = memory["h"].detach()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ...record.evidence import Edge, Holder
from ...source.bindings import bound, bound_anew, later, reads
from ...source.blocks import loops
from ...source.dataflow import binds, handed_on, live_in
from ...source.editor import Edit, Function
from ...source.names import declared, own_names
from ..analysis.backward_calls import asked_for_gradients, asks_for_gradients
from ..analysis.collected import collected, is_list
from ..analysis.iterations import iterations
from ..analysis.meetings import around_both, meeting
from ..analysis.placement import assignments_to_follow, end_of_update, read_on
from ..analysis.points import bound_by, by_attribute, detached, uses
from ..problem import Frame, Problem
from ..proposal import Change, Proposal
from .candidates import CARRIED, boundary, candidates, in_one_line

_LEAF, _EMPTY = ".detach().requires_grad_()", "[]"


def at_boundary(problem: Problem, edges: Sequence[Edge], between: bool) -> Iterator[Proposal]:
    """What the names hold is cut off behind the update, in a frame that has the names: the outermost first.

    Nobody can tell from the lines whether the event and the need were in one call of an outer loop; then only a cut in
    an inner one comes between them.
    """
    outermost = True
    for frame in problem.lost:
        if frame is not problem.lost[-1] and around_both(problem, frame):  # what stands behind it is too late
            continue
        chosen = [h for edge in edges if (h := _visible(problem, frame, edge, carried=not between)) is not None]
        if not chosen:
            continue
        held = [(_as_written(frame, h.path), h.shape) for h in dict.fromkeys(chosen)]
        for cut in _cuts(problem, frame, held):
            changes, cuts_within = _lines_where_assigned(problem, frame, cut)
            begins = frozenset(path for path, new in cut.items() if new == _EMPTY)
            form = "between" if between else boundary([pair for pair in held if pair[0] not in begins])
            again = (cuts_within or not outermost) and not between
            for one in candidates(problem, changes, "again" if again else form, CARRIED):
                yield replace(one, begins=begins)
        outermost = False
    if not between:
        yield from candidates(problem, list(_handed_to_next(problem, edges)), "boundary", CARRIED)


def _cuts(problem: Problem, frame: Frame, held: Sequence[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """What each name is given: lists that are used up begin anew; what a gradient is asked of goes on to require one."""
    asked = asked_for_gradients(frame) & {path for path, shape in held if shape == "Tensor"}
    cut = {path: f"{path}{_LEAF}" if path in asked else str(detached(path, shape)) for path, shape in held}
    collecting = [collected(problem, turn) for turn in iterations(problem) if turn.frame == frame]
    used_up = {path for lists, begin in collecting if begin for path in lists & cut.keys()}
    used_up &= {path for path, shape in held if is_list(shape)}
    if used_up and used_up < cut.keys():
        yield cut | dict.fromkeys(used_up, _EMPTY)
    yield cut
    if not asked and asks_for_gradients(problem):
        yield {path: text.replace(".detach()", _LEAF) for path, text in cut.items()}


def _as_written(frame: Frame, path: str) -> str:
    """The path as the code around has it: with its own quotes, or as an attribute."""
    as_attribute, nodes = by_attribute(path), ast.walk(frame.code.tree) if "[" in path else ()
    paths = (node for node in nodes if isinstance(node, (ast.Subscript, ast.Attribute)))
    return next((frame.code.text(n) for n in paths if by_attribute(ast.unparse(n)) == as_attribute), path)


def _handed_to_next(problem: Problem, edges: Sequence[Edge]) -> Iterator[Change]:
    """``x = x - rate * noise`` behind the backward: what it makes of an old value, the next iteration begins with."""
    after = {(id(f.code), f.spot.function): f.statement.lineno for f in problem.needed}
    used = {f.statement: f for edge in edges for f in problem.frames(edge.used)}
    for statement, frame in used.items():
        code, around = frame.code, loops(frame.code, statement)
        if around and after.get((id(code), frame.spot.function), statement.lineno) < statement.lineno:
            for name in sorted(binds(statement) & live_in(around[0].body)):
                asked = ".requires_grad_()" if name in asked_for_gradients(frame) else ""
                yield code, code.insert_after(statement, f"{name} = {name}.detach(){asked}")


def _lines_where_assigned(problem: Problem, frame: Frame, cut: Mapping[str, str]) -> tuple[list[Change], bool]:
    """``h, c = h.detach(), c.detach()`` behind the update; a name that only a branch assigns is cut there.

    With them, whether that cuts what the same iteration still reads.
    """
    code, together = frame.code, dict[str, str]()
    edits: list[Edit] = []
    within = False
    for path, new in cut.items():
        follow = assignments_to_follow(problem, frame, path)
        if follow is None:
            return [], False
        within = within or read_on(frame, path, follow)
        given = None if follow else _handed_on(frame, path, new)
        if given is not None:
            edits.append(given)
        elif follow:
            edits += [code.insert_after(one, f"{path} = {new}") for one in follow]
        else:
            together[path] = new
    if together:
        line = in_one_line(together)
        lines = [line] if len(line) <= 90 else [in_one_line({path: new}) for path, new in together.items()]
        edits.append(code.insert_after(_last_use(problem, frame, together), *lines))
    return [(code, edit) for edit in edits], within


def _handed_on(frame: Frame, path: str, new: str) -> Edit | None:
    """``previous = now`` behind the update, as ``previous = now.detach()``."""
    code, behind = frame.code, frame.code.following(end_of_update(frame))
    given = [value for s in behind for target, value in handed_on(s) if code.text(target) == path][-1:]
    plain = new.startswith(f"{path}.detach()")
    named = [value for value in given if plain and isinstance(value, (ast.Name, ast.Attribute))]
    return code.behind(named[0], new.removeprefix(path)) if named else None


def _last_use(problem: Problem, frame: Frame, paths: Collection[str]) -> ast.stmt:
    """The end of the update, and of what binds the names anew or reads the gradients of what they hold: a tensor without
    history has none. A loop that updates one leaf after the other is one update."""
    end = end_of_update(frame)
    needed = [other.statement for other in problem.needed if other.code is frame.code]
    if meeting(problem) is not None:
        end = [end, *loops(frame.code, end, without=needed)][-1]
    gradients = {f"{path}.grad" for path in paths}

    def concerns(statement: ast.stmt) -> bool:
        inner = [s for s in ast.walk(statement) if isinstance(s, ast.stmt)] if isinstance(statement, ast.If) else []
        given = (pair for s in inner for pair in bound(frame.code, s))
        if any(isinstance(value, ast.Constant) and name in paths for name, value in given):
            return False  # from there on it may hold nothing
        read = (ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Attribute))
        return bool(binds(statement) & set(paths)) or any(text in gradients for text in read)

    return [end, *filter(concerns, frame.code.following(end))][-1]


def _visible(problem: Problem, frame: Frame, edge: Edge, carried: bool) -> Holder | None:
    """The holder of an edge that the frame's function can set: one that is read so where the value is used, else any.

    ``carried``: into another iteration, which a name that each iteration binds anew does not do.
    """
    holders = edge.holders or bound_by(problem, edge, frame)
    mine = [h for h in holders if _may_set(frame, h) and not _is_private(problem, h)]
    writable = [h for h in mine if "[...]" not in h.path and detached(h.path, h.shape) is not None]
    read = {use.holder for use in uses(problem, edge) if ast.unparse(use.node) == use.holder.path}

    def order(holder: Holder) -> tuple[bool, bool, int]:
        anew = carried and bound_anew(frame.code, frame.statement, holder.path)
        return anew, holder not in read, len(holder.path)

    return min(writable, key=order, default=None)


def _may_set(frame: Frame, holder: Holder) -> bool:
    """Whether the frame's function can give the holder another value, and somebody reads that; a global that it only reads it
    can but change.
    """
    code, path = frame.code, holder.path
    function = code.function(frame.statement)
    if holder.scope != frame.spot.function:
        return False
    if function is None or not path.isidentifier() or path in declared(function):
        return True
    within = [n for n in ast.walk(function) if isinstance(n, (*Function, ast.Lambda)) and n is not function]
    return path in own_names(function) and bool(reads(code, path, [*later(code, frame.statement), *within]))


def _is_private(problem: Problem, holder: Holder) -> bool:
    """Whether a path goes through an attribute of a library's own, which no text of the user's names: ``fnet._fast_params``."""
    own = re.findall(r"\._\w+", holder.path)
    return any(not any(name in code.cell.raw for code in problem.codes()) for name in own)
