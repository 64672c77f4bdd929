"""Where a name gets its value, where it is read, what a loop goes through: the text of one cell or file, function by
function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .blocks import loops, own_statements, scope, upwards
from .dataflow import assigned, binds, called_name, handed_on, key_of, live_in, of_head, simple
from .editor import Code, Def, Function, Loop
from .names import declared, first_name, named

_LEAF_MAKERS = frozenset({"requires_grad_", "Parameter"})


@dataclass(frozen=True)
class Binding:
    """A name or attribute gets its value. ``value`` is None where the value is a part of something unpacked."""

    statement: ast.stmt
    value: ast.expr | None


def bindings(code: Code, text: str, near: ast.stmt) -> list[Binding]:
    """Where ``text`` is assigned in the same function (an attribute: in the same class), the latest before first."""
    top: ast.AST = scope(code, near)
    if "." in text and isinstance(top, Function):
        above = code.parent(top)
        top = above if isinstance(above, ast.ClassDef) else top
        nodes: list[ast.stmt] = [n for n in ast.walk(top) if isinstance(n, ast.stmt)]
    else:
        nodes = list(own_statements(code, top))
    found = [Binding(s, value) for s in nodes for name, value in bound(code, s) if name == text and s is not near]
    before = sorted((b for b in found if b.statement.lineno <= near.lineno), key=lambda b: -b.statement.lineno)
    return before + [b for b in found if b.statement.lineno > near.lineno]


def value_of(code: Code, text: str, near: ast.stmt) -> ast.expr | None:
    """The value that a name has where a statement stands; None for a part of something unpacked, and for no value at all."""
    return next((one.value for one in bindings(code, text, near)), None)


def bound(code: Code, statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """What one assignment binds, each with its value; None for a part of something unpacked."""
    for target, value in handed_on(statement):
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from ((code.text(one), None) for one in target.elts)
        else:
            yield code.text(target), value


def last_bound(codes: Iterable[Code], path: str) -> tuple[Code, ast.stmt, ast.expr] | None:
    """The line in some texts that gives a path over the session's names its value last: ``w``, ``ws`` for ``ws[0]``, ``self.w`` in
    a class for ``net.w``. None where no assignment does so last, or which one is not certain: of several that stand in
    branches or functions, or in several classes; of a container that is filled behind.
    """
    own, whole, key = _plain(path), path.partition("[")[0], key_of(ast.parse(path, mode="eval").body)
    attribute = f"self.{path.rpartition('.')[2].partition('[')[0]}"
    found: list[tuple[Code, ast.stmt, ast.expr | None, list[str], bool]] = []
    for code in codes:
        for s in (n for n in ast.walk(code.tree) if isinstance(n, ast.stmt) and (simple(n) or hasattr(n, "body"))):
            around = [above for above in code.parents(s) if isinstance(above, (*Function, ast.ClassDef))]
            in_class, homes = bool(around) and isinstance(around[-1], ast.ClassDef), [one.name for one in around]
            if (around and not (in_class and "." in path)) or _gives_other_items(s, own):
                continue
            values = {_plain(name): value for name, value in bound(code, s)} if simple(s) else {}
            filled = binds(s) if simple(s) else {key_of(target) for target in of_head(s)}
            exact = next((name for name in ((attribute,) if around else (own, whole)) if name in values), None)
            if exact is not None or (attribute if around else key) in filled:
                branch = any(isinstance(above, (ast.If, ast.Try, ast.TryStar, ast.Match)) for above in code.parents(s))
                found.append((code, s, values.get(exact or ""), homes, branch))
    if not found or any(homes != found[0][3] for *_, homes, _ in found):
        return None
    code, statement, value, homes, branch = max(found, key=lambda one: (one[0].cell.number, one[1].lineno))
    several = sum(one[0] is code for one in found) > 1 if homes else len(found) > 1
    return None if value is None or (several and (branch or bool(homes))) else (code, statement, value)


def made_last(codes: Sequence[Code], path: str) -> tuple[Code, ast.stmt, ast.expr] | None:
    """The same; in the function that the line calls, if there is one of that name, whose one ``return`` gives what it makes of a
    leaf that it makes.
    """
    found = last_bound(codes, path)
    called = getattr(found[2].func, "id", None) if found is not None and isinstance(found[2], ast.Call) else None
    makers = [(c, n) for c in codes for n in c.tree.body if isinstance(n, Function) and n.name == called]
    code, maker = makers[0] if len(makers) == 1 else (None, None)
    given = [n for n in own_statements(code, maker) if isinstance(n, ast.Return)] if code and maker else []
    if code is None or len(given) != 1 or given[0].value is None:
        return found
    held = bindings(code, code.text(given[0].value), given[0]) or [Binding(given[0], given[0].value)]
    nodes = [*ast.walk(held[0].value)] if len(held) == 1 and held[0].value is not None else []
    flags = (n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "requires_grad")
    told = any(isinstance(flag, ast.Constant) and flag.value is True for flag in flags)
    leaf = told or any(called_name(n) in _LEAF_MAKERS for n in nodes)
    return (code, held[0].statement, held[0].value) if leaf and held[0].value is not None else found


def _gives_other_items(statement: ast.stmt, path: str) -> bool:
    """Whether all that an assignment gives a container are items by keys that are written out, and no part of the one at a path,
    nor what holds it."""
    wanted = ast.parse(path, mode="eval").body
    given = [one for one in assigned(statement) if key_of(one) == key_of(wanted)]
    keys = [n.slice for one in (wanted, *given) for n in ast.walk(one) if isinstance(n, ast.Subscript)]
    texts = [ast.unparse(one) for one in given if isinstance(one, ast.Subscript)]
    apart = not any(path.startswith(text) or text.startswith(path) for text in texts)
    return bool(given) and len(texts) == len(given) and all(isinstance(key, ast.Constant) for key in keys) and apart


def _plain(path: str) -> str:
    """A path over names as ``ast`` writes it, ``params['w']`` for ``params["w"]``."""
    try:
        return ast.unparse(ast.parse(path, mode="eval"))
    except SyntaxError:
        return path


def parameters(function: ast.AST | None) -> list[str]:
    """The names of a function's arguments, those without a position last."""
    if not isinstance(function, Function):
        return []
    a = function.args
    others = [one for one in (a.vararg, a.kwarg) if one is not None]
    return [one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs, *others)]


def argument(function: ast.AST | None, name: str, call: ast.AST) -> ast.expr | None:
    """What a call hands to a function's parameter; ``self`` is not counted where the call is one of a method."""
    if not isinstance(function, Function) or not isinstance(call, ast.Call):
        return None
    by_keyword = next((k.value for k in call.keywords if k.arg == name), None)
    if by_keyword is not None:
        return by_keyword
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"], ["ctx"]):
        names = names[1:]
    if name not in names or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    index = names.index(name)
    return call.args[index] if index < len(call.args) else None


def given(code: Code, function: ast.FunctionDef, call: ast.Call) -> Iterator[tuple[str, ast.expr | None]]:
    """What a call gives to each parameter of a function, to the first one of a method the object that it is called on."""
    owner, of_class = getattr(call.func, "value", None), isinstance(code.parent(function), ast.ClassDef)
    for number, name in enumerate(parameters(function)):
        yield name, owner if of_class and not number else argument(function, name, call)


def defaults(function: Def) -> dict[str, ast.expr]:
    """The parameters of a function that a call need not give, each with its value."""
    a = function.args
    pairs = [*zip([*a.posonlyargs, *a.args][::-1], a.defaults[::-1]), *zip(a.kwonlyargs, a.kw_defaults)]
    return {one.arg: value for one, value in pairs if value is not None}


def handed(code: Code, function: ast.FunctionDef, call: ast.Call, name: str) -> Iterator[str]:
    """What a function that is handed a value, or what holds it, calls it: ``bag["loss"]``, ``self.total``."""
    for own, value in given(code, function, call):
        text = ast.unparse(value) if value is not None else None
        if text is not None and (name == text or name.startswith((f"{text}.", f"{text}["))):
            yield own + name.removeprefix(text)


def loop_of(code: Code, node: ast.AST, name: str) -> ast.For | None:
    """The ``for`` loop, in the same function, that binds the name."""
    for above in code.parents(node):
        if isinstance(above, Function):
            return None
        if isinstance(above, ast.For) and name in {n.id for n in ast.walk(above.target) if isinstance(n, ast.Name)}:
            return above
    return None


def naming_loop(code: Code, node: ast.AST, name: str) -> ast.For | ast.comprehension | None:
    """The loop, or the comprehension, that binds a name where a node stands."""
    for above in code.parents(node):
        for one in getattr(above, "generators", ()):
            if name in {n.id for n in ast.walk(one.target) if isinstance(n, ast.Name)}:
                return one  # type: ignore[no-any-return]
    return loop_of(code, code.statement(node), name)


def bound_anew(code: Code, statement: ast.stmt, name: str, since: ast.stmt | None = None) -> bool:
    """Whether each iteration of the innermost loop around a statement binds the name before it reads it, so that what the
    name held in an earlier one is gone. Not for a statement that stands behind ``since`` in the same iteration."""
    loop = next(iter(loops(code, statement)), None)
    if loop is None or name in live_in(loop.body) or not any(name in binds(s) for s in own_statements(code, loop)):
        return False
    return since is None or since.lineno >= statement.lineno or loop not in upwards(code, since)


def key_of_item(loop: ast.For | ast.comprehension, name: str) -> str | None:
    """``k`` where the loop binds ``k, p`` or ``(k, p), g``, and ``p`` is the name."""
    pairs = [loop.target, *(loop.target.elts if isinstance(loop.target, ast.Tuple) else [])]
    for pair in pairs:
        if isinstance(pair, ast.Tuple) and [getattr(e, "id", None) for e in pair.elts][1:] == [name]:
            return getattr(pair.elts[0], "id", None)
    return None


def gone_through(loop: ast.For | ast.comprehension | None, name: str) -> ast.expr | None:
    """The list whose items the loop calls ``name``: itself, or one of those in ``zip`` and ``enumerate``, one in the other too."""
    if loop is None:
        return None
    return loop.iter if isinstance(loop.target, ast.Name) else _items_called(name, loop.target, loop.iter)


def _items_called(name: str, target: ast.expr, through: ast.expr) -> ast.expr | None:
    if isinstance(target, ast.Name):
        return through if target.id == name else None
    if not isinstance(target, ast.Tuple) or not isinstance(through, ast.Call):
        return None
    called, given = called_name(through), through.args
    if called == "zip" and len(given) == len(target.elts):
        pairs = [_items_called(name, one, items) for one, items in zip(target.elts, given)]
        return next((found for found in pairs if found is not None), None)
    if called == "enumerate":
        return _items_called(name, target.elts[-1], given[0]) if given else None
    return through if called != "zip" and getattr(target.elts[-1], "id", None) == name else None


def reads(code: Code, text: str, nodes: list[ast.AST]) -> list[ast.expr]:
    """Where a name or attribute is read below the nodes."""
    found: list[ast.expr] = []
    for name in named(code, first_name(text), nodes):
        read: ast.AST | None = name
        while isinstance(read, (ast.Name, ast.Attribute, ast.Subscript)) and code.text(read) != text:
            read = code.parent(read)
        found += [read] if isinstance(read, (ast.Name, ast.Attribute)) and isinstance(read.ctx, ast.Load) else []
    return found


def is_dead_store(code: Code, name: str, statement: ast.stmt) -> bool:
    """Whether nobody reads what a statement of a function gives a name of the function's own, nor a function in it may."""
    function = code.function(statement)
    if function is None or not name.isidentifier() or name in declared(function):
        return False
    inner = [n for n in ast.walk(function) if isinstance(n, (*Function, ast.Lambda)) and n is not function]
    in_turn = any(isinstance(n, ast.Name) and n.id == name for one in inner for n in ast.walk(one))
    return not in_turn and not reads(code, name, later(code, statement))


def later(code: Code, statement: ast.stmt) -> list[ast.AST]:
    """What runs after a statement in its function or cell; all of a loop that it stands in."""
    found: list[ast.AST] = []
    inner: ast.AST = statement
    for above in code.parents(statement):
        if isinstance(above, Loop):
            found = [above]
        else:
            parts = [getattr(above, field, None) for field in ("body", "handlers", "orelse", "finalbody")]
            blocks = [part for part in parts if isinstance(part, list)]
            at = next((i for i, block in enumerate(blocks) if inner in block), len(blocks))
            for block in blocks[at : at + 1]:
                found += block[block.index(inner) + 1 :] if block is not getattr(above, "handlers", None) else []
            for block in blocks[at + 1 :] if isinstance(above, ast.Try) else ():
                found += block
        if isinstance(above, Function):
            break
        inner = above
    return found
