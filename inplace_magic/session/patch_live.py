"""Brings a rewritten cell to life without running it: functions get their new code, live objects their changes.

A trained model is kept: only the code of the functions that the cell defined is exchanged, wherever they are held
(classes, hooks, decorators, closures), and it can be taken back.
"""

from __future__ import annotations

import ast
import copy
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..diagnosis import LiveChange
from ..source.apart import does, in_file
from ..source.document import Document, FileSource
from ..source.editor import Function, names_loaded
from ..source.files import modules_of
from ..source.own import is_a
from ..source.sources import Sources

Undo = Callable[[], None]
_WALK_LIMIT = 50_000
_WIDTH = 1000


def changed_statements(old: Document, new: Document) -> list[ast.stmt] | None:
    """The new cell's top-level statements that differ from the old cell's; None where either cannot be parsed."""
    if old.tree is None or new.tree is None:
        return None
    before = [ast.dump(s) for s in old.tree.body]
    return [s for s in new.tree.body if ast.dump(s) not in before]


def needs_run(old: Document, new: Document) -> bool:
    """Whether a rewritten cell must run again, because more than the insides of functions changed."""
    changed = changed_statements(old, new)
    if changed is None or old.tree is None or new.tree is None or len(old.tree.body) != len(new.tree.body):
        return True
    return any(
        not isinstance(b, (*Function, ast.ClassDef)) or _outline(a) != _outline(b)
        for a, b in zip(old.tree.body, new.tree.body)
        if ast.dump(a) != ast.dump(b)
    )


def initialises(old: Document, new: Document) -> bool:
    """Whether the change lies in an ``__init__``, which objects that exist already have behind them."""
    return any(
        name.endswith("__init__")
        and name in (new_code := dict(_functions(new)))
        and ast.dump(node) != ast.dump(new_code[name])
        for name, node in _functions(old)
    )


def _functions(cell: Document) -> Iterator[tuple[str, ast.AST]]:
    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*Function, ast.ClassDef)):
                name = f"{prefix}{child.name}"
                if isinstance(child, Function):
                    yield name, child
                yield from visit(child, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>.")
            else:
                yield from visit(child, prefix)

    if cell.tree is not None:
        yield from visit(cell.tree, "")


def _outline(node: ast.stmt) -> str:
    """A definition without the bodies of its functions; default values belong to it, and decorators, but for those of
    methods, which are given to the class anew.
    """
    made_anew = {id(method) for method in _methods(node) if _can_be_given(method)}

    class Empty(ast.NodeTransformer):
        def visit_FunctionDef(self, function: ast.FunctionDef) -> ast.AST:
            decorators = [] if id(function) in made_anew else function.decorator_list
            return ast.FunctionDef(function.name, function.args, [ast.Pass()], decorators, None, None)

        visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    return ast.dump(Empty().visit(copy.deepcopy(node, {id(one): one for one in _methods(node)})))


def _methods(node: ast.AST) -> list[ast.FunctionDef]:
    """The methods that stand in the body of a class."""
    return [one for one in node.body if isinstance(one, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []


def _can_be_given(method: ast.FunctionDef) -> bool:
    """Whether a method can be made outside of its class: not where it knows that by ``super()``."""
    return not names_loaded([method]) & {"super", "__class__"}


def _redecorated(old: Document, new: Document) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The methods whose decorators a rewrite changes, each with the name of its class."""
    before, after = (
        {(top.name, m.name): m for top in doc.tree.body for m in _methods(top) if isinstance(top, ast.ClassDef)}
        for doc in (old, new)
        if doc.tree is not None
    )
    for key in before.keys() & after.keys():
        if [*map(ast.dump, before[key].decorator_list)] != [*map(ast.dump, after[key].decorator_list)]:
            yield key[0], after[key]


def _give_methods(old: Document, new: Document, code: types.CodeType, namespace: dict[str, Any]) -> Iterator[Undo]:
    """Gives live classes their methods under the decorators that a rewrite leaves them. Yields what takes it back."""
    spaces = [vars(module) for module in modules_of(new.path)] if isinstance(new, FileSource) else [namespace]
    for name, method in _redecorated(old, new):
        made = _by_name(code).get(f"{name}.{method.name}", [])
        for names in spaces:
            owner = names.get(name)
            if len(made) == 1 and isinstance(owner, type) and method.name in vars(owner) and _can_be_given(method):
                was = vars(owner)[method.name]
                setattr(owner, method.name, _made(name, method, made[0], names))
                yield functools.partial(setattr, owner, method.name, was)


def _made(owner: str, method: ast.FunctionDef, code: types.CodeType, names: dict[str, Any]) -> Any:
    """A method as its class would make it, on the lines of its ``code``."""
    node = copy.deepcopy(method)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    ast.increment_lineno(node, code.co_firstlineno - first)
    tree = ast.parse(f"class {owner}: pass")
    tree.body[0].body = [node]  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    exec(compile(tree, code.co_filename, "exec", dont_inherit=True), names, found)
    return vars(found[owner])[method.name]


def renew_module(file: FileSource, text: str) -> list[Undo]:
    """Runs the top-level statements that a rewrite has changed in the modules loaded from the file.

    Functions and classes of which only the insides changed are none of them: they are kept, and patched.
    Returns what takes it back.
    """
    new = file.with_text(text)
    if not needs_run(file, new):
        return []
    before = {_outline(s) for s in file.tree.body} if file.tree is not None else set()
    changed = [s for s in changed_statements(file, new) or [] if _outline(s) not in before]
    code = compile(ast.Module(changed, []), file.path, "exec", dont_inherit=True)
    undo: list[Undo] = []
    for module in modules_of(file.path):
        names = vars(module)
        old = dict(names)
        undo.append(functools.partial(_restore, names, old))
        exec(code, names)
    return undo


def _restore(names: dict[str, Any], old: dict[str, Any]) -> None:
    for name in set(names) - set(old):
        del names[name]
    names.update(old)


def patch_functions(
    sources: Sources,
    number: int,
    text: str,
    compile_cell: Callable[[Document], types.CodeType],
    namespace: dict[str, Any],
) -> list[Undo]:
    """Gives every live function of a cell its code from the new text. Returns what takes it back, newest last.

    What has only moved gets its new lines, so that a later error in it is told by the text that the person then has. Functions whose closure no longer fits keep their code.
    """
    cell = sources.cells[number]
    new = cell.with_text(text)
    before, after = _by_name(compile_cell(cell)), _by_name(compile_cell(new))
    undo: list[Undo] = []
    for function in _live_functions(sources, number, namespace):
        old_code, name = function.__code__, in_file(function.__code__).co_qualname
        new_code = _counterpart(old_code, before.get(name, []), after.get(name, []))
        if new_code is None or new_code.co_freevars != old_code.co_freevars:
            continue
        function.__code__ = new_code
        undo.append(lambda f=function, c=old_code: setattr(f, "__code__", c))  # type: ignore[misc]
    return [*undo, *_give_methods(cell, new, compile_cell(new), namespace)]


def _by_name(code: types.CodeType) -> dict[str, list[types.CodeType]]:
    """The functions of a text by qualified name, which lambdas share, and a property's getter and setter."""
    found: dict[str, list[types.CodeType]] = {}
    for one in _codes(code):
        found.setdefault(one.co_qualname, []).append(one)
    return found


def _counterpart(
    code: types.CodeType, before: list[types.CodeType], after: list[types.CodeType]
) -> types.CodeType | None:
    """What has become of a function in the new text; None if that is not certain."""
    if len(before) == len(after) == 1:
        return after[0]
    if len(before) != len(after):
        return None
    alike = [i for i, one in enumerate(before) if does(one) == does(code)]
    return after[alike[0]] if len(alike) == 1 else None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _live_functions(sources: Sources, number: int, namespace: Mapping[str, Any]) -> list[types.FunctionType]:
    """The functions of a cell that the user's names lead to: in classes, hooks, closures, wrappers, containers.

    A walk over the names and not over the whole heap: that one costs 0.2 s in a copied process, whose pages it touches.
    """
    from .user_objects import walk

    document = sources.cells.get(number)
    modules = modules_of(document.path) if isinstance(document, FileSource) else []
    found: dict[int, types.FunctionType] = {}
    for names in (namespace, *map(vars, modules)):
        for _, value in walk(names, unnamed=True):
            if is_a(value, types.FunctionType) and sources.cell_of(value.__code__) == number:
                found[id(value)] = value
    return list(found.values())


def apply_change(change: LiveChange, namespace: dict[str, Any]) -> Undo:
    """Makes one change of a live object. Returns what takes it back. Raises if the path leads nowhere."""
    import torch

    if change.kind == "set":
        owner = _at(change.path, namespace)
        old = getattr(owner, str(change.attribute))
        setattr(owner, str(change.attribute), change.value)
        return lambda: setattr(owner, str(change.attribute), old)
    value = _at(change.path, namespace)
    make = torch.Tensor.detach if change.kind == "detach" else torch.Tensor.clone
    with torch.no_grad():
        return _assign(change.path, make(value), namespace)


def _at(path: str, namespace: Mapping[str, Any]) -> Any:
    """What a path over the user's names, or over his modules, leads to."""
    from .user_objects import resolving

    return eval(path, {}, resolving(namespace))


def _assign(path: str, value: Any, namespace: dict[str, Any]) -> Undo:
    """``path = value`` for a name, an attribute, an item; an item of a tuple makes a new tuple."""
    node = ast.parse(path, mode="eval").body
    old = _at(path, namespace)
    if isinstance(node, ast.Name):
        namespace[node.id] = value
        return lambda: namespace.__setitem__(node.id, old)
    parent_path = ast.unparse(node.value)  # type: ignore[attr-defined]
    parent = _at(parent_path, namespace)
    if isinstance(node, ast.Attribute):
        setattr(parent, node.attr, value)
        return lambda: setattr(parent, node.attr, old)
    key = ast.literal_eval(node.slice)  # type: ignore[attr-defined]
    if isinstance(parent, tuple):
        items = list(parent)
        items[key] = value
        rebuilt = type(parent)(*items) if hasattr(parent, "_fields") else tuple(items)
        return _assign(parent_path, rebuilt, namespace)
    parent[key] = value
    return lambda: parent.__setitem__(key, old)
