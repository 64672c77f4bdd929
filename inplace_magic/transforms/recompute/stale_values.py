"""What was overwritten or used up is computed again ahead of the backward that needs it, by the statements that made it.

u = net(x)                                u = net(x)
def closure():                            def closure():
    loss = criterion(u)                       u = net(x)
    loss.backward()                           loss = criterion(u)
    return loss                               loss.backward()
                                              return loss

self.prior = Normal(self.loc, scale)      # again in the method that reads it

d = D(g)                                  d = D(g)
lossD(d).backward(); optimD.step()        lossD(d).backward(); optimD.step()
                                          d = D(g)
lossG(g, d).backward()                    lossG(g, d).backward()

loss = 0                                  for epoch in range(9):
for x in xs:                                  loss = 0
    loss += net(x).mean()                     for x in xs:
for epoch in range(9):                            loss += net(x).mean()
    loss.backward()                           loss.backward()

A slice that nothing else reads is moved, unless its names would be gone from the session; else it is repeated.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...message import message
from ...record.evidence import Edge
from ...source.bindings import bound
from ...source.blocks import loops, own_statements, scope, upwards
from ...source.cell_flow import changed_from_before
from ...source.dataflow import (
    binds,
    calls,
    calls_named,
    graph_reads,
    key_of,
    live_in,
    of_head,
    reads,
    rebinds,
    root_of,
    simple,
    slice_of,
)
from ...source.editor import Code, Edit, Function
from ...source.lift import lift
from ...source.names import declared, first_name, own_names, renamed
from ..analysis.backward_calls import freeing
from ..analysis.meetings import (
    goes_through_update,
    headline,
    kept_for_later_loss,
    sent_back_again,
    standing_in,
    updates_weights,
)
from ..analysis.moving import may_pass
from ..problem import Problem
from ..proposal import Proposal
from ..registry import register
from .places import Target, happened, targets
from .slices import MOST, Slice, called_so, kept_by_method, of_itself, slices

_LEAVING = (ast.Continue, ast.Break, ast.Return, ast.Raise)
_ANEW, _FROM_VALUES = message("why_graphs_of_their_own"), message("why_later_loss_as_given")


@register("modified", "second_backward", "silent")
def recompute(problem: Problem) -> Iterator[Proposal]:
    again = sent_back_again(problem)
    if problem.family == "silent" and not again:
        return
    found = problem.crossing
    # Each backward is for the values of then; a later loss for what scores it by then, if it has not been made yet.
    later = kept_for_later_loss(problem)
    meant = problem.family == "silent" or (later and not any(edge.term for edge in found.over))
    innermost = True
    for made in slices(problem, found):
        made = _from_leaves(problem, made) if again else made
        places = (one for one in targets(problem, found.over, made) if not _gone_through(made, one))
        target = next(places, None) if innermost or not made.names else None
        if target is not None and (
            _stands_there(made, target) or _made_by_then(problem, made, target) or _changed_meanwhile(problem, made)
        ):
            continue
        if target is not None and (updates_weights(problem) if target.between else made.names):
            for proposal in _candidates(problem, _as_far_as_read(made, found.over, target), target, later):
                innermost = False
                yield replace(proposal, meant=meant)


def _from_leaves(problem: Problem, made: Slice) -> Slice:
    """The slice with the statements ahead of it by which its values come from leaves: what these gave would be that of the
    first weights in every iteration. Also with those of other cells, as far as what it reads is no function's own.
    """
    leaves = {first_name(leaf) for one in problem.evidence.passes for leaf in one.leaves}
    code, function = made.code, made.code.function(made.statements[0])
    last = code.cell.number if function is None else problem.cell
    others = [(one, s) for one in problem.codes() if one.cell.number < last for s in reversed(one.tree.body)][::-1]
    here = code.preceding(made.statements[0])
    own, made_of = slice_of(here, reads(*made.statements))
    around, _ = slice_of([s for _, s in others], made_of - (own_names(function) if function is not None else set()))
    more: list[tuple[Code, ast.stmt]] = []
    for one, s in [*others, *((code, s) for s in here)]:
        computed = isinstance(s, ast.Assign) and isinstance(s.value, (ast.Call, ast.BinOp)) and s in (*around, *own)
        come = reads(s) & (leaves | binds(*(other for _, other in more)))
        if computed and come and not binds(s) & leaves and not calls_named(s, "parameters"):
            more.append((one, s))
    ahead = tuple((one, s) for one, s in more if s in around)
    return replace(made, statements=[*(s for _, s in more if s in own), *made.statements], ahead=ahead)


def _made_by_then(problem: Problem, made: Slice, target: Target) -> bool:
    """Whether the call that made the values, where something else keeps them, stands between the target and the backward."""
    if made.call is None or not made.through:
        return False
    turn, called = target.code.block(target.front), ast.unparse(made.call.func)
    need = next(iter(standing_in(target.code, turn, problem.needed)), turn[-1])
    ahead = turn[turn.index(target.front) : turn.index(need) + 1]
    return any(ast.unparse(call.func) == called for s in ahead for call in calls(s))


def _stands_there(made: Slice, target: Target) -> bool:
    """Whether the target compares the kept value with the same, computed anew: ``(self.w.norm() - self.norm_at_first) ** 2``.
    The two would be one number, whose difference trains nothing.
    """
    kept = {(name, ast.unparse(s.value)) for s in made.statements if isinstance(s, ast.Assign) for name in binds(s)}
    joined = (node for node in ast.walk(target.front) if isinstance(node, (ast.BinOp, ast.Call)))
    beside = [{ast.unparse(one) for one in ast.iter_child_nodes(node)} for node in joined]
    return any({*pair} <= operands for operands in beside for pair in kept)


def _changed_meanwhile(problem: Problem, made: Slice) -> bool:
    """Whether a cell between has changed what the slice made: ``m -= m.mean()``. Computed again, it would be without that."""
    if made.function != "<module>":
        return False
    between = (code for code in problem.codes() if made.code.cell.number < code.cell.number < problem.cell)
    names = binds(*made.statements) | made.through
    return any(changed_from_before(code.cell) & names for code in between)


def _gone_through(made: Slice, target: Target) -> bool:
    """Whether a loop around the target goes through what is made, and would go on through what it was."""
    around = loops(target.code, target.front)
    return target.code is made.code and any(
        isinstance(o, ast.For) and _read_at_once(o.iter) & made.names for o in around
    )


def _read_at_once(node: ast.AST) -> set[str]:
    """What an expression reads when it is evaluated: not what a lambda in it will."""
    if not any(isinstance(one, ast.Lambda) for one in ast.walk(node)):
        return reads(node)
    inner = [node.args] if isinstance(node, ast.Lambda) else ast.iter_child_nodes(node)  # its defaults
    return set[str]().union(*map(_read_at_once, inner))


def _as_far_as_read(made: Slice, edges: Sequence[Edge], target: Target) -> Slice:
    """The slice without what nothing reads where it is computed again: ``samples`` beside the distribution they are of."""
    passing = [h for edge in edges for h in edge.holders if h.scope == made.function and target.between]
    wanted = {h.path.partition("[")[0] for h in passing}
    wanted = wanted or reads(target.front, *target.code.following(target.front))
    wanted |= {called_so(name, *made.owner[::-1]) for name in wanted}
    kept: list[ast.stmt] = []
    for statement in reversed(made.statements):
        called = made.call is not None and made.code.statement(made.call) is statement
        given = binds(statement) | kept_by_method(made.code, statement)
        if given & wanted or isinstance(statement, ast.Expr) or called:
            wanted |= reads(statement)
            kept.insert(0, statement)
    return replace(made, statements=kept or made.statements)


def _candidates(problem: Problem, made: Slice, target: Target, later: bool) -> Iterator[Proposal]:
    code, backwards = made.code, problem.needed[-1:]
    if not made.without and not _read_elsewhere(problem, made, target):
        lifted = lift(code, made.statements, _renamed(problem, made, target))
        lines = [*made.lines_ahead, *lifted.lines]
        title = _title(lines)
        events = [headline(code, s) for s in happened(problem, made) if target.between and simple(s)]
        title = message("title_after", what=title, other=events[0]) if events else title
        in_order = target.between and goes_through_update(problem) and _may_move(problem, made, target)
        form = "recompute: in order" if in_order else "recompute: moved"
        for edits in freeing([target.insert(lines), *((code, edit) for edit in lifted.edits)], backwards):
            yield Proposal(title, _ANEW, form, edits)
        return
    if sum(1 + len(getattr(s, "body", ())) for s in made.statements) + len(made.ahead) - len(made.without) > MOST:
        return
    form = "recompute: again"
    if target.between:
        form = "recompute: of a kept graph" if later else "recompute: between"
    for lines, cut, why in _copies(problem, made, target):
        title = _title(lines)
        if target.between:
            title = message("title_again_after_step" if problem.family == "modified" else "title_again", what=title)
        for edits in freeing([target.insert(lines), *((code, edit) for edit in cut)], backwards):
            yield Proposal(title, why, form, edits, lessens=why is _FROM_VALUES)


def _may_move(problem: Problem, made: Slice, target: Target) -> bool:
    """Whether the slice, computed ahead of the target, gives what it would have given where it stood, but for the event."""
    behind = [s for s in made.code.following(made.statements[0]) if s not in made.statements]
    passed = [s for s in behind if (s.end_lineno or s.lineno) < target.front.lineno]
    return may_pass(made.code, made.statements, passed, next(iter(happened(problem, made)), None))


def _renamed(problem: Problem, made: Slice, target: Target) -> list[Edit]:
    """Other names for what the slice's own loops count with, where a loop around the target counts with it as well."""
    inner = _counts(s for s in made.statements if isinstance(s, ast.For))
    outer = _counts(loops(target.code, target.front))
    new = {name: problem.unused(name, target.code, target.front) for name in inner & outer}
    return renamed(made.code, made.statements, new)


def _counts(around: Iterable[ast.stmt]) -> set[str]:
    """The names by which loops count: what a ``for`` binds, what a ``while`` looks at."""
    heads = [head for loop in around for head in (*of_head(loop), getattr(loop, "test", None)) if head is not None]
    return {node.id for head in heads for node in ast.walk(head) if isinstance(node, ast.Name)}


def _copies(problem: Problem, made: Slice, target: Target) -> Iterator[tuple[list[str], list[Edit], str]]:
    """What to repeat, what is cut where it stood, and why.

    Where a graph was used up, the slice is cut apart for the earlier loss, so that its backward leaves the first part
    alone: ``d = D(g.detach())``. Where a step came between, the later parts may take what is made ahead as given.
    """
    code, statements, between = made.code, made.statements, target.between
    function = code.function(statements[0])
    renamed = _renamed(problem, made, target)
    parts = [(statements[:n], statements[n:]) for n in range(1, len(statements))]
    taken = [(rest, graph_reads(code, rest, binds(*first))) for first, rest in parts]
    cuts: list[tuple[list[ast.stmt], list[ast.Name | ast.Attribute]]] = []
    if problem.clash.kind == "second_backward" and between:
        first_reads = _read_first(made, target)
        cuts = [(rest, [n for n in nodes if binds(code.statement(n)) & first_reads]) for rest, nodes in taken][::-1]
        cuts.append((statements, [*dict.fromkeys(n for _, cut in cuts[::-1] for n in cut)]))
    elif problem.clash.kind == "second_backward" and function not in (None, *target.code.parents(target.front)):
        cuts = taken[::-1]  # in a function that knows no locals of the slice's own
    for repeated, cut in cuts:
        if cut and not _unknown(made, target, repeated) and not of_itself(repeated):
            yield made.lines(repeated, renamed), [code.behind(node, ".detach()") for node in cut], _ANEW
    of_slice, of_need = _under_other_names(problem, made, target) if between else ([], [])
    if of_slice:
        yield made.lines(statements, [*renamed, *of_slice]), of_need, _ANEW
    unknown = _unknown(made, target, statements)
    read_off = _kept_by_object(made, unknown) if unknown else ([], [])
    if read_off is not None:
        given, keeping = read_off
        if made.through and made.call is not None:
            yield made.lines(statements, [*renamed, *given], alone=True), keeping, _ANEW
        yield made.lines(statements, [*renamed, *given]), keeping, _ANEW
    for rest, nodes in taken if between and problem.clash.kind == "modified" else ():
        if nodes and not of_itself(rest):
            yield made.lines(rest, [code.behind(node, ".detach()") for node in nodes]), [], _FROM_VALUES


def _unknown(made: Slice, target: Target, repeated: Sequence[ast.stmt]) -> set[str]:
    """What the statements read that has no name where they are repeated: it is local to the function that made it."""
    function = made.code.function(made.statements[0])
    return set() if function is None else live_in(repeated) & own_names(function) - target.known - {made.owner[0]}


def _kept_by_object(made: Slice, local: set[str]) -> tuple[list[Edit], list[Edit]] | None:
    """The edits by which what is local to a method is read off the object, ``self.size`` for ``size``, and those by which a
    constructor keeps it, where it does not do so yet. None where the object keeps, or another method gives it, others by
    these names.
    """
    code, statements = made.code, made.statements
    method = scope(code, statements[0])
    computed = "self" in live_in(statements) and (made.kept or all(isinstance(s, ast.Assign) for s in statements))
    if not computed or not isinstance(method, ast.FunctionDef):
        return None  # what is made of nothing of its own is a part, with weights of its own
    body = [*own_statements(code, method)]
    pairs = (pair for s in body if s not in statements for pair in bound(code, s))
    kept = {ast.unparse(value): name for name, value in pairs if value is not None and name.startswith("self.")}
    added = sorted(local - kept.keys())
    if local & kept.keys() & rebinds(*body) or {f"self.{name}" for name in added} & binds(*body):
        return None
    if method.name != "__init__" and (added or not _are_kept(code, method, [kept[name] for name in local])):
        return None  # another method may give the object others
    owner = made.owner[1] or "self"
    there = {name: f"{owner}.{kept.get(name, f'self.{name}').partition('.')[2]}" for name in local}
    keeping = [code.insert_before(statements[0], *(f"self.{name} = {name}" for name in added))] if added else []
    return renamed(code, statements, there), keeping


def _are_kept(code: Code, method: ast.FunctionDef, names: Iterable[str]) -> bool:
    """Whether one line alone, in a method, gives an object these attributes."""
    around = code.parent(method)
    given = [binds(s) for s in ast.walk(around) if isinstance(s, ast.stmt) and simple(s)] if around is not None else []
    return all(sum(name in one for one in given) == 1 for name in names)


def _under_other_names(problem: Problem, made: Slice, target: Target) -> tuple[list[Edit], list[Edit]]:
    """The edits by which a slice gives other names to what is read on behind the backward, where the old values stay, and by
    which the backward's own statements read those. A loss that is sent back is read on as it was sent back.
    """
    code, block = made.code, made.code.block(target.front)
    need = next(iter(standing_in(code, block, problem.needed)), None)
    if need is None:
        return [], []
    passed = block[block.index(target.front) : block.index(need) + 1]
    behind = [s for s in own_statements(code, scope(code, need)) if s.lineno > (need.end_lineno or need.lineno)]
    kept = made.names & reads(*behind) - {key_of(root_of(need) or need)}
    read = reads(*passed, *made.statements)
    new = {name: problem.unused(name, code, target.front) if name in read else "_" for name in kept}
    return renamed(code, made.statements, new), renamed(code, passed, new)


def _read_first(made: Slice, target: Target) -> set[str]:
    """What the statements ahead of the target read, by way of those of the slice."""
    block = made.code.block(made.statements[0])
    others = [s for s in block if s.lineno < target.front.lineno and s not in made.statements]
    used, _ = slice_of(made.statements, reads(*others))
    return reads(*others, *used)


def _title(lines: Sequence[str]) -> str:
    lines = [line for line in lines if not line.startswith("#")]
    return "; ".join(lines) if len(lines) < 3 else f"{lines[0]} … {lines[-1].strip()}"


def _read_on_the_way(problem: Problem, made: Slice, front: ast.stmt) -> bool:
    """Whether what the slice makes is read ahead of a statement of its own block, by what stands there or by a function that may
    be called there; or whether an iteration, or a function, may end there.
    """
    names, home, block = made.names, made.code.function(made.statements[0]), made.code.block(front)
    ahead = [s for s in block[block.index(made.statements[0]) : block.index(front)] if s not in made.statements]
    local = home is not None and not names & declared(home)
    inner = ast.walk(home) if home is not None and local else (n for _, n in problem.nodes(ast.AST))
    functions = [n for n in inner if isinstance(n, (*Function, ast.Lambda)) and n is not home]
    leaving = any(isinstance(n, _LEAVING) for s in ahead for n in ast.walk(s))
    return leaving or any((reads(n) - own_names(n)) & names for n in functions) or bool(reads(*ahead) & names)


def _read_elsewhere(problem: Problem, made: Slice, target: Target) -> bool:
    """Whether something but the statements from the target on reads what the slice makes.

    A name of the session is read by whoever works in it, and by what has another block around it.
    """
    code, front, names, home = target.code, target.front, made.names, made.code.function(made.statements[0])
    if made.through and binds(*made.statements):
        return True
    if code is not made.code or not names or any("." in name for name in names):
        return True
    if home is None and code.function(front) is not None:
        return True
    if front in code.block(made.statements[0]):  # who reads it behind the target finds it bound there
        return _read_on_the_way(problem, made, front)
    around = loops(code, front, without=made.statements)[-1:]
    inside = itertools.takewhile(lambda s: s not in around, upwards(code, front))
    rest = [s for one in inside for s in code.following(one)] if around else code.following(front)
    own = {id(n) for s in [*made.statements, front, *rest] for n in ast.walk(s)}
    nodes = ast.walk(home) if home is not None else (n for _, n in problem.nodes(ast.Name))
    read = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in own)
    return any(n.id in names for n in read)
