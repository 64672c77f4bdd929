"""Cell text in its two views, and the way from a code object back to the line a person sees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from inplace_magic.source.document import CellSource
from inplace_magic.source.location import kind_of
from inplace_magic.source.sources import Sources
from tests.cells import new_shell

LINES_STAY = [
    pytest.param("x = 1\ny = 2\n", id="plain"),
    pytest.param("\n\nx = 1\n", id="blank lines on top"),
    pytest.param("%matplotlib inline\nx = 1\n", id="a line magic"),
    pytest.param("!ls\nx = 1\n", id="a shell escape"),
    pytest.param("files = !ls\nx = 1\n", id="a shell escape that is assigned"),
    pytest.param("%%time\nx = 1\n", id="a cell magic"),
    pytest.param("\n%%time\n\nx = 1\n", id="blank lines around a cell magic"),
    pytest.param("%time y = 1\nx = 1\n", id="%time with a statement"),
    pytest.param("x?\nx = 1\n", id="a question"),
    pytest.param("if True:\n    %time y = 1\n    x = 1\n", id="an indented magic"),
    pytest.param("  y = 1\n  x = 1\n", id="an indented cell"),
    pytest.param("await f()\nx = 1\n", id="top-level await"),
    pytest.param("变量 = '字'\nx = 1\n", id="wide characters"),
    pytest.param("y = 1\r\nx = 1\r\n", id="CRLF"),
]


@pytest.fixture(scope="module")
def transform() -> object:
    return new_shell().transform_cell


@pytest.mark.parametrize("raw", LINES_STAY)
def test_every_line_stays_where_the_person_sees_it(raw: str, transform: object) -> None:
    cell = CellSource(1, raw, transform)  # type: ignore[arg-type]
    line = next(i for i, text in enumerate(raw.splitlines(), 1) if "x = 1" in text)
    column = raw.splitlines()[line - 1].encode().index(b"x = 1")
    assert cell.tree is not None
    node = next(n for n in ast.walk(cell.tree) if isinstance(n, ast.Name) and n.id == "x" and n.lineno == line)
    assert node.col_offset == column
    compiled = compile(cell.runnable, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert any(isinstance(n, ast.Name) and n.id == "x" and n.lineno == line for n in ast.walk(compiled))


def test_text_that_cannot_be_parsed_has_no_tree(transform: object) -> None:
    assert CellSource(1, "x = = 1", transform).tree is None  # type: ignore[arg-type]


def test_a_replay_leaves_out_what_reaches_outside_and_keeps_the_lines(transform: object) -> None:
    raw = "!touch /tmp/x\n%pip install x\n%autograd_fix --run\nfiles = !ls\nx = 1"
    replayed = CellSource(1, raw, transform).replayable.splitlines()  # type: ignore[arg-type]
    assert replayed[:3] == ["pass"] * 3
    assert "getoutput" in replayed[3] and replayed[4] == "x = 1"


@pytest.mark.parametrize(
    ("filename", "kind"),
    [
        pytest.param("<ipython-input-3-0123456789ab>", "user", id="a cell in a terminal"),
        pytest.param("/tmp/ipykernel_123/456.py", "user", id="a cell in a kernel"),
        pytest.param("<timed exec>", "user", id="a body that %%time compiled"),
        pytest.param("<replayed In[3]>", "user", id="a cell that we compiled"),
        pytest.param("/home/me/project/train.py", "user", id="a file of the user's"),
        pytest.param("<string>", "library", id="text given to exec"),
        pytest.param("<frozen importlib._bootstrap>", "library", id="a frozen module"),
        pytest.param(ast.__file__, "library", id="the standard library"),
        pytest.param(pytest.__file__, "library", id="an installed package"),
        pytest.param("/x/site-packages/torch/optim/adam.py", "optim", id="an optimizer"),
        pytest.param("/x/site-packages/torch/nn/modules/activation.py", "nn", id="a module of torch's"),
    ],
)
def test_whose_a_file_is(filename: str, kind: str) -> None:
    assert kind_of(filename) == kind


def test_an_instruction_leads_back_to_its_expression(transform: object) -> None:
    raw = "\ndef f(x):\n    x += 1; x.mul_(2)\n    return x\n"
    cell = CellSource(4, raw, transform)  # type: ignore[arg-type]
    namespace: dict[str, object] = {}
    exec(compile(cell.transform(raw), "<ipython-input-4-x>", "exec"), namespace)
    code = namespace["f"].__code__  # type: ignore[attr-defined]
    sources = Sources({4: cell}, {}, 4)
    spots = [sources.spot(code, i * 2) for i in range(len(code.co_code) // 2)]
    assert {s.cell for s in spots} == {4}
    call = next(s for s in spots if (s.line, s.column, s.end_column) == (3, 12, 21))
    place = sources.place(call)
    assert (place.label, place.text, place.function) == ("In[4]:3", "x += 1; x.mul_(2)", "f")


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        pytest.param(
            "thing-1.0.dist-info/RECORD", "library", id="a package that was installed into a folder of the path"
        ),
        pytest.param("other-1.0.dist-info/RECORD", "user", id="the person's own beside one that was installed there"),
        pytest.param("thing.egg-info/PKG-INFO", "user", id="a project that is installed from its folder"),
    ],
)
def test_whose_file_it_is(record: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / record).parent.mkdir()
    (tmp_path / record).write_text(f"{record.partition('-')[0]}/__init__.py,sha256=,0\n{record},,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kind_of(str(tmp_path / "thing" / "layers.py")) == kind
