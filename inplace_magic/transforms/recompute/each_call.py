"""What a cache, or a default argument, computed once, with its graph, is computed in each call.

if self.norm is None:                     self.norm = normalised(self.weight)
    self.norm = normalised(self.weight)   return self.norm @ x
return self.norm @ x

if key in self.cache:                     self.cache[key] = f(x)
    return self.cache[key]                return self.cache[key]
self.cache[key] = f(x)
return self.cache[key]

@cached_property                          @property
def prior(self): ...                      def prior(self): ...

def loss(x, w=softmax(logits)):           def loss(x, w=None):
                                              if w is None:
                                                  w = softmax(logits)

opt.step(partial(closure, model(x)))      opt.step(lambda: closure(model(x)))

opt.step(closure_of(model(x)))            opt.step(lambda: closure_of(model(x))())

u = model(x)
opt.step(lambda: fit(u, y))               opt.step(lambda: fit(model(x), y))

A cache is told by its test, which asks about the very name that is given a value where the test lets the code run.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from ...message import message
from ...source.bindings import argument, bound, defaults, parameters
from ...source.blocks import loops, upwards
from ...source.dataflow import binds, called_name, calls, calls_named, own_items, reads
from ...source.editor import Code, Edit, atom, names_bound, names_loaded
from ...source.lift import unwrapped
from ...source.modules import module_has
from ...source.names import named, renamed, stores
from ..analysis.meetings import headline, standing_in
from ..analysis.targets import root_text, written_by
from ..grad_mode.inference_mode import modes
from ..problem import Problem
from ..proposal import Proposal, in_one_text
from ..registry import register

_WHY = message("why_each_call")
_LEAVES = (ast.Return, ast.Continue)


@register("second_backward", "modified")
def each_call(problem: Problem) -> Iterator[Proposal]:
    found = problem.crossing
    held = {holder.path for edge in found.over for holder in edge.holders}
    frames = {f.statement: f for edge in found.over for f in problem.frames(edge.made)[::-1]}
    for frame in frames.values():
        code, statement = frame.code, frame.statement
        for test, edit in _caches(code, statement, held):
            title = message("title_block_gone", block=headline(code, test).strip("`"))
            yield in_one_text(code, [edit], title, _WHY, "recompute: each call")
        if isinstance(statement, ast.FunctionDef):
            yield from _default(problem, code, statement, frame.node)
        for call in calls_named(statement, "partial"):
            yield from _bound_argument(code, call, frame.node)
        yield from _made_for_step(problem, code, statement, frame.node)
        yield from _read_each_time(problem, code, statement)
        function = code.function(statement)
        if function is None:
            continue
        for one in modes(function, "cached_property"):
            yield in_one_text(code, [code.replace(one, "property")], "@property", _WHY, "recompute: each call")
        for one in modes(function, "lru_cache", "cache"):
            title = message("title_undecorated", name=function.name, decorator=code.text(one))
            yield in_one_text(code, [code.without_decorator(one)], title, _WHY, "recompute: each call")


def _default(problem: Problem, code: Code, function: ast.FunctionDef, computed: ast.AST) -> Iterator[Proposal]:
    """The default argument that something was computed for when its function was defined.

    Nothing where it would be something else later, as what a loop binds, nor where the function knows what to do with ``None``.
    """
    counted = binds(*loops(code, function))
    given = Counter(key for one, s in problem.nodes(ast.stmt) for key, _ in bound(one, s))
    for name, value in defaults(function).items():
        names = {*names_loaded([value])}
        anew = any(given[one] > 1 for one in names) or names & {*parameters(function), *counted}
        if anew or _takes_none(problem, function, name):
            continue
        behind = [s for s in function.body if s is not function.body[0] or ast.get_docstring(function) is None]
        if any(node is computed for node in ast.walk(value)) and behind and not code.begins_on_head(function.body[0]):
            text = _from_within(code, function, value)
            if text is None:
                return
            lines = [f"if {name} is None:", f"{code.indent_step}{name} = {text}"]
            edits = [code.replace(value, "None"), code.insert_before(behind[0], *lines)]
            yield in_one_text(code, edits, lines[1].strip(), _WHY, "recompute: each call")


def _from_within(code: Code, function: ast.FunctionDef, value: ast.expr) -> str | None:
    """The text of a default argument in the function: what a class calls so is an attribute of the class there. None where the
    function does not know the class by its name.
    """
    around = code.parent(function)
    if not isinstance(around, ast.ClassDef):
        return code.text(value)
    edits = renamed(code, [value], {one: f"{around.name}.{one}" for one in names_bound(code.preceding(function))})
    unknown = around not in code.tree.body or around.name in parameters(function)
    return None if edits and unknown else code.edited(value, edits)


def _bound_argument(code: Code, call: ast.Call, computed: ast.AST) -> Iterator[Proposal]:
    """The argument that ``partial`` binds to what is computed once, before the function is ever called."""
    given: list[ast.AST] = [*call.args[1:], *call.keywords]
    if call.args and any(node is computed for one in given for node in ast.walk(one)):
        rest = code.cell.raw[code.span(given[0])[0] : code.span(call)[1]]
        line = f"lambda: {code.text(call.args[0])}({rest}"
        yield in_one_text(code, [code.replace(call, line)], line, _WHY, "recompute: each call")


def _made_for_step(problem: Problem, code: Code, statement: ast.stmt, computed: ast.AST) -> Iterator[Proposal]:
    """The callable that an optimizer gets, which another function makes of what is computed once."""
    behind = code.following(statement)
    sent = dict.fromkeys(standing_in(code, [statement, *behind], problem.needed[:-1]))
    handed = [call.args[0] for s in sent for call in calls_named(s, "step") if call.args]
    ahead: Sequence[ast.stmt] = ()
    match statement:
        case ast.Assign([ast.Name(name)], value) if any(getattr(one, "id", None) == name for one in handed):
            handed, ahead = [value], behind
    for one in handed:
        made_once = any(node is computed for node in ast.walk(one))
        if made_once and _keeps_nothing(problem, one) and not _means_another(code, one, ahead):
            line = f"lambda: {code.text(one)}()"
            yield in_one_text(code, [code.replace(one, line)], line, _WHY, "recompute: each call")


def _read_each_time(problem: Problem, code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """What is computed once, ahead of a lambda or a comprehension in which it is sent back, is computed there.

    Nothing where it would be of other values there: what draws the next batch, or what is bound anew, or written, by then; nor
    where an earlier change may have moved it past such a line.
    """
    match statement:
        case ast.Assign([ast.Name(name)], value) if not problem.extends:
            behind, function = code.following(statement), code.function(statement)
            sent = dict.fromkeys(standing_in(code, behind, problem.needed))
            each = [one for s in sent for n in ast.walk(s) for one in _each_time(n)]
            inside = [*dict.fromkeys(named(code, name, each))]
            own = {n for one in inside for above in code.parents(one) for n in own_items(above)}
            anew = any(stores(s, name) for s in behind) or _means_another(code, value, behind)
            if not inside or anew or own & names_loaded([value]):
                return
            edits = [code.replace(one, atom(code, value)) for one in inside]
            title = code.edited(code.statement(inside[0]), edits)
            if function is not None and len(inside) == len(
                [n for n in named(code, name, function.body) if isinstance(n.ctx, ast.Load)]
            ):
                edits.append(code.delete(statement))
            yield in_one_text(code, edits, title, _WHY, "recompute: each call")


def _means_another(code: Code, value: ast.expr, behind: Sequence[ast.stmt]) -> bool:
    """Whether an expression gives something else behind some statements: what ``next`` draws, or what is bound or written there."""
    written = {root_text(code, into) for s in behind for n in ast.walk(s) for into in written_by(n)}
    return bool(reads(value) & (binds(*behind) | written)) or any(calls_named(value, "next"))


def _keeps_nothing(problem: Problem, call: ast.expr) -> bool:
    """Whether a function of the person's makes another one, which keeps no values of its own from call to call."""
    made = [function for _, function in problem.nodes(ast.FunctionDef) if function.name == called_name(call)]
    return bool(made) and not any(map(_is_kept, (n for function in made for n in ast.walk(function))))


def _is_kept(node: ast.AST) -> bool:
    """``nonlocal count``, ``count[0] += 1``, ``seen.append(loss)``"""
    match node:
        case ast.Nonlocal() | ast.AugAssign(target=ast.Attribute() | ast.Subscript()):
            return True
        case ast.Call(func=ast.Attribute(attr="append" | "extend" | "insert" | "add" | "update")):
            return True
    return False


def _each_time(node: ast.AST) -> list[ast.expr]:
    """What a lambda, or each turn of a comprehension, computes."""
    match node:
        case ast.Lambda(body=body):
            return [body]
        case ast.ListComp(elt=each) | ast.SetComp(elt=each) | ast.GeneratorExp(elt=each):
            return [each]
        case ast.DictComp(key=key, value=value):
            return [key, value]
    return []


def _takes_none(problem: Problem, function: ast.FunctionDef, name: str) -> bool:
    """Whether a function asks whether an argument is ``None``, or is called with that."""

    def is_none(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Constant) and node.value is None

    tests = (n for n in ast.walk(function) if isinstance(n, ast.Compare) and any(map(is_none, n.comparators)))
    called = [call for code in problem.codes() for call in calls_named(code.tree, function.name)]
    return any(name in reads(test) for test in tests) or any(is_none(argument(function, name, call)) for call in called)


def _caches(code: Code, statement: ast.stmt, held: set[str]) -> Iterator[tuple[ast.If, Edit]]:
    """The tests that keep a statement from running again, each with the edit that lets it run."""
    for inner in upwards(code, statement):
        above, branch, behind = code.parent(inner), code.block(inner), [inner, *code.following(inner)]
        early = [one for one in code.preceding(inner) if isinstance(one, ast.If) and not one.orelse]
        tests = [(one, behind, code.delete(one)) for one in early if isinstance(one.body[-1], _LEAVES)]
        if isinstance(above, ast.If) and not isinstance(branch[-1], _LEAVES):  # what stands behind it still runs
            edit = unwrapped(code, above, branch)
            tests += [(above, branch, edit)] if edit is not None else []
        for test, kept, edit in tests:
            if _asks(test, kept, held) and not any(map(_makes_layers, kept)):
                yield test, edit


def _makes_layers(node: ast.AST) -> bool:
    """Whether parameters or modules of torch's are made, which an optimizer would know nothing of."""
    made = {called_name(call) for call in calls(node)}
    return any(name[:1].isupper() and module_has("torch.nn", name) for name in made)


def _asks(test: ast.If, branch: Sequence[ast.stmt], held: set[str]) -> bool:
    """Whether a test asks about what a branch gives a value, or about what held the stale value."""
    asked = reads(test.test) | {name for call in ast.walk(test.test) if (name := _attribute(call)) is not None}
    given = binds(*branch)
    last = {path.rpartition(".")[2].partition("[")[0] for path in held}
    return bool(asked & given) or any("." in name and name.rpartition(".")[2] in last for name in asked)


def _attribute(call: ast.AST) -> str | None:
    """``self.norm`` of ``hasattr(self, "norm")``."""
    match call:
        case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[owner, ast.Constant(value=name), *_]):
            return f"{ast.unparse(owner)}.{name!s}"
    return None
