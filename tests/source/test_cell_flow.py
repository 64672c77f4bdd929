"""Which cells have to run again with one that does: those that made what it reads, those that read what it makes."""

from __future__ import annotations

import pytest

from inplace_magic.source.cell_flow import makers_of, readers_of
from inplace_magic.source.document import CellSource
from inplace_magic.source.sources import Sources


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param(["a = 1", "b = 2", "print(a)"], (1, 3), id="nothing that it does not read"),
        pytest.param(["a = 1", "a.add_(1)", "print(a)"], (1, 2, 3), id="what reads a value may have changed it"),
        pytest.param(
            ["k = 1", "a = 1\nout = a", "a.add_(k)", "print(out)"], (1, 2, 3, 4), id="with what it needs for that"
        ),
        pytest.param(["a.add_(1)", "a = 1", "print(a)"], (2, 3), id="not what read it before it was made"),
        pytest.param(["a = 1", "def f():\n    a.add_(1)", "print(a)"], (1, 3), id="not what only defines"),
    ],
)
def test_the_cells_that_made_or_changed_what_a_cell_reads(cells: list[str], expected: tuple[int, ...]) -> None:
    sources = Sources({n: CellSource(n, text) for n, text in enumerate(cells, 1)}, {}, len(cells))
    assert makers_of(sources, tuple(range(1, len(cells) + 1)), len(cells), changed=True) == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param(["data = 1", "net = f(1)", "print(net, data)"], (2, 3), id="not the data"),
        pytest.param(["net = 1", "opt = of(net)", "opt.step()", "opt"], (1, 2, 3, 4), id="what was made of it"),
        pytest.param(["net = 1", "net = 2", "print(net)"], (2, 3), id="the latest to make it"),
        pytest.param(["net.train()", "net = 2", "print(net)"], (2, 3), id="not what read it before it was made"),
        pytest.param(["net = 1", "def f():\n    net()", "print(net)"], (1, 3), id="not what only defines"),
        pytest.param(["other = 1", "net = f()"], (2,), id="itself, where it makes the object"),
    ],
)
def test_the_cells_that_made_an_object_and_read_it_since(cells: list[str], expected: tuple[int, ...]) -> None:
    sources = Sources({n: CellSource(n, text) for n, text in enumerate(cells, 1)}, {}, len(cells))
    history = tuple(range(1, len(cells) + 1))
    assert readers_of(sources, history, len(cells), ("net.cache",)) == expected


def test_of_no_object_only_the_cell_itself() -> None:
    sources = Sources({1: CellSource(1, "a = 1"), 2: CellSource(2, "print(a)")}, {}, 2)
    assert readers_of(sources, (1, 2), 2, ()) == (2,)
