"""A parameter is updated by hand: the update belongs outside the graph.

    w -= lr * w.grad                  with torch.no_grad():
    b -= lr * b.grad                      w -= lr * w.grad
                                          b -= lr * b.grad

    for p in model.parameters():      with torch.no_grad():
        p.add_(p.grad, alpha=-lr)         for p in model.parameters():
                                              p.add_(p.grad, alpha=-lr)

The whole loop goes into the block if updating is all that it does; an optimizer's ``step`` is decorated, as torch's own are.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from functools import partial

from ...message import message
from ...record.evidence import Write
from ...record.operations import SAMPLERS
from ...source.bindings import bindings, is_dead_store, later, parameters, reads
from ...source.blocks import own_statements, scope, upwards
from ...source.dataflow import binds, calls_named, is_number, keyword_named
from ...source.editor import Code, Function, dotted
from ...source.lift import wrapped
from ...source.lines import lines_of
from ...source.names import declared
from ..analysis.backward_calls import asked_by_call
from ..analysis.meant import goes_on_with
from ..analysis.meetings import are_stepped, is_in_update
from ..analysis.targets import (
    Site,
    applies_function,
    outside,
    puts_constant,
    reads_gradient,
    root,
    root_text,
    seen_through,
    sites,
    torch_in,
    written,
    written_by,
)
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_update_outside")
_INITIALISERS = SAMPLERS | {"fill_", "zero_", "copy_", "trunc_normal_", "set_", "resize_"}


@register("leaf", "view_of_leaf", "no_grad_view", "multi_output_view", "out_grad")
def no_grad(problem: Problem) -> Iterator[Proposal]:
    write = written(problem)
    if write is None or not _may_be_update(problem, write.event):
        return
    if applies_function(problem, write):  # a custom Function is there for its gradient
        return
    if goes_on_with(sites(problem)) and not is_in_update(problem):  # ``w = F.dropout(self.weight, inplace=True)``
        return
    statements, of_data = _block(problem, write), is_input(problem, write)
    around = {write.root_text, seen_through(write.code, write.root_text or "", write.statement)}
    if write.event.of_graph and not write.event.parameter and write.root_text in asked_by_call(write):
        return  # what a step is computed from is to get a gradient by it: ``x -= lr * g`` for an ``lr`` that is learned
    moved = _is_iterate(write) or are_stepped(problem, around)
    trained = write.event.parameter or _is_stepped(problem, write)
    handed = of_data or (trained and not is_in_update(problem))
    if not moved and (_goes_on(write, statements) or (handed and _is_given_back(problem, write, anew=not of_data))):
        return
    caller, whole = _caller_of_lambda(problem, write), _step_of_optimizer(write)
    code, first = (write.code, write.statement) if caller is None else (caller.code, caller.statement)
    named = torch_in(problem, code)
    if named is None:
        return
    torch, imported = named
    if whole is not None:
        line = f"@{torch}.no_grad()"
        edits = [code.insert_before(whole, line), *imported]
        title = f"{line} def {whole.name}"
        yield in_one_text(code, edits, title, _WHY, "no_grad: update", reading="update")
    together = statements if caller is None else [first]
    edit = wrapped(code, together, f"with {torch}.no_grad():") if together else None
    if edit is None:
        return
    update, inner = _is_update(problem, write), any(map(carries_graph, sites(problem)))
    yield in_one_text(
        code,
        [edit, *imported],
        f"with {torch}.no_grad(): {lines_of(code.text(first))[0]}",
        _WHY,
        "no_grad: update" if update else "no_grad: value",
        reading="update" if update and not inner and not of_data else "tracked",
        # A step that was asked for as a part of the graph is not to be cut out of it. Without a backward there is
        # nothing to lose.
        lossless=(inner or not update) and bool(problem.evidence.passes),
    )


def _step_of_optimizer(write: Site) -> ast.FunctionDef | None:
    """The method of an optimizer of the user's that writes: its states are to have no history either. Not where it calls a
    closure, which needs gradients.
    """
    match [above for above in write.code.parents(write.statement) if isinstance(above, (*Function, ast.ClassDef))]:
        case [ast.FunctionDef() as function, ast.ClassDef(bases=bases), *_] if not calls_named(function, "closure"):
            return function if any((dotted(base) or "").endswith("Optimizer") for base in bases) else None
    return None


def _may_be_update(problem: Problem, event: Write) -> bool:
    """One of several views, written, is an update where they are views of a leaf. An optimizer's step is one already."""
    return event.of_leaf if problem.family in ("out_grad", "multi_output_view") else event.origin != "optim"


def _caller_of_lambda(problem: Problem, write: Site) -> Site | None:
    """The statement that calls the lambda in which the write stands: no block can be put around that itself."""
    within = any(isinstance(above, ast.Lambda) for above in write.code.parents(write.node))
    callers = [one for one in sites(problem)[1:2] if isinstance(one.statement, ast.Expr)]
    return callers[0] if within and callers else None


def _is_update(problem: Problem, write: Site) -> bool:
    """Whether the write looks like the update of a parameter rather than like a step of a computation."""
    name, event = write.root_text, write.event
    if event.of_graph and not event.parameter and not is_in_update(problem):
        return False  # ``self.amp /= self.scale ** 3``: what it is computed from is to get a gradient by it
    if problem.family == "no_grad_view" and not event.parameter:  # a view of anything
        return reads_gradient(write.statement)
    return (
        name is None
        or event.parameter
        or event.operation in _INITIALISERS
        or any(mark in f"{event.name}{name}" for mark in ".[")
        or reads_gradient(write.statement)
        or _is_stepped(problem, write)
        or _is_iterate(write)  # bound anew, the name would no longer lead to the leaf whose gradient is asked for
    )


def is_input(problem: Problem, write: Site) -> bool:
    """Whether nothing is seen to train the leaf that is written: then the write may well be meant as a part of the graph.

    Written anew as a whole, it could learn nothing, had the graph a part in it.
    """
    event = write.event
    if write.root_text is None or event.parameter or event.fed or _is_stepped(problem, write):
        return False
    if event.operation in _INITIALISERS and event.leaf:
        return False
    writes = [(code, n, into) for code, n in problem.nodes(ast.AST) for into in written_by(n)]
    along = any(reads(code, f"{root_text(code, into)}.grad", [n]) for code, n, into in writes)
    asked = any(calls_named(code.tree, "grad") for code in problem.codes())  # of names not followed into the write
    return not along and (not asked or (puts_constant(write) and _is_given_back(problem, write)))


def _is_stepped(problem: Problem, write: Site) -> bool:
    """Whether an optimizer steps the leaf that is written."""
    return write.event.stepped or are_stepped(problem, {write.event.name})


def _goes_on(write: Site, statements: list[ast.stmt]) -> bool:
    """Whether a function goes on with the value that the statements write: that is data, and no update.

    The value is an argument, or has a name of the function's own beside the one that leads to the leaf.
    """
    function, name = scope(write.code, write.statement), write.root_text
    if name is None or not isinstance(function, Function):
        return False
    looks = [root(b.value) for b in bindings(write.code, name, write.statement)[:1]]  # ``q = self.rotation.view(-1)``
    if name not in parameters(function) and not any(looks):
        return False
    own = [node for statement in statements for node in ast.walk(statement)]
    behind = reads(write.code, name, later(write.code, write.statement))
    read = [n for n in behind if n not in own and not is_number(write.code, n)]
    goes_on = [s for s in map(write.code.statement, read) if not _gives_back(s, read)]
    goes_on = [
        s for s in goes_on if not _looks_to_write(write.code, s, name) and not _looks_for_nobody(write.code, s, name)
    ]
    return getattr(function, "name", "") == "forward" or any(not _of_itself(write.code, s, name) for s in goes_on)


def _is_given_back(problem: Problem, write: Site, anew: bool = False) -> bool:
    """Whether the function gives back what it was handed, or a look at what its object has, and its caller goes on with that:
    ``out = step(out)``, ``spectrum @ self.kernel()``.

    ``anew``: under another name, ``unit = normalised(self.weight)``, or one that the caller was handed itself; not by what is
    named as torch names what writes in place, nor what a gradient has updated.
    """
    code, own, function = write.code, write.root_text or "", write.code.function(write.statement)
    name = seen_through(code, own, write.statement) or own  # ``data = pose`` ahead of it
    of_object = own != name and name.startswith("self.") and not reads_gradient(write.statement)
    if name not in parameters(function) and not of_object:
        return False
    within = own_statements(code, scope(code, write.statement))
    back = any(_gives_back(s, [node for one in {own, name} for node in reads(code, one, [s])]) for s in within)
    goes_on = [caller for caller in sites(problem)[1:2] if not isinstance(caller.statement, ast.Expr)]
    if anew and not of_object:
        update = getattr(function, "name", "").endswith("_") or reads_gradient(write.statement)
        goes_on = [one for one in goes_on if _is_named_anew(one, outside(write, one, name)) and not update]
        goes_on = [one for one in goes_on if not reads_gradient(one.statement)]
    return back and bool(goes_on)


def _is_named_anew(caller: Site, name: str | None) -> bool:
    """Whether what a call gives gets another name than what it was handed has, or one that the caller was handed itself."""
    return name not in binds(caller.statement) or name in parameters(caller.code.function(caller.statement))


def _gives_back(statement: ast.stmt, read: list[ast.expr]) -> bool:
    """``return w``, ``return w.mul_(2)``, ``return w, velocity``"""
    value = statement.value if isinstance(statement, ast.Return) else None
    return any(root(one) in read for one in (value.elts if isinstance(value, ast.Tuple) else [value]))


def _is_iterate(write: Site) -> bool:
    """Whether the code around uses the gradient of what it writes: a sampler adds its noise to such a tensor as well."""
    around = ast.walk(scope(write.code, write.statement))
    read = {root_text(write.code, n.value) for n in around if isinstance(n, ast.Attribute) and n.attr == "grad"}
    return write.root_text in read | asked_by_call(write)


def _of_itself(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement does no more than change the named tensor: ``w.detach_()``, ``w[0] = w[1]``, ``w.data = w * 2``."""
    parts = written_by(statement)
    return {root_text(code, part.value if isinstance(part, ast.Attribute) else part) for part in parts} == {name}


def _looks_to_write(code: Code, statement: ast.stmt, name: str | None) -> bool:
    """Whether a statement of a function only names a look at the named tensor that is then written: ``tail = b.narrow(1, 5, n)``."""
    function = code.function(statement)
    match statement:
        case ast.Assign([ast.Name(own)], ast.Call() | ast.Subscript()) if name not in (None, own) and function:
            named = {n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == own} - {statement.targets[0]}
            of_look = root_text(code, statement.value) == name and own not in declared(function)
            return of_look and bool(named) and all(_of_itself(code, s, own) for s in map(code.statement, named))
    return False


def _looks_for_nobody(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a statement of a function only gives a name that nobody reads to a look at the named tensor: ``w = w.to(device)``."""
    match statement:
        case ast.Assign([ast.Name(own)], value):
            return root_text(code, value) == name and is_dead_store(code, own, statement)
    return False


def carries_graph(write: Site) -> bool:
    """Whether the step itself belongs to a graph, as the inner step of a meta-learner does."""
    calls = calls_named(scope(write.code, write.statement), "grad", "backward")
    created = [keyword.value for call in calls if (keyword := keyword_named(call, "create_graph")) is not None]
    return any(ast.unparse(value) != "False" for value in created)


# ---- what goes into the block -----------------------------------------------------------------------------------


def _block(problem: Problem, write: Site) -> list[ast.stmt]:
    """The statements that belong together: neighbours that update too, and the loops that do nothing else; none where the
    write stands on the head line of a block that does more.
    """
    code, whole = write.code, write.statement
    writes = [c.write for c in problem.evidence.clashes if c.family == problem.family and c.write is not None]
    refused = [frame.statement for one in writes for frame in problem.frames(one.stack[:1])]
    updates = partial(_updates, write, [whole, *refused])
    for above in itertools.takewhile(lambda s: isinstance(s, (ast.For, ast.If)), [*upwards(code, whole)][1:]):
        on_head = code.begins_on_head(whole) or code.text(whole).startswith("elif")
        beside = [updates(s) for s in code.block(above)]
        # A branch by itself stays around the block, unless it is all that a loop does.
        several = beside.count(True) > 1 or (all(beside) and isinstance(code.parent(above), ast.For))
        if not on_head and not (updates(above) and (isinstance(above, ast.For) or several)):
            break
        whole = above
    before = list(itertools.takewhile(updates, reversed(code.preceding(whole))))
    found = [*reversed(before), *itertools.takewhile(updates, [whole, *code.following(whole)])]
    # A look stays outside where nothing is updated beyond it.
    updating = [n for n, s in enumerate(found) if s is whole or not _looks_to_write(code, s, write.root_text)]
    return found[updating[0] : updating[-1] + 1] if updating else []


def _updates(write: Site, refused: Sequence[ast.stmt], statement: ast.stmt) -> bool:
    """Whether a statement updates something in place, clears a gradient, or names a look at it for that, and does nothing else."""
    code, name = write.code, write.root_text
    if isinstance(statement, (ast.If, ast.For)):
        return all(_updates(write, refused, s) for s in [*statement.body, *statement.orelse])
    if statement in refused or isinstance(statement, (ast.Pass, ast.Continue)):
        return True
    if _looks_to_write(code, statement, name):
        return True
    texts = [root_text(code, one) for one in written_by(statement)]
    looks = (seen_through(code, text, statement) for text in texts if text is not None and name is not None)
    return len(texts) == 1 and (name in (*texts, *looks) or reads_gradient(statement))
