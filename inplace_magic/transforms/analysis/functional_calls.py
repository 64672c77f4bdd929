"""A module's call as one of ``torch.func.functional_call``, with weights that are not its own."""

from __future__ import annotations

import ast
import itertools

from ...source.editor import Code, Edit


def functional_call(code: Code, call: ast.Call, weights: str, torch: str) -> list[Edit]:
    """``net(x, mask=m)`` as ``torch.func.functional_call(net, weights, (x,), {"mask": m})``; the arguments stay as they are."""
    (start, end), given = code.span(call), [code.span(one) for one in call.args]
    head = f"{torch}.func.functional_call({code.text(call.func)}, {weights}, ("
    edits = [Edit(start, given[0][0], head)] if given else []
    at = given[-1][1] if given else start
    opening = f"{',' if len(given) == 1 else ''}), {{" if given else f"{head}), {{"
    for keyword, before in zip(call.keywords, itertools.chain([opening], itertools.repeat(", "))):
        first, last = code.span(keyword.value)
        name = "**" if keyword.arg is None else f'"{keyword.arg}": '
        edits.append(Edit(at, first, f"{before}{name}"))
        at = last
    closing = "})" if call.keywords else f"{'' if given else head}{',' if len(given) == 1 else ''}))"
    return [*edits, Edit(at, end, closing)]
