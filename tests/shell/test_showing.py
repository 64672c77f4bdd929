"""A report while it grows: the lines first, then fixes as they are verified; Ctrl-C keeps what is known."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from rich.cells import cell_len

from inplace_magic import show
from inplace_magic.diagnosis import Diagnosis
from inplace_magic.message import LANGUAGES, Language, kind_of, message, said
from inplace_magic.show import Showing
from tests.cells import new_shell, run_cells
from tests.shell.test_kernel import BODY, LOAD, MIME, SETUP

ACTS = (
    "%autograd_fix --show",
    "%autograd_fix",
    "%autograd_fix --undo",
    "%autograd_fix --undo",
    "%autograd_fix --run",
    "%%autograd_check\ny = w.exp()",
    "%config InplaceMagic.effects = True",
)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    """What was published, in order."""
    seen: list[Diagnosis] = []
    real = Showing.publish

    def publish(self: Showing, found: Diagnosis) -> None:
        seen.append(found)
        real(self, found)

    monkeypatch.setattr(Showing, "publish", publish)
    return seen


def test_the_lines_are_shown_before_a_fix_has_been_tried(published: list[Diagnosis]) -> None:
    done = run_cells(SETUP, BODY)
    first, *later = published
    assert first.changed is not None and first.changed.line == 2 and not first.fixes
    assert later and all(found.fixes and found.id == first.id for found in later)
    assert done.diagnosis is not None and done.diagnosis.id == first.id
    assert done.output.count("In-place change broke the backward pass") == 1
    assert done.output.count("overwritten here") == 1 and "+ x = x + 1" in done.output


@pytest.mark.parametrize("fixes", [0, 1])
def test_ctrl_c_during_the_verification_keeps_what_is_known(fixes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Showing.publish

    def publish(self: Showing, found: Diagnosis) -> None:
        real(self, found)
        if len(found.fixes) == fixes:
            raise KeyboardInterrupt

    monkeypatch.setattr(Showing, "publish", publish)
    done = run_cells(SETUP, BODY)
    assert done.diagnosis is not None and done.diagnosis.changed is not None
    assert len(done.diagnosis.fixes) == fixes
    assert [kind_of(note) for note in done.diagnosis.notes] == ["stopped"]
    assert "Interrupted: further fixes were not tried." in done.output


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_line_that_tells_what_is_being_done_goes_away_whole(
    language: Language, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "_on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    with Showing(new_shell(), language) as showing:
        showing._begun -= 10
        showing.tell(message("rerunning", seconds=12.0))
        showing.tell(message("looking"))
    first, second, blank, rest = capsys.readouterr().out.split("\r")[1:]
    assert 0 < cell_len(first) < width and cell_len(first) == cell_len(second) == cell_len(blank)
    assert not blank.strip() and not rest


def shown_by_a_kernel(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """What is displayed of a failing cell, if requests come with such metadata, in order."""
    manager, talk = pytest.importorskip("jupyter_client.manager").start_new_kernel(kernel_name="python3")
    shown: list[dict[str, Any]] = []

    def hear(msg: dict[str, Any]) -> None:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            shown.append(msg["content"] | {"update": msg["msg_type"] == "update_display_data"})

    talk.session.metadata = metadata
    try:
        for cell in (LOAD, SETUP, BODY):
            talk.execute_interactive(cell, timeout=600, output_hook=hear)
    finally:
        talk.stop_channels()
        manager.shutdown_kernel(now=True)
    return shown


def test_where_no_cell_is_named_the_whole_report_comes_at_the_end() -> None:
    """Consoles show no updates; a run of a whole notebook has one report, which is whole."""
    (last,) = shown_by_a_kernel({})
    assert not last["update"]
    assert "overwritten here" in last["data"]["text/plain"] and "+ x = x + 1" in last["data"]["text/plain"]
    assert last["data"][MIME]["fixes"] and not last["data"][MIME]["report"]["pending"]


def test_in_a_notebook_one_output_is_updated_and_there_is_a_sign_of_life_at_once() -> None:
    shown = shown_by_a_kernel({"cellId": "a cell"})
    assert [content["update"] for content in shown] == [False] + [True] * (len(shown) - 1)
    assert len({content["transient"]["display_id"] for content in shown}) == 1
    assert "running the cell again" in shown[0]["data"]["text/plain"] and MIME not in shown[0]["data"]
    lines = shown[1]["data"]
    assert "overwritten here" in lines["text/plain"] and "looking for a fix" in lines["text/plain"]
    assert lines[MIME]["fixes"] == [] and lines[MIME]["report"]["pending"]
    last = shown[-1]["data"]
    assert last[MIME]["fixes"] and not last[MIME]["report"]["pending"] and "looking" not in last["text/html"]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_no_act_fails_for_lack_of_characters(encoding: str) -> None:
    shell = new_shell()
    with io.TextIOWrapper(io.BytesIO(), encoding=encoding) as out, contextlib.redirect_stdout(out):
        for cell in ("%config InplaceMagic.language = 'zh'", SETUP, BODY, *ACTS):
            result = shell.run_cell(cell, store_history=True)
            assert result.error_in_exec is None or cell == BODY
        out.seek(0)
        assert "x += 1" in out.read()


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_breaks_between_words(
    width: int, language: Language, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(message("prefilled", text="%autograd_fix --run"), language)
    shell = new_shell()
    show.answer(shell, text)
    assert capsys.readouterr().out == f"{text}\n", "what is no terminal gets one line"
    monkeypatch.setattr(show, "_on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    show.answer(shell, text)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())
    if language == "en":
        assert " ".join(lines) == text
