"""Scripts at the command line: the same lines and fixes as in a shell, files written, and bad input met."""

from __future__ import annotations

import argparse
import gettext
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.cells import cell_len

from inplace_magic.message import LANGUAGES
from inplace_magic.sandbox import may_fork
from inplace_magic.tour import SITUATIONS, Situation
from tests.breadth import broad
from tests.cells import run_cells
from tests.command import command
from tests.sandboxes import SANDBOXES, needs_replica

PROGRAMS = Path(__file__).parent / "programs"
BROKEN = """
import torch

w = torch.randn(3, requires_grad=True)
y = w.exp()
y += 1  # here
y.sum().backward()
"""


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


# ---- as in a shell ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS[::3], ids=lambda s: s.title)
def test_same_lines_and_fix_as_in_the_shell(situation: Situation, tmp_path: Path) -> None:
    *before, last = situation.cells
    shown = run_cells(*before, f"%%autograd_check\n{last}" if situation.check else last).diagnosis
    assert shown is not None and shown.fixes
    path = script(tmp_path, "\n".join(situation.cells) + "\n")
    options = ["--json", "--fix", *(["--check"] if situation.check else [])]
    ended = command(*options, path, folder=tmp_path)
    assert ended.status == 1
    (found,) = ended.findings
    assert found["family"] == shown.family
    for which in ("changed", "saved", "needed"):
        theirs = getattr(shown, which)
        assert (found[which] or {}).get("text") == (theirs and theirs.text)
        if found[which] is not None:
            assert path.read_text() != (tmp_path / "train.py.orig").read_text()
            lines = (tmp_path / "train.py.orig").read_text().splitlines()
            assert lines[found[which]["line"] - 1].strip() == found[which]["text"]
            assert (found[which]["cell"], found[which]["filename"]) == (None, str(path))
    assert (found["fixes"][0]["title"], found["fixes"][0]["gradients"]) == (
        shown.fixes[0].title,
        shown.fixes[0].gradients,
    )
    again = command("--check", path, folder=tmp_path)
    assert again.status == 0 and "nothing found" in again.err


# ---- real programs ------------------------------------------------------------------------------------------------

MISTAKES = {
    "word_lm": (
        "second_backward",
        "output, hidden = model(source, hidden)",
        [("        hidden = repackage(hidden)\n", "")],
    ),
    "dcgan": (
        "modified",
        "optimizer_d.step()",
        [
            ("loss_fake = criterion(discriminator(fake.detach()), fake_label)\n        loss_fake.backward()",
             "output = discriminator(fake)\n        loss_fake = criterion(output, fake_label)\n        loss_fake.backward(retain_graph=True)"),
            ("generator.zero_grad()\n        output = discriminator(fake)\n", "generator.zero_grad()\n"),
        ],
    ),
    "actor_critic": (
        "modified",
        "self.state *= 1.1",
        [
            ("return self.state.clone()", "return self.state"),
            ("self.state = self.state * 1.1 + (0.05 if action else -0.05)",
             "self.state *= 1.1\n        self.state += 0.05 if action else -0.05"),
        ],
    ),
    "graph_net": (
        "modified",
        "out += received / degree[:, None]",
        [("out = out + received / degree[:, None]", "out += received / degree[:, None]")],
    ),
    "tiny_gpt": (
        "modified",
        "weights.masked_fill_(self.mask[:, :, :time, :time], 0.0)",
        [("weights = F.softmax(weights, dim=-1)\n",
          "weights = F.softmax(weights, dim=-1)\n        weights.masked_fill_(self.mask[:, :, :time, :time], 0.0)\n")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_program_is_healthy(name: str, tmp_path: Path) -> None:
    ended = command("--check", PROGRAMS / f"{name}.py", folder=tmp_path)
    assert (ended.status, "nothing found" in ended.err) == (0, True), ended.err


@pytest.mark.parametrize("name", broad(MISTAKES, 2))
def test_mistake_in_a_program_is_found_and_fixed(name: str, tmp_path: Path) -> None:
    family, culprit, changes = MISTAKES[name]
    text = (PROGRAMS / f"{name}.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = script(tmp_path, text, f"{name}.py")
    ended = command("--json", "--fix", path, folder=tmp_path)
    assert ended.status == 1
    (found,) = ended.findings
    assert (found["family"], found["changed"]["text"]) == (family, culprit)
    assert found["fixes"][0]["verified"] and "Traceback" in ended.err
    again = command("--check", path, folder=tmp_path)
    assert again.status == 0 and "nothing found" in again.err, again.err


# ---- what is shown ------------------------------------------------------------------------------------------------


def test_report_and_diff(tmp_path: Path) -> None:
    script(tmp_path, BROKEN)
    ended = command("train.py", folder=tmp_path)
    assert ended.status == 1
    assert ended.err.startswith("Traceback (most recent call last):\n  File ")
    beside = [line for line in ended.err.splitlines() if "inplace_magic" in line]
    assert all(re.fullmatch(r"inplace_magic: .*, \d+ s", line) for line in beside), "only that work is under way"
    assert " 5 │ y += 1  # here" in ended.out and "your session" not in ended.out
    diff = ["--- train.py", "+++ train.py", "@@ -3,4 +3,4 @@", " w = torch.randn(3, requires_grad=True)",
            " y = w.exp()", "-y += 1  # here", "+y = y + 1  # here", " y.sum().backward()"]  # fmt: skip
    assert "\n".join(diff) in ended.out
    assert "%autograd_fix" not in ended.out
    assert sorted(os.listdir(tmp_path)) == ["train.py"]


def test_module_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    script(tmp_path / "code", "def grow(x):\n    x += 1\n    return x\n", "growth.py")
    path = script(
        tmp_path / "code",
        "import torch, growth\nw = torch.ones(2, requires_grad=True)\ngrowth.grow(w.exp()).sum().backward()\n",
    )
    ended = command("--fix", "code/train.py", folder=tmp_path)
    assert ended.status == 1 and os.path.join("code", "growth.py") in ended.out and "2 │ x += 1" in ended.out
    assert "x = x + 1" in (tmp_path / "code" / "growth.py").read_text() and "growth.grow(w.exp())" in path.read_text()
    assert command(path, folder=tmp_path).status == 0


@needs_replica
def test_where_the_process_cannot_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inplace_magic.sandbox import may_fork

    monkeypatch.setattr(may_fork, "why_not", lambda: "CUDA is in use")
    script(tmp_path, "def grow(x):\n    x += 1\n    return x\n", "growth_b.py")
    script(
        tmp_path,
        "import torch, growth_b\nw = torch.ones(2, requires_grad=True)\ngrowth_b.grow(w.exp()).sum().backward()\n",
    )
    (found,) = command("--json", "--fix", "train.py", folder=tmp_path).findings
    assert found["fixes"][0]["verified"] and "x = x + 1" in (tmp_path / "growth_b.py").read_text()
    assert command("--check", "train.py", folder=tmp_path).status == 0


def test_a_part_that_is_detached_is_told_of_and_no_finding_of_a_script(tmp_path: Path) -> None:
    text = """
        import torch
        gate, net = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        opt = torch.optim.SGD([*gate.parameters(), *net.parameters()], 0.1)
        for x in torch.rand(2, 4, 3):
            loss = net(gate(x).detach()).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    script(tmp_path, textwrap.dedent(text))
    before = (tmp_path / "train.py").read_text()
    ended = command("--check", "--fix", "train.py", folder=tmp_path)
    assert ended.status == 0
    assert "If that is meant, leave it out of the optimizer" in " ".join(ended.out.split())
    assert "nothing found" not in ended.out + ended.err
    assert (tmp_path / "train.py").read_text() == before


def test_as_a_command_of_its_own(tmp_path: Path) -> None:
    """Once in a process of its own, as people run it."""
    script(tmp_path, """
        import sys
        import __main__

        if __name__ == "__main__":
            assert sys.argv == ["train.py", "--check", "--lr", "3"], sys.argv
            assert __main__.__file__.endswith("train.py") and sys.path[0].endswith("folder"), sys.path
            assert sys.stdin.read() == "typed"
            print("done")
        """)  # fmt: skip
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "train.py").rename(folder / "train.py")
    ended = subprocess.run(
        [sys.executable, "-m", "inplace_magic", "train.py", "--check", "--lr", "3"],
        cwd=folder, input="typed", capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(PROGRAMS.parent.parent)},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


# ---- scripts of every kind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "out", "err"),
    [
        pytest.param("print('fine')", 0, "fine\n", "", id="no torch at all"),
        pytest.param("import sys; sys.exit(3)", 3, "", "", id="exits"),
        pytest.param("import sys; sys.exit()", 0, "", "", id="exits with nothing"),
        pytest.param("raise SystemExit('no data')", 1, "", "no data\n", id="exits with words"),
        pytest.param("import os; os._exit(4)", 4, "", "", id="exits at once"),
        pytest.param("print(input())", 0, "typed\n", "", id="reads stdin"),
        pytest.param("import atexit, signal\nsignal.signal(signal.SIGTERM, lambda *a: None)\nprint(1)", 0, "1\n", "", id="signal handlers"),
        pytest.param("import os\nif os.fork() == 0:\n    raise SystemExit(0)\nos.wait()\nprint('one')", 0, "one\n", "", id="forks"),
        pytest.param("import os\npid = os.fork()\nif pid: os.wait()\nprint('end', flush=True)", 0, "end\nend\n", "", id="both ends of a fork"),
        pytest.param("import json\nprint(json.dumps(__name__))", 0, '"__main__"\n', "", id="its name"),
    ],
)  # fmt: skip
def test_script_runs_as_python_runs_it(text: str, status: int, out: str, err: str, tmp_path: Path) -> None:
    script(tmp_path, text)
    ended = command("train.py", folder=tmp_path, stdin="typed\n")
    assert (ended.status, ended.out, ended.err) == (status, out, err)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        pytest.param("1 / 0", "ZeroDivisionError: division by zero", id="another error"),
        pytest.param("def f(:", "SyntaxError: invalid syntax", id="syntax"),
        pytest.param("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'", id="import"),
        pytest.param("import torch\ntorch.ones(2) @ torch.ones(3)", "RuntimeError: ", id="another error of torch"),
    ],
)  # fmt: skip
def test_other_failures_are_the_scripts_own(text: str, last: str, tmp_path: Path) -> None:
    script(tmp_path, text)
    ended = command("train.py", folder=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith(last) and "inplace_magic" not in ended.err


def test_own_hook_for_errors(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nsys.excepthook = lambda kind, error, tb: print('mine:', error)\n1 / 0")
    ended = command("train.py", folder=tmp_path)
    assert (ended.status, ended.out) == (2, "mine: division by zero\n")


def test_prints_a_lot(tmp_path: Path) -> None:
    script(tmp_path, "line = 'x' * 1023\nfor _ in range(20_000):\n    print(line)\n")
    ended = command("--json", "train.py", folder=tmp_path)
    assert (ended.status, ended.out, len(ended.err)) == (0, "", 20_000 * 1024)


def test_alarm_does_not_end_the_explanation(tmp_path: Path) -> None:
    ring = "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\n"
    last = "try:\n    y.sum().backward()\nfinally:\n    signal.setitimer(signal.ITIMER_REAL, 0.02)"
    script(tmp_path, ring + BROKEN.replace("y.sum().backward()", last))
    ended = command("train.py", folder=tmp_path)
    assert ended.status == 1 and "verified" in ended.out


def test_failure_in_a_forked_process_is_its_own(tmp_path: Path) -> None:
    text = BROKEN.replace(
        "y.sum()", "import os\nif os.fork():\n    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))\ny.sum()"
    )
    script(tmp_path, text)
    ended = command("train.py", folder=tmp_path)
    assert (ended.status, ended.out) == (2, "") and "modified by an inplace operation" in ended.err


def test_own_arguments_reach_the_rerun(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nsize = int(sys.argv.pop())\n" + BROKEN.replace("randn(3", "randn(size"))
    ended = command("--json", "train.py", "--fix", "4", folder=tmp_path)
    (found,) = ended.findings
    assert found["fixes"] and "y += 1" in (tmp_path / "train.py").read_text()  # --fix was the script's


def test_script_that_writes_is_fixed_and_what_it_wrote_is_written_once(tmp_path: Path) -> None:
    path = script(tmp_path, "open('log.txt', 'a').write('1')\n" + BROKEN)
    ended = command("--fix", "train.py", folder=tmp_path)
    assert ended.status == 1 and (tmp_path / "log.txt").read_text() == "1"
    assert "y = y + 1" in path.read_text()
    assert command("train.py", folder=tmp_path).status == 0


# ---- fixes that cannot be written ---------------------------------------------------------------------------------


def test_with_side_effects_allowed_a_rerun_writes_again(tmp_path: Path) -> None:
    path = script(tmp_path, "open('log.txt', 'a').write('1')\n" + BROKEN)
    assert command("--allow-side-effects", "--fix", "train.py", folder=tmp_path).status == 1
    assert "y = y + 1" in path.read_text() and len((tmp_path / "log.txt").read_text()) > 1


def test_fix_is_not_written_outside_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    path = script(tmp_path, BROKEN)
    ended = command("--fix", path, folder=tmp_path / "here")
    assert ended.status == 1 and "lies outside the working directory" in ended.err
    assert "y += 1" in path.read_text() and sorted(os.listdir(tmp_path)) == ["here", "train.py"]


def test_script_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    once = """
        import os
        if not os.path.exists("mark"):
            open("mark", "w").close()
            with open("train.py", "a") as file:
                file.write("# mine")
    """
    path = script(tmp_path, textwrap.dedent(once) + BROKEN)
    ended = command("--json", "--fix", "train.py", folder=tmp_path)
    assert ended.status == 1 and ended.findings[0]["fixes"]
    assert "nothing was written: train.py has changed since it was diagnosed" in ended.err
    assert path.read_text().endswith("# mine") and "y += 1" in path.read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_folder(tmp_path: Path) -> None:
    path = script(tmp_path, BROKEN)
    os.chmod(tmp_path, 0o500)
    ended = command("--fix", "train.py", folder=tmp_path)
    os.chmod(tmp_path, 0o700)
    assert ended.status == 1 and "cannot be written (Permission denied)" in ended.err
    assert "y += 1" in path.read_text() and os.listdir(tmp_path) == ["train.py"]


# ---- modules by their names ---------------------------------------------------------------------------------------


def package(folder: Path, main: str) -> None:
    """``code`` with ``code.steps``, which it imports by a dot, and ``code.train``."""
    (folder / "project").mkdir()
    script(folder, "print('package', __name__)", "project/__init__.py")
    script(folder, "def shifted(y):\n    y += 1\n    return y\n", "project/steps.py")
    script(folder, main, "project/train.py")


MODULE = """
import sys
import torch
from .steps import shifted

print(__name__, __package__, __spec__.name, sys.argv[1:], sys.path[0])
w = torch.ones(3, requires_grad=True)
shifted(w.exp()).sum().backward()
"""


@pytest.mark.parametrize("names", ["-m project.train", "-m project"])
def test_a_module_runs_as_python_runs_it(names: str, tmp_path: Path) -> None:
    package(tmp_path, MODULE.replace("shifted(w.exp())", "w.exp()"))
    (tmp_path / "project" / "__main__.py").write_text((tmp_path / "project" / "train.py").read_text())
    ended = command(*names.split(), "--lr", "1", folder=tmp_path)
    plain = subprocess.run(
        [sys.executable, *names.split(), "--lr", "1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ended.status, ended.out) == (plain.returncode, plain.stdout) and ended.out.startswith("package project\n")


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_module_is_explained_and_fixed(sandbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, MODULE)
    if sandbox == "replica":
        monkeypatch.setattr(may_fork, "why_not", lambda *given: "no")
    ended = command("--json", "--fix", "-m", "project.train", folder=tmp_path)
    assert ended.status == 1
    (found,) = ended.findings
    assert found["changed"]["filename"] == str(tmp_path / "project" / "steps.py")
    assert found["fixes"][0]["verified"] and found["fixes"][0]["gradients"] == "same"
    assert "y = y + 1" in (tmp_path / "project" / "steps.py").read_text()
    assert command("-m", "project.train", folder=tmp_path).status == 0


@pytest.mark.parametrize("name", ["nowhere", "project.nothing", "project", "math", "json.decoder.x", ".train", ""])
def test_a_module_that_is_none_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    package(tmp_path, MODULE)
    ended = command("-m", name, folder=tmp_path)
    assert ended.status == 2
    assert f"there is no module {name} that can be run" in ended.err.splitlines()[-1] and "Traceback" not in ended.err


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_pipe_that_lacks_characters_gets_the_report(encoding: str, language: str, tmp_path: Path) -> None:
    script(tmp_path, BROKEN)
    ended = command("--language", language, "--check", "train.py", folder=tmp_path, encoding=encoding)
    assert ended.status == 1, ended.err
    assert "y += 1  # here" in ended.out and "+y = y + 1  # here" in ended.out
    assert "UnicodeEncodeError" not in ended.err


# ---- bad use ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(["nope.py"], "there is no nope.py", id="missing"),
        pytest.param(["--language", "zh", "nope.py"], "nope.py 不存在", id="missing, in Chinese"),
        pytest.param(["data.txt"], "data.txt is neither a script", id="neither"),
        pytest.param(["."], "there is no notebook in .", id="folder without notebooks"),
        pytest.param(["--check"], "has to be named", id="no target"),
        pytest.param(["--limit", "soon", "a.py"], "'soon' is not a number of seconds above 0", id="limit"),
        pytest.param(["--limit=-1", "a.py"], "'-1' is not a number of seconds above 0", id="negative limit"),
        pytest.param(["--cells", "x", "a.ipynb"], "'x' is not a list of numbers such as 3,5-8", id="cells"),
        pytest.param(["--cells", "3", "latin.py"], "--cells is for notebooks", id="cells of a script"),
        pytest.param(["--unknown", "latin.py"], "unrecognized arguments: --unknown", id="unknown option"),
        pytest.param(["latin.py"], "latin.py cannot be read (", id="encoding"),
    ],
)  # fmt: skip
def test_bad_use_is_one_line(arguments: list[str], line: str, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1")
    (tmp_path / "latin.py").write_bytes("# ä\n".encode("latin-1"))
    ended = command(*arguments, folder=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert line in ended.err.splitlines()[-1] and "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(["--limit", "x", "a.py"], "错误：参数 --limit：'x' 不是大于 0 的秒数", id="a value of ours"),
        pytest.param(["--unknown"], "错误：无法识别的参数：--unknown", id="unknown option"),
        pytest.param(["--limit"], "错误：参数 --limit：需要一个值", id="no value"),
        pytest.param(["--check=3", "a.py"], "错误：参数 --check：不接受值 '3'", id="a value too many"),
        pytest.param(["--check"], "请指定一个脚本", id="no target"),
    ],
)
@pytest.mark.parametrize("language", [["--language", "zh"], ["--language=zh"]], ids=["apart", "joined"])
def test_bad_use_in_chinese(language: list[str], arguments: list[str], line: str, tmp_path: Path) -> None:
    ended = command(*language, *arguments, folder=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert line in ended.err.splitlines()[-1]
    assert "usage" not in ended.err and "error" not in ended.err


def test_a_language_that_is_none(tmp_path: Path) -> None:
    ended = command("--language", "fr", "a.py", folder=tmp_path)
    assert ended.status == 2 and "invalid choice: 'fr'" in ended.err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_help_in_both_languages(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # in a narrow terminal a command is wrapped
    shown = {lang: command("--language", lang, "--help", folder=tmp_path, encoding=encoding) for lang in LANGUAGES}
    options = {lang: re.findall(r"^ +(-.*?)(?:  |$)", ended.out, re.MULTILINE) for lang, ended in shown.items()}
    assert [ended.status for ended in shown.values()] == [0, 0]
    assert len(options["en"]) == len(options["zh"]) > 8
    assert "%load_ext inplace_magic" in shown["en"].out and "%load_ext inplace_magic" in shown["zh"].out
    words = set(re.findall(r"\b[a-z]{3,}\b", shown["zh"].out)) - {
        "python",
        "inplace",
        "magic",
        "load",
        "ext",
        "autograd",
    }
    names = set(re.findall(r"\b[a-z]{3,}\b", " ".join(options["en"]))) | {"fix", "json", "auto", "place", "orig"}
    assert words <= names, "nothing is left in English but names"
    assert max(map(cell_len, shown["zh"].out.splitlines())) <= 100
    assert argparse._ is gettext.gettext  # type: ignore[attr-defined]


def test_a_program_of_the_persons_own_speaks_its_own_language(tmp_path: Path) -> None:
    script(tmp_path, "import argparse; argparse.ArgumentParser().parse_args()")
    ended = command("--language", "zh", "train.py", "--theirs", folder=tmp_path)
    assert ended.status == 2 and "error: unrecognized arguments: --theirs" in ended.err


def test_interrupted(tmp_path: Path) -> None:
    script(tmp_path, "raise KeyboardInterrupt")
    ended = command("train.py", folder=tmp_path)
    assert ended.status == 130 and ended.err.endswith("KeyboardInterrupt\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---- pytest -------------------------------------------------------------------------------------------------------


def test_fixture_fails_a_test_with_a_wrong_gradient(tmp_path: Path) -> None:
    script(tmp_path, """
        import torch

        def step(hidden):
            x = torch.ones(2, requires_grad=True)
            loss = (x ** 2).sum()
            (x.data if hidden else x.detach().clone()).add_(1)
            loss.backward()

        def test_right(autograd_check):
            step(hidden=False)

        def test_wrong(autograd_check):
            step(hidden=True)
        """, "test_steps.py")  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "inplace_magic.pytest_plugin", "test_steps.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(PROGRAMS.parent.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert "2 passed, 1 error" in ended.stdout and "SilentGradientError" in ended.stdout, ended.stdout
    assert "ERROR at teardown of test_wrong" in ended.stdout and "test_steps.py:6" in ended.stdout
