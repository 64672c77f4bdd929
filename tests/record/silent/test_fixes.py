"""What is silently wrong gets a fix, and the fixed program's gradients are right by a reference of their own."""

from __future__ import annotations

import textwrap
from operator import attrgetter

import pytest

from ...breadth import broad
from ...cells import new_shell, run_in
from .programs import PROGRAMS, START, Program, kind
from .running import close, differences, gradients, run

CHECK = "%%autograd_check\n"


@pytest.mark.parametrize("program", broad([p for p in PROGRAMS if p.fixable], 4, attrgetter("name"), kind))
def test_its_fix_gives_the_right_gradients(program: Program) -> None:
    shell = new_shell()
    setup = [START, textwrap.dedent(program.setup)] if program.setup else [START]
    run_in(shell, [*setup, "torch.manual_seed(5)"])
    found = run_in(shell, [CHECK + program.wrong]).diagnosis
    assert found is not None and found.fixes, found and found.notes
    for fix in found.fixes[:1]:
        texts = [text.removeprefix(CHECK) for text in fix.cells.values() if text.startswith(CHECK)]
        assert len(fix.cells) == len(texts) == 1, "the cell by itself can be run"
        (fixed,) = texts
        reference = (
            differences(program, fixed) if program.by == "differences" else gradients(run(program, program.twin))
        )
        assert close(gradients(run(program, fixed)), reference), fix.diff
