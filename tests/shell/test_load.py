"""Loading and unloading: what it must not change, and that it composes with others who hook into the shell."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest

import inplace_magic
from tests.cells import new_shell, run_in

FAILS = ["import torch\nw = torch.ones(3, requires_grad=True)", "x = w.exp()\nx += 1\nx.sum().backward()"]
LOAD = "%load_ext inplace_magic"
HEADLINE = "In-place change broke the backward pass"


def fingerprint(shell: Any) -> dict[str, Any]:
    return {
        "exceptions": shell.custom_exceptions,
        "handler": getattr(shell, "CustomTB", None),
        "events": {name: list(functions) for name, functions in shell.events.callbacks.items()},
        "line": dict(shell.magics_manager.magics["line"]),
        "cell": dict(shell.magics_manager.magics["cell"]),
        "configurables": list(shell.configurables),
        "registry": dict(shell.magics_manager.registry),
        "names": set(shell.user_ns),
        "attributes": {name for name in vars(shell) if "inplace" in name},
    }


@pytest.fixture
def bare() -> Any:
    shell = new_shell()
    shell.run_line_magic("unload_ext", "inplace_magic")
    return shell


def test_loading_imports_neither_torch_nor_rich() -> None:
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.run_line_magic('load_ext', 'inplace_magic')\n"
        "shell.run_cell('1 + 1')\nshell.run_cell('1 / 0')\n"
        "print(sorted(m for m in ('torch', 'rich', 'numpy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


AT_ONCE = "\n".join([LOAD, *FAILS])


def test_a_cell_that_loads_and_fails_is_explained_once(bare: Any) -> None:
    assert run_in(bare, [AT_ONCE]).output.count(HEADLINE) == 1


@pytest.mark.parametrize(
    "cells", [pytest.param([LOAD, *FAILS], id="loaded before"), pytest.param([AT_ONCE], id="at once")]
)
def test_an_empty_cell_behind_a_failed_one_says_nothing(bare: Any, cells: list[str]) -> None:
    run_in(bare, cells)
    assert not run_in(bare, ["", "  \n"]).output


def test_unloading_leaves_the_shell_as_it_was(bare: Any) -> None:
    before = fingerprint(bare)
    bare.run_line_magic("load_ext", "inplace_magic")
    assert fingerprint(bare) != before
    bare.run_line_magic("unload_ext", "inplace_magic")
    assert fingerprint(bare) == before


def test_loading_twice_is_loading_once(bare: Any) -> None:
    bare.run_line_magic("load_ext", "inplace_magic")
    once = fingerprint(bare)
    inplace_magic.load_ipython_extension(bare)
    assert fingerprint(bare) == once
    assert run_in(bare, FAILS).output.count(HEADLINE) == 1


def test_reloading_works_and_reports_once(bare: Any) -> None:
    bare.run_line_magic("load_ext", "inplace_magic")
    bare.run_line_magic("reload_ext", "inplace_magic")
    assert run_in(bare, FAILS).output.count(HEADLINE) == 1


def test_nothing_is_said_after_unloading(bare: Any) -> None:
    done = run_in(bare, FAILS)
    assert HEADLINE not in done.output
    assert "modified by an inplace operation" in str(done.error)


def test_the_handler_that_was_there_before_is_called_and_given_back(bare: Any) -> None:
    seen = []

    def handler(shell: Any, etype: type, value: BaseException, tb: Any, tb_offset: int | None = None) -> None:
        seen.append(str(value))

    bare.set_custom_exc((RuntimeError,), handler)
    slot = bare.CustomTB
    bare.run_line_magic("load_ext", "inplace_magic")
    done = run_in(bare, FAILS)
    assert len(seen) == 1 and "modified by an inplace operation" in seen[0]
    assert done.output.count(HEADLINE) == 1
    bare.run_line_magic("unload_ext", "inplace_magic")
    assert bare.CustomTB == slot and bare.custom_exceptions == (RuntimeError,)


def test_a_handler_that_took_the_slot_later_keeps_it_and_the_failure_is_still_seen(bare: Any) -> None:
    seen = []
    bare.run_line_magic("load_ext", "inplace_magic")
    bare.set_custom_exc((Exception,), lambda shell, etype, value, tb, tb_offset=None: seen.append(value))
    slot = bare.CustomTB
    assert run_in(bare, FAILS).output.count(HEADLINE) == 1
    assert len(seen) == 1
    bare.run_line_magic("unload_ext", "inplace_magic")
    assert bare.CustomTB == slot


def test_rich_traceback_before_and_after(bare: Any) -> None:
    from rich.traceback import install

    plain = bare.showtraceback
    try:
        bare.run_line_magic("load_ext", "inplace_magic")
        run_in(bare, ["import rich.traceback\nrich.traceback.install()"])
        assert install is not None
        done = run_in(bare, FAILS)
        assert done.output.count(HEADLINE) == 1
    finally:
        bare.showtraceback = plain


@pytest.mark.parametrize("mode", ["Minimal", "Plain", "Verbose"])
def test_every_traceback_mode_shows_the_error_first_and_the_report_once(bare: Any, mode: str) -> None:
    bare.run_line_magic("load_ext", "inplace_magic")
    run_in(bare, [f"%xmode {mode}"])
    done = run_in(bare, FAILS)
    assert done.output.count(HEADLINE) == 1
    assert done.output.index("has been modified by an inplace operation") < done.output.index(HEADLINE)
    run_in(bare, ["%xmode Context"])


def test_config_shows_and_sets(bare: Any) -> None:
    bare.run_line_magic("load_ext", "inplace_magic")
    shown = run_in(bare, ["%config InplaceMagic"])
    for trait in ("enabled", "rerun", "time_limit", "fixes", "prefill"):
        assert f"InplaceMagic.{trait}" in shown.output
    off = run_in(bare, ["%config InplaceMagic.enabled = False", *FAILS])
    assert HEADLINE not in off.output
    no_rerun = run_in(bare, ["%config InplaceMagic.enabled = True", "%config InplaceMagic.rerun = False", *FAILS])
    assert "reruns are switched off" in " ".join(no_rerun.output.split())
    one = run_in(bare, ["%config InplaceMagic.rerun = True", "%config InplaceMagic.fixes = 1", *FAILS])
    assert one.diagnosis is not None and len(one.diagnosis.fixes) == 1


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [("time_limit = 0", "rerun = False"), ("time_limit = -1", "above 0"), ("fixes = 0", "1 or more")],
)
def test_a_senseless_setting_is_refused_with_its_remedy(
    bare: Any, setting: str, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    bare.run_line_magic("load_ext", "inplace_magic")
    done = run_in(bare, [f"%config InplaceMagic.{setting}"])
    assert remedy in caplog.text + done.output + str(done.error)
    name = setting.split()[0]
    kept = run_in(bare, [f"print(get_ipython().magics_manager.registry['InplaceMagic'].{name})"])
    assert float(kept.output) > 0


# ---- beside other extensions -----------------------------------------------------------------------------------------


class Autoreload:
    load, unload = "%load_ext autoreload\n%autoreload 2", "%autoreload 0"


class Rich:
    load, unload = "import rich.traceback; rich.traceback.install()", ""


class Handler:
    """Another user of the one slot for an exception handler."""

    load = (
        "handled = []\n"
        "def handler(shell, etype, value, tb, tb_offset=None):\n"
        "    handled.append(value); shell.showtraceback((etype, value, tb), tb_offset=tb_offset)\n"
        "get_ipython().set_custom_exc((RuntimeError,), handler)"
    )
    unload = "get_ipython().set_custom_exc((), None)"


class Minimal:
    load, unload = "%xmode Minimal", "%xmode Context"


class Debugger:
    load, unload = "%pdb on", "%pdb off"


OTHERS = [Autoreload, Rich, Handler, Minimal, Debugger]


@pytest.fixture
def cleared(bare: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("sys.stdin", io.StringIO("where\nquit\n" * 20))
    yield bare
    vars(bare).pop("showtraceback", None)
    bare.call_pdb = False
    run_in(bare, ["%xmode Context"])


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(
    ("first", "gone_first"),
    [
        ("ours", "theirs"),
        ("theirs", "ours"),
        pytest.param("ours", "ours", marks=pytest.mark.broad),
        pytest.param("theirs", "theirs", marks=pytest.mark.broad),
    ],
)
def test_loaded_and_unloaded_beside_others_in_every_order(
    cleared: Any, other: Any, first: str, gone_first: str
) -> None:
    ours = ("%load_ext inplace_magic", "%unload_ext inplace_magic")
    theirs = (other.load, other.unload)
    loads = [ours[0], theirs[0]] if first == "ours" else [theirs[0], ours[0]]
    done = run_in(cleared, [*loads, *FAILS])
    assert done.output.count(HEADLINE) == 1, done.output
    assert done.output.index("modified by an inplace operation") < done.output.index(HEADLINE)
    assert done.diagnosis is not None and done.diagnosis.fixes and done.diagnosis.fixes[0].verified
    if other is Handler:
        assert run_in(cleared, ["assert len(handled) == 1 and handled[0].__traceback__ is not None"]).error is None
    assert run_in(cleared, ["1 / 0"]).output.count("ZeroDivisionError") >= 1

    unloads = [ours[1], theirs[1]] if gone_first == "ours" else [theirs[1], ours[1]]
    again = run_in(cleared, [unloads[0], FAILS[1]])
    assert "modified by an inplace operation" in str(again.error)
    assert again.output.count(HEADLINE) == (gone_first == "theirs")
    last = run_in(cleared, [unloads[1], FAILS[1]])
    assert "modified by an inplace operation" in str(last.error) and HEADLINE not in last.output
    if other is not Rich:
        assert "RuntimeError" in last.output
