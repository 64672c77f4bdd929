"""What is computed again: the statements that made stale values.

A sum comes with its beginning, and with the loop that adds to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...record.evidence import Crossing, Holder
from ...source.blocks import upwards, within
from ...source.dataflow import (
    binds,
    called_name,
    calls_named,
    items_apart,
    key_of,
    live_in,
    reads,
    rebinds,
    simple,
    slice_of,
    sums,
)
from ...source.editor import Code, Def, Edit
from ...source.lift import as_lines
from ...source.names import declared, first_name, renamed
from ..analysis.meetings import standing_in
from ..analysis.points import uses
from ..problem import Frame, Problem, parted

MOST = 6  # statements that a person would repeat
SAME = "", ""  # the same name where it is made and where it is read
_OTHERWISE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.Await)


@dataclass(frozen=True)
class Slice:
    """Statements that created the stale values, in order, and the names that lead to them afterwards.

    ``through``: the names under which hooks, an object or a dict keep what was made, where nothing binds it: ``feats`` for
    ``model(x)``, ``task.loss`` for ``first = task.score(x)``, ``run`` for ``score(run, x)``. ``call``: where one statement at the top
    of a cell made all of it, the call in it that did.
    ``ahead``: statements of other cells, with their texts, that come before them. ``without``: what a loop among them does
    beside, and is not done again: it trains. ``owner``: what the statements call the object that keeps what they make, or what they
    make itself, and what that is called where it is read: ``self`` and ``agent`` for ``agent.alpha``, ``penalty`` and ``self.penalty``.
    """

    code: Code
    statements: list[ast.stmt]
    function: str
    through: frozenset[str] = frozenset()
    call: ast.Call | None = None
    ahead: tuple[tuple[Code, ast.stmt], ...] = ()
    without: tuple[ast.stmt, ...] = ()
    owner: tuple[str, str] = SAME

    @property
    def names(self) -> set[str]:
        made = {*self.through} or binds(*self.statements) | self.kept
        return {called_so(name, *self.owner) for name in made}

    @property
    def kept(self) -> set[str]:
        """What methods that are called keep on their object: ``self.penalty`` for ``self.add_penalty(w)``."""
        return {name for s in self.statements for name in kept_by_method(self.code, s)}

    def is_of(self, frame: Frame) -> bool:
        """Whether a frame runs the function that made the values."""
        return frame.code is self.code and frame.spot.function == self.function

    def lines(self, statements: Sequence[ast.stmt], edits: Sequence[Edit] = (), alone: bool = False) -> list[str]:
        """Their text, some edits made; where the call is made ``alone``, its statement is that call."""
        gone = [self.code.delete(s, *self.without) for s in self.without]
        if alone and self.call is not None:
            (start, end), (begin, last) = map(self.code.span, (self.code.statement(self.call), self.call))
            gone += [Edit(start, begin, ""), Edit(last, end, "")]
        own = renamed(self.code, statements, dict([self.owner]))
        kept = [one for one in (*edits, *own) if not any(cut.start <= one.start and one.end <= cut.end for cut in gone)]
        first = self.lines_ahead if [*statements[:1]] == self.statements[:1] else []
        return first + [line for s in statements for line in as_lines(self.code, s, [*kept, *gone])]

    @property
    def lines_ahead(self) -> list[str]:
        return [line for code, s in self.ahead for line in as_lines(code, s, [])]


def slices(problem: Problem, found: Crossing) -> Iterator[Slice]:
    """The stale statements, frame by frame from the innermost one that all of them share."""
    stacks = [stack for one in found.stale if (stack := problem.frames(one))]
    # What was computed for an argument of the call in which the event happened is at hand there.
    read = [name for edge in found.over for use in uses(problem, edge) if (name := key_of(use.node)) is not None]
    levels = [*_levels(problem, [stack for stack in stacks if parted(stack, problem.lost)[0]])]
    holders = [holder for edge in found.over for holder in edge.holders]
    held, of_objects = {one.path.partition("[")[0] for one in holders}, {*_of_objects(holders)}
    levels = [made for made in levels if made.call is None or not _counts_on(problem, made.call, held)]
    for made in levels:
        kept = of_objects if made.call is not None and not made.names & held else set[str]()
        yield made if made.names and not kept else replace(made, through=frozenset({*read} | kept or of_objects))
    for made in levels:
        made_by = [name.rpartition(".") for name in sorted(made.names) if "." in name]
        read_by = [name.rpartition(".") for name in read]
        owners = ((here, there) for here, _, own in made_by for there, _, other in read_by if own == other)
        yield from (replace(made, owner=pair) for pair in dict.fromkeys(owners) if pair[0] != pair[1])
        yield from (replace(made, owner=pair) for pair in dict.fromkeys(_handed_on(made, found)))


def _counts_on(problem: Problem, call: ast.Call, held: set[str]) -> bool:
    """Whether a closure that is called goes on from what names around it have, ``n += 1``, beside those that keep what it makes:
    nobody sees that it does so once more.
    """
    named = (f for code, f in problem.nodes(ast.FunctionDef) if f.name == called_name(call) and code.function(f))
    return any((declared(function) - held) & live_in(function.body) for function in named)


def _of_objects(holders: Iterable[Holder]) -> Iterator[str]:
    """``task.loss``, ``run`` for ``run["loss"]``, ``update`` for what a closure of that name finds around it: where the objects,
    the dicts and the closures of a cell keep the stale values.
    """
    for holder in holders:
        if holder.scope == "<module>" and re.fullmatch(r"\w+(\.\w+|\['[^']*'\])", holder.path):
            yield holder.path.partition("[")[0]
        elif ".<locals>." in holder.scope and holder.path.isidentifier():
            yield holder.scope.rpartition(".")[2]


def _handed_on(made: Slice, found: Crossing) -> Iterator[tuple[str, str]]:
    """The name of a value that a cell made, each with another one by which a function that uses it has it."""
    name = next(iter(made.names), "")
    for edge in found.over if made.function == "<module>" and made.names == {name} else ():
        used = {spot.function for spot in edge.used} if any(h.path == name for h in edge.holders) else set()
        for other in (h.path for h in edge.holders if h.scope in used and h.path != name):
            if key_of(ast.parse(other, mode="eval").body) == other:
                yield name, other


def called_so(name: str, here: str, there: str) -> str:
    """A name, or an attribute of what it names, as it is called elsewhere."""
    return there + name[len(here) :] if name == here or name.startswith(f"{here}.") else name


def _levels(problem: Problem, stacks: Sequence[list[Frame]]) -> Iterator[Slice]:
    """The slices of the frames that all stacks share, the innermost first."""
    stepped = {first_name(leaf) for one in problem.evidence.passes for leaf in one.stepped}
    events = (*problem.lost, *problem.needed)
    for depth in range(min((len(stack) for stack in stacks), default=0) - 1, -1, -1):
        level = [stack[depth] for stack in stacks]
        frame = max(level, key=lambda f: (f.statement.lineno, f.statement.col_offset))
        code, (last, *around) = frame.code, upwards(frame.code, frame.statement)
        block = code.block(last)
        # What runs one after the other: the block of the last one, and what stands before it in those around.
        turn = [*(s for above in around[::-1] for s in code.preceding(above)), *block]
        statements = [within(code, block, f.statement) or f.statement for f in level]  # of those in a loop, the loop
        used = standing_in(code, turn, events)
        for behind in (2,) if used else (2, len(turn)):
            chosen = _from_beginning(code, turn, _chain(turn, statements, behind, used))
            if (binds(*chosen) - items_apart(chosen, in_turn=True)) & stepped or standing_in(code, chosen, events):
                return  # what is trained would begin anew; or it is the call in which they were used up, or gone back from
            without = tuple(one for s in chosen if isinstance(s, ast.For) for one in _beside(s))
            if chosen and not of_itself(chosen) and all(_repeatable(s, without) for s in chosen):
                whole = frame.spot.function == "<module>" and chosen == [frame.statement]
                call = _outermost_call(code, level) if whole else None
                yield Slice(code, chosen, frame.spot.function, call=call, without=without)


def _outermost_call(code: Code, frames: Iterable[Frame]) -> ast.Call | None:
    """The call in which all of some frames of one statement ran, if the statement makes it just so, and once."""
    ran = [frame.expression for frame in frames]
    found = next((one for one in ran if isinstance(one, ast.Call) and {*ran} <= {*ast.walk(one)}), None)
    return None if found is None or any(isinstance(above, _OTHERWISE) for above in code.parents(found)) else found


def of_itself(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements need a value of before under a name that they give another one: they give what they gave but once."""
    own = binds(*statements)
    return bool((live_in(statements) & own) - items_apart(statements, in_turn=True))


def _chain(
    turn: list[ast.stmt], statements: Sequence[ast.stmt], behind: int, used: Collection[ast.stmt]
) -> list[ast.stmt]:
    """The statements that created the stale values, and what leads from them to the names they have, not farther ``behind``,
    nor by the calls in which they are ``used`` up, or gone back from; none if one is missing."""
    if not all(s in turn for s in statements):
        return []
    tainted: set[str] = set()
    last = max(turn.index(s) for s in statements)
    found: list[ast.stmt] = []
    for statement in turn[: last + behind]:
        stale = tainted - items_apart([*found, statement])  # of ``run["y"]`` another item knows nothing
        aliases = isinstance(statement, ast.Assign) and reads(statement.value) & stale
        if statement in statements or (aliases and statement not in used):
            tainted |= binds(statement)
            found.append(statement)
    return found


def kept_by_method(code: Code, statement: ast.stmt) -> set[str]:
    """What methods of the same class, called for that alone, keep on their object; in a loop or a branch, too."""
    function = code.function(statement)
    beside = [one for one in code.block(function) if isinstance(one, Def)] if isinstance(function, Def) else []
    found: set[str] = set()
    for inner in ast.walk(statement) if beside else ():
        match inner:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("self"), called))):
                methods = (one for one in beside if one.name == called)
                found |= {name for one in methods for name in binds(*one.body) if name.startswith("self.")}
    return found


def _from_beginning(code: Code, turn: list[ast.stmt], chosen: list[ast.stmt]) -> list[ast.stmt]:
    """The statements with those that a sum begins with, and that add to it before; where it begins ahead of a loop that
    adds to it, with the loop: ``loss = 0``, ``for w in ws: loss += ...``. A method may add to it as well.
    """
    begun = {name for s in chosen for name in sums(s) | kept_by_method(code, s)}
    before = turn[: turn.index(chosen[0])] if begun and chosen else []
    first = next((s for s in reversed(before) if rebinds(s) & begun), None)
    if first is None:
        return chosen
    block = code.block(first)
    found = [within(code, block, s) for s in chosen]
    adds = [s for s in before if (binds(s) | kept_by_method(code, s)) & begun]
    return [s for s in [first, *code.following(first)] if s in found or s in adds]


def _beside(loop: ast.For) -> list[ast.stmt]:
    """What a loop does beside what its sums are made of."""
    needed, _ = slice_of(loop.body, sums(loop))
    return [s for s in loop.body if s not in needed]


def _repeatable(statement: ast.stmt, without: Collection[ast.stmt]) -> bool:
    """A loop adds its terms to a sum. Nothing is trained once more, and no object begins anew: its parameters would."""
    if not isinstance(statement, ast.For):
        return simple(statement) and not calls_named(statement, "__init__")
    return not any(calls_named(s, "backward", "step") for s in statement.body if s not in without)
