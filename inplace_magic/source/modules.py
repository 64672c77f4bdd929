"""Which names stand for modules: looked up where the code runs, never told by how they are spelled.

``import torch as t``, ``from torch.nn import functional as tf``, a name that a star import brought: whatever is bound to
the module stands for it, and ``F`` that is bound to a tensor does not.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from .own import is_a


def modules_in(namespace: Mapping[str, Any]) -> dict[str, str]:
    """The names that stand for modules, with the modules' own names."""
    modules = ((name, value) for name, value in list(namespace.items()) if is_a(value, types.ModuleType))
    return {name: vars(module).get("__name__", name) for name, module in modules}


def imported(tree: ast.AST) -> dict[str, str]:
    """The same as the imports of a text have it, for what has not run, or inside of a function."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in sys.modules:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def module_has(module: str, name: str) -> bool:
    """Whether a module that is loaded has something of this name."""
    return hasattr(sys.modules.get(module), name)


def module_of(node: ast.AST) -> str | None:
    """The module that an expression of a noted tree stands for: ``torch.nn.functional``."""
    return getattr(node, "stands_for_module", None)


def note_modules(node: ast.AST, known: Mapping[str, str]) -> None:
    """Notes on every name and attribute below a node that stands for a module which one: ``module_of`` reads it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        here = {**known, **imported(node)}
        known = {name: module for name, module in here.items() if name not in set(_bound_in(node))}
    for child in ast.iter_child_nodes(node):
        note_modules(child, known)
    module: str | None = None
    if isinstance(node, ast.Name):
        module = known.get(node.id)
    elif isinstance(node, ast.Attribute) and (owner := module_of(node.value)) is not None:
        module = f"{owner}.{node.attr}" if f"{owner}.{node.attr}" in sys.modules else None
    if isinstance(node, (ast.Name, ast.Attribute)):
        node.stands_for_module = module  # type: ignore[union-attr]


def _bound_in(function: ast.AST) -> Iterator[str]:
    """The names that a function binds to something else than a module: its parameters, and what it assigns."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
