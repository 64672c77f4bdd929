"""``inplace=True`` among the arguments of a call, by name or by position."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from ...source.dataflow import called_name
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
    for keyword in call.keywords:
        if keyword.arg == "inplace" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
            return keyword
    index = position(called_name(call))
    value = call.args[index] if index is not None and index < len(call.args) else None
    return value if isinstance(value, ast.Constant) and value.value is True else None


def without_flag(code: Code, call: ast.Call, given: ast.keyword | ast.expr) -> Edit:
    """The argument is taken out; what is no constant, or stands before others, becomes False."""
    if isinstance(given, ast.keyword):
        return (
            code.without_argument(given)
            if isinstance(given.value, ast.Constant)
            else code.replace(given.value, "False")
        )
    return code.without_argument(given) if given is call.args[-1] else code.replace(given, "False")
