"""The corpus in tests/cases: small notebooks that fail as people's notebooks do, each with the lines to blame.

A case is a percent-format file. Its ``[case]`` header says what goes wrong and where (``culprit``, ``saved``,
``needed``: CELL:LINE, alternatives separated by ``|``); cells follow, and ``[fixed N]``, cell N as a person fixed it.
Each case is worked through in a process of its own: once plainly, once with the extension, as a user would.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import pkgutil
import random
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import rich.console  # noqa: F401
import torch
import torch._dynamo
from IPython.core import application, completer, magics  # noqa: F401

import inplace_magic
from inplace_magic.families import family_of
from inplace_magic.message import kind_of
from inplace_magic.sandbox import process_memory

from .breadth import broad
from .cells import new_shell, plain_shell

FOLDER = Path(__file__).parent / "cases"
CHECK = "%%autograd_check\n"
# What the first shell, optimizer and report of a process load: each case would do so anew.
for module in pkgutil.walk_packages(inplace_magic.__path__, "inplace_magic."):
    if not module.name.endswith(("__main__", "pytest_plugin")):
        importlib.import_module(module.name)
QUIET = ("none", "other")  # families of cases about which there is nothing to say
_LIMIT_S = 120

# What the package does not manage yet, by case and aspect, with the reason. Strict: a line that is no longer true fails.
# Worked through once more as in a session whose copy must not write much.
LARGE_SESSIONS = (
    "cached_speaker_embedding_in_inference_mode", "deep_mutual_learning_two_steps",
    "dreamer_value_step_before_actor_backward", "joint_limits_clamped_on_parameter_slice",
    "memory_bank_built_in_inference_mode", "qmix_agents_share_the_mixer", "saved_log_probs_never_cleared",
    "trainer_class_d_step_then_g_step", "vae_gan_three_optimizers_ko",
)  # fmt: skip
SHORTFALLS: dict[str, dict[str, str]] = {}


# ---- reading ----------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One file: its header, its cells, and the cells as a person fixed them."""

    header: dict[str, str]
    cells: list[str]
    fixed: dict[int, str] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.header["family"]

    @property
    def last(self) -> int:
        """The number of the cell that fails, or of the last one where none does."""
        fails = self.header["fails"]
        return len(self.cells) if fails == "-" else int(fails)

    def lines(self, key: str) -> list[tuple[int, int]]:
        text = self.header[key]
        if text == "-":
            return []
        places = (place.split(":") for place in text.split("|"))
        return [(int(cell), int(line)) for cell, line in places]

    def with_cells(self, cells: dict[int, str]) -> list[str]:
        return [cells.get(number, text) for number, text in enumerate(self.cells, 1)]


def read(path: Path) -> Case:
    header: dict[str, str] = {}
    cells: list[str] = []
    fixed: dict[int, str] = {}
    for block in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        tag, _, body = block.partition("\n")
        if tag.strip() == "[case]":
            header = dict(line.removeprefix("# ").split(": ", 1) for line in body.splitlines())
        elif found := re.fullmatch(r"\s*\[fixed (\d+)\]\s*", tag):
            fixed[int(found[1])] = body
        else:
            cells.append(body)
    return Case(header, cells, fixed)


# ---- working through one case, in a process of its own -----------------------------------------------------------


def run(shell: Any, cells: list[str]) -> BaseException | None:
    """Runs cells until one raises; its exception."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in cells:
            result = shell.run_cell(cell, store_history=True)
            error = result.error_before_exec or result.error_in_exec
            if error is not None:
                return error
    return None


def outcome(case: Case, cells: list[str]) -> tuple[BaseException | None, Any]:
    """What the cells come to in a session without the extension: an error, or the values that the case compares."""
    torch.manual_seed(0)
    shell = plain_shell()
    error = run(shell, cells)
    if error is None:
        try:
            return None, eval(case.header["observe"], shell.user_ns)
        except Exception as missing:
            error = missing
    return error, None


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        same = isinstance(b, torch.Tensor) and a.shape == b.shape
        return same and torch.allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-6, equal_nan=True)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return bool(a == b)


def state(shell: Any, known: set[str]) -> dict[str, Any]:
    """What a session holds: values, versions and gradients of its tensors, modules, optimizers; random states."""

    def one(value: Any, depth: int = 0) -> Any:
        if isinstance(value, torch.Tensor):
            grad = value.grad if not value.is_inference() and value.is_leaf else None
            version = -1 if value.is_inference() else value._version
            numbers = value.detach().cpu().reshape(-1).tolist()
            return version, value.requires_grad, str(numbers), None if grad is None else one(grad)
        if isinstance(value, torch.nn.Module):
            own = sorted((k, one(v, depth + 1)) for k, v in vars(value).items() if not k.startswith("_"))
            return value.training, [(k, one(v)) for k, v in value.state_dict(keep_vars=True).items()], own
        if isinstance(value, torch.optim.Optimizer):
            return [(k, one(v)) for per in value.state.values() for k, v in per.items()]
        if isinstance(value, list | tuple | dict) and depth < 4:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            return [(str(k), one(v, depth + 1)) for k, v in items]
        if type(value).__module__ == "__main__" and depth < 4:
            return sorted((k, one(v, depth + 1)) for k, v in vars(value).items())
        return value if isinstance(value, int | float | str | bool | None) else type(value).__name__

    hidden = {"In", "Out", "exit", "quit", "get_ipython"} | known
    held = {k: one(v) for k, v in shell.user_ns.items() if not k.startswith("_") and k not in hidden}
    held["random states"] = (torch.get_rng_state().tolist(), str(random.getstate()))
    return held


def work_through(case: Case) -> dict[str, str]:  # noqa: C901 - one run for all aspects, one after the other
    """The aspects that fall short, each with what was found instead."""
    torch.set_num_threads(1)
    short: dict[str, str] = {}
    before = []
    for _ in range(2):  # twice: what differs by itself (a folder's name) is nobody's doing
        shell = plain_shell()
        known = set(shell.user_ns)
        error = run(shell, case.cells[: case.last])
        before.append(state(shell, known))
    expected = None if case.family in ("silent", *QUIET) else case.family
    if family_of(error) != expected or (error is None) != (case.header["fails"] == "-"):
        short["sound"] = f"raised {error!r}"
    _, human = outcome(case, case.with_cells(case.fixed))
    if case.family not in QUIET and human is None:
        short["sound"] = "the person's own fix does not run"

    checked = case.family == "silent"
    shell = new_shell()
    known = set(shell.user_ns)
    cells = case.cells[: case.last]
    run(shell, [*cells[:-1], CHECK + cells[-1]] if checked else cells)
    after = state(shell, known)
    stable = {k for k in before[0] if before[0][k] == before[1][k]}
    touched = [k for k in sorted(stable | after.keys()) if k in stable and before[0][k] != after.get(k)]
    if touched or after.keys() - before[0].keys():
        short["untouched"] = f"{touched}, new: {sorted(after.keys() - before[0].keys())}"

    found = inplace_magic.last_diagnosis()
    if case.family in QUIET:
        if case.family == "none" and found is None:
            shell = new_shell()
            run(shell, [*case.cells[:-1], CHECK + case.cells[-1]])
            found = inplace_magic.last_diagnosis()
        if found is not None:
            short["quiet"] = f"said {found.headline!r}"
        return short
    if found is None or found.family != case.family:
        short["recognised"] = str(found and found.family)
    for aspect, place in (("culprit", "changed"), ("saved", "saved"), ("needed", "needed")):
        said = getattr(found, place, None)
        at = (said.cell, said.line - (checked and said.cell == case.last)) if said is not None else None
        if case.lines(aspect) and at not in case.lines(aspect):
            short[aspect] = f"said {at}, expected one of {case.lines(aspect)}"
    if found is None or not found.fixes:
        return short | {"fix": "no fix", "accepted": "no fix"}
    error = run(shell, ["%autograd_fix --run"])
    if error is not None:
        short["accepted"] = repr(error)
    for i, fix in enumerate(found.fixes):
        error, got = outcome(case, case.with_cells({n: text.removeprefix(CHECK) for n, text in fix.cells.items()}))
        if i == 0 and error is not None:
            short["fix"] = f"{fix.title}: {error!r}"
        # What keeps the result of the code as written, and says that this was probably not meant, claims no more.
        claims = fix.gradients == "same" and "change_keeps_mistake" not in map(kind_of, fix.changes)
        if claims and case.header["effect"] == "same" and not alike(got, human):
            short["truthful"] = f"{fix.title}: not the values of the person's fix"
    return short


# ---- in a process of its own -------------------------------------------------------------------------------------


def _worker(path: Path, large: bool, out: Any) -> None:
    if large:
        process_memory.own_bytes = lambda: 2**40
    try:
        out.send(work_through(read(path)))
    except BaseException as error:
        out.send(error)


def shortfalls(path: Path, large: bool = False) -> dict[str, str]:
    """What ``work_through`` finds, in a process that is a copy of this one; its errors are raised here."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("processes cannot be forked here")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_worker, args=(path, large, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(_LIMIT_S) else TimeoutError(f"no answer in {_LIMIT_S} s")
    except EOFError:
        found = RuntimeError("the process died")
    finally:
        ours.close()
        process.kill()
        process.join()
    if isinstance(found, BaseException):
        raise found
    return found  # type: ignore[no-any-return]


PATHS = sorted(FOLDER.glob("*.py"))


def test_a_case_is_well_formed() -> None:
    keys = ["id", "source", "family", "fails", "culprit", "saved", "needed", "effect", "observe", "note"]
    for path in PATHS:
        case = read(path)
        assert list(case.header) == keys, path.stem
        assert case.header["id"].replace("-", "_") == path.stem
        assert case.header["effect"] in ("same", "truncates", "other"), path.stem
        for key in ("culprit", "saved", "needed"):
            assert all(1 <= line <= len(case.cells[cell - 1].splitlines()) for cell, line in case.lines(key)), path.stem
        assert set(case.fixed) <= set(range(1, len(case.cells) + 1)), path.stem
        assert bool(case.fixed) or case.family in QUIET, path.stem


def test_the_shortfalls_name_cases() -> None:
    assert SHORTFALLS.keys() <= {read(path).header["id"] for path in PATHS}


def _kind(path: Path) -> tuple[str, str]:
    """Where nothing is to be said, each case is of a kind of its own."""
    case = read(path)
    return case.family, path.stem if case.family in QUIET else case.header["effect"]


def _runs() -> list[Any]:
    """Each with its first fix; in every third, of those in the README's command every sixth, all fixes are looked at."""
    runs = broad(PATHS, 5, lambda path: path.stem, _kind)
    return [
        pytest.param(*run.values, id=run.id, marks=[*run.marks, pytest.mark.all_fixes])
        if at % (3 if run.marks else 6) == 0
        else run
        for at, run in enumerate(runs)
    ]


@pytest.mark.parametrize("path", _runs())
def test_case(path: Path) -> None:
    """Sound, recognised, the lines, a fix that runs, truthful, accepted, untouched, quiet: all but what is known to fall short."""
    found = shortfalls(path)
    known = SHORTFALLS.get(read(path).header["id"], {})
    assert {aspect: said for aspect, said in found.items() if aspect not in known} == {}
    assert known.keys() <= found.keys(), "it no longer falls short there: SHORTFALLS is to say so"


@pytest.mark.parametrize("path", broad([FOLDER / f"{name}.py" for name in LARGE_SESSIONS], 3, lambda path: path.stem))
def test_in_a_large_session(path: Path) -> None:
    """Where no second model is made for speed, and optimizers' steps write little, the answers are the same."""
    assert shortfalls(path, large=True) == {}
