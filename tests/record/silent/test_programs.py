"""Every program is wrong, its twin is right; the watch finds the one with its line, and nothing in the other."""

from __future__ import annotations

import textwrap
from operator import attrgetter

import pytest
import torch

from ...breadth import broad
from ...cells import new_shell, run_in
from .programs import PROGRAMS, START, Program, kind
from .running import close, differences, gradients, run, watch

# No call shows these writes: a watch finds their effect, and a rerun that compares after every line their place.
SHOWN_BY_RERUN = {
    "memory set from C",
    "memory set from C ahead of a third backward",
    "memory moved from C",
    "torch.jit.script with .data",
    "shared memory written by way of its buffer",
}
# Their gradient is what happened to lie in memory.
UNWRITTEN = {"a randomised relu under hooks that take copies", "a randomised relu in a checkpoint"}
EACH = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
BY_DIFFERENCES = [program for program in PROGRAMS if program.by == "differences"]


def test_there_are_enough_of_them() -> None:
    assert len(PROGRAMS) >= 60
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)


@EACH
def test_nothing_is_found_in_the_twin(program: Program) -> None:
    seen = watch(program, program.twin)
    assert seen.problem is None
    assert [finding.sentence for finding in seen.findings] == []


@pytest.mark.parametrize("program", broad(BY_DIFFERENCES, 6, attrgetter("name"), kind))
def test_the_program_is_wrong_and_its_twin_is_right_by_differences(program: Program) -> None:
    assert not close(gradients(run(program, program.wrong)), differences(program, program.wrong))
    assert close(gradients(run(program, program.twin)), differences(program, program.twin))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in BY_DIFFERENCES], ids=lambda program: program.name)
def test_the_program_gives_other_gradients_than_its_twin(program: Program) -> None:
    assert not close(gradients(run(program, program.wrong)), gradients(run(program, program.twin)))


@EACH
def test_it_is_found_with_its_line(program: Program) -> None:
    seen = watch(program, program.wrong)
    assert seen.problem is None
    assert seen.findings
    changed = seen.findings[0].changed
    if program.line and program.name not in SHOWN_BY_RERUN:
        assert changed is not None and changed.text in {text for _, text in program.blamed}
    else:
        assert changed is None


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name not in UNWRITTEN], ids=lambda program: program.name)
def test_its_result_is_what_it_is_without_a_watch(program: Program) -> None:
    plain = gradients(run(program, program.wrong))
    names: dict[str, object] = {}

    def watched() -> dict[str, torch.Tensor]:
        import inplace_magic

        with inplace_magic.check():
            names.update(run(program, program.wrong))
        return gradients(names)

    for name, gradient in watched().items():
        assert torch.equal(gradient, plain[name]), name


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name in SHOWN_BY_RERUN], ids=lambda program: program.name)
def test_a_rerun_shows_the_line_of_what_no_call_shows(program: Program) -> None:
    shell = new_shell()
    run_in(shell, [START, textwrap.dedent(program.setup), "torch.manual_seed(5)"])
    found = run_in(shell, ["%%autograd_check\n" + program.wrong]).diagnosis
    assert found is not None and found.changed is not None
    assert found.changed.text in {text for _, text in program.blamed}
