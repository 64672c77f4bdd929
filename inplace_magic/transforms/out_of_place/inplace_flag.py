"""``inplace=True`` among the arguments of a call, by name or by position."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from ...source.dataflow import called_name, keyword_named
from ...source.editor import Code, Edit


@cache
def position(name: str) -> int | None:
    """Where torch's module or function of this name takes ``inplace`` among its positions; None if it takes none."""
    owner = sys.modules.get("torch.nn" if name[:1].isupper() else "torch.nn.functional")
    try:
        return list(inspect.signature(getattr(owner, name)).parameters).index("inplace")
    except (AttributeError, TypeError, ValueError):
        return None


def flag(call: ast.Call) -> ast.keyword | ast.expr | None:
    """The argument by which a call may be asked to work in place."""
    named, index = keyword_named(call, "inplace"), position(called_name(call))
    if named is not None and ast.unparse(named.value) != "False":
        return named
    value = call.args[index] if index is not None and index < len(call.args) else None
    return value if value is not None and ast.unparse(value) == "True" else None


def without_flag(code: Code, call: ast.Call, given: ast.keyword | ast.expr) -> Edit:
    """The argument is taken out; what is no constant, or stands before others, becomes False."""
    if isinstance(given, ast.keyword) and not isinstance(given.value, ast.Constant):
        return code.replace(given.value, "False")
    last = isinstance(given, ast.keyword) or given is call.args[-1]
    return code.without_argument(given) if last else code.replace(given, "False")
