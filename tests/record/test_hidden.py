from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from inplace_magic.gradients.backward import GradientTrace
from inplace_magic.record.current_line import LineWatch, telling
from inplace_magic.record.silent import foreign_memory
from inplace_magic.record.silent.events import REFERENCE
from inplace_magic.record.silent.python_nodes import _names_of, functions_within
from inplace_magic.record.silent.stream import EventStream
from inplace_magic.source.sources import Sources

Stack = tuple[tuple[types.CodeType, int], ...]


def recorded(code: str) -> tuple[EventStream, dict[str, object]]:
    """Code run under the recorder that hands out the values as they were saved."""
    sources = Sources({}, {}, None)
    recorder = EventStream(sources, REFERENCE)
    trace = GradientTrace(sources, around=recorder.around_backward)
    torch.manual_seed(0)
    names: dict[str, object] = {"torch": torch, "nn": nn, "x": torch.ones(3, requires_grad=True)}
    with trace.listening(), recorder:
        exec(compile(code, "/home/somebody/train.py", "exec"), names)
    return recorder, names


@pytest.mark.parametrize(
    ("code", "gradient"),
    [
        pytest.param("l = (x ** 2).sum()\nx.data += 1\nl.backward()", 2.0, id="a value written through .data"),
        pytest.param("l = (x ** 2).sum()\nx.data = x.data + 1\nl.backward()", 2.0, id="other .data"),
        pytest.param("l = (x ** 2).sum()\na = x.detach().numpy()\na += 1\nl.backward()", 2.0, id="numpy"),
        pytest.param("h = x * 3\nh.detach().clamp_(max=1)\nh.sum().backward()", 0.0, id="a clamp past the graph"),
        pytest.param("h = x * 3\nh.data *= 2\n(h ** 2).sum().backward()", 72.0, id="an operator on .data"),
        pytest.param("h = x * 3\nh.data *= 2\nh.data *= 5\nh.sum().backward()", 30.0, id="two operators on .data"),
        pytest.param("h = x * 3\nh.data *= 2\nh.data[:] = 0\nh.sum().backward()", 0.0, id="a part after an operator"),
        pytest.param("h = x * 3\nd = h.detach()\nd.mul_(2)\nd.mul_(5)\nh.sum().backward()", 30.0, id="an alias used twice"),
        pytest.param("h = x * 3\nh.data.add_(1)\n(h ** 2).sum().backward()", 24.0, id="a sum past the graph"),
    ],
)  # fmt: skip
def test_the_reference_is_the_gradient_that_the_code_means(code: str, gradient: float) -> None:
    _, names = recorded(code)
    x = names["x"]
    assert isinstance(x, torch.Tensor) and x.grad is not None
    assert x.grad.tolist() == [gradient] * 3


def test_comparisons_after_each_line_are_calls_that_nobody_listens_to(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    compared: list[object] = []
    compare, listen = foreign_memory.differ, EventStream.__torch_function__

    def noted(value: torch.Tensor | None, now: torch.Tensor) -> bool:
        compared.append(now)
        return compare(value, now)

    def counted(self: EventStream, func: object, *rest: object) -> object:
        heard.append(func)
        return listen(self, func, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(EventStream, "__torch_function__", counted)
    monkeypatch.setattr(foreign_memory, "differ", noted)
    recorded("kept = []\nfor _ in range(5):\n    kept.append((x ** 2).sum())\n    y = 1\n")
    assert compared and torch.Tensor.sum in heard and torch.equal not in heard


def test_two_layers_written_at_one_line_are_two_conflicts() -> None:
    code = """
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3))
loss = net.eval()(torch.randn(4, 3)).square().sum()
net.train()(torch.randn(4, 3))
loss.backward()
"""
    recorder, names = recorded(code)
    net = names["net"]
    assert isinstance(net, nn.Sequential)
    modules = [clash.write.module for clash in recorder.conflicts.found if clash.write is not None]
    assert sorted(map(id, modules)) == sorted(map(id, (net[1], net[2])))


def test_the_names_that_a_backward_uses() -> None:
    def wrapped(ctx: object) -> object:
        return lambda g: g * ctx.inner  # type: ignore[attr-defined]

    def outer(ctx: object) -> object:
        return wrapped(ctx), ctx.outer  # type: ignore[attr-defined]

    def names(function: object) -> set[str]:
        return {name for one in functions_within(function) for name in _names_of(one.__code__)}

    assert "inner" in names(wrapped)
    assert {"inner", "outer"} <= names(outer)
    assert "shape" not in names(outer)


# ---- lines --------------------------------------------------------------------------------------------------------


def lines_of(code: str) -> list[int]:
    """The lines after which the watch was called, in order."""
    seen: list[int] = []
    watch = LineWatch(lambda: seen.append(line(watch.last)) if watch.last else None)
    compiled = compile(code, "/home/somebody/train.py", "exec")
    exec(compiled, {"start": watch.start, "stop": watch.stop})
    watch.stop()
    return seen


def line(stack: Stack) -> int:
    code, lasti = stack[0]
    return list(code.co_positions())[lasti // 2][0] or 0


def test_each_line_is_told_once_it_has_run() -> None:
    assert lines_of("start()\na = 1\nb = 2\nstop()\nc = 3") == [1, 2, 3]


def test_the_rest_of_a_callers_line_is_the_callers() -> None:
    code = "def f():\n    return 1\nstart()\na = [0]\na[0] = f()\nb = 2\nstop()"
    # line 5 up to the call, the line within, its return, and the rest of line 5
    assert lines_of(code) == [3, 4, 5, 2, 5, 6]


def test_a_library_is_not_told() -> None:
    assert lines_of("import textwrap\nstart()\ntextwrap.dedent('a')\nstop()") == [2, 3]


def test_no_trace_is_left_behind() -> None:
    before = sys.gettrace()
    lines_of("start()\na = 1\nstop()")
    lines_of("start()\na = 1")
    assert sys.gettrace() is before
    assert sys._getframe().f_trace is None or before is not None


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("a *= b[0]", "a *= b[0]"),
        ("a[0] = f(b, 'a long argument')", "a[0]"),
        ("f(b).g(1)", "f(b).g(1)"),
    ],
)
def test_the_part_of_a_line_that_may_have_written(statement: str, part: str) -> None:
    code = compile(statement, "/home/somebody/train.py", "exec")
    ((_, lasti),) = telling(((code, 2),))
    _, _, start, end = list(code.co_positions())[lasti // 2]
    assert statement[start:end] == part
