"""What is compared, and which line a change is laid to."""

from __future__ import annotations

import pytest

from .programs import Program
from .running import watch

WRITTEN_EARLIER = """
    c = torch.full((6,), 2.0)
    loss = (x * c).square().sum()
    ctypes.memset(c.data_ptr(), 0, 48)
    {then}
    loss.backward()
"""


@pytest.mark.parametrize(
    "then",
    ["array = c.numpy()", "y = Twice.apply(x, c)", "other = torch.from_dlpack(c)"],
    ids=["an array is taken", "a Function keeps it", "another library is shown it"],
)
def test_a_line_is_not_blamed_for_what_was_written_before_it(then: str) -> None:
    setup = """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, c):
                ctx.c = c
                return t * c
            @staticmethod
            def backward(ctx, g):
                return g * ctx.c, None
    """
    seen = watch(Program("by hand", "", setup), WRITTEN_EARLIER.format(then=then).replace("\n    ", "\n"))
    assert [finding.changed for finding in seen.findings] == [None]


def test_the_line_is_known_where_memory_was_compared_before_it() -> None:
    text = "c = numpy.full(6, 2.0)\nloss = (x * torch.from_numpy(c)).square().sum()\nc[0] = 5\nloss.backward()\n"
    (finding,) = watch(Program("by hand", text), text).findings
    assert finding.changed is not None and finding.changed.text == "c[0] = 5"
