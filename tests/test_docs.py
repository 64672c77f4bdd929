"""Each example of the README and of the docs runs, in the order of its page, and shows what the page says it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inplace_magic.tour import SITUATIONS
from tests.cells import new_shell, run_cells, run_in

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_and_show_what_the_page_says(page: Path) -> None:
    shell, output = new_shell(), ""
    for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            output = run_in(shell, [text]).output
            if "Error" in output and "In-place" not in output:
                raise AssertionError(f"{text}\n{output}")
        elif kind == "text" and page.name != "README.md":
            missing = [line for line in text.splitlines() if squeezed(line) not in squeezed(output)]
            assert not missing, output


def test_the_readmes_report_is_the_report() -> None:
    (situation,) = [one for one in SITUATIONS if "feature16" in one.title]
    shown = run_cells(*situation.cells[:2], "loss = net(img).pow(2).mean()\nloss.backward()").output
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (report,) = [block for kind, block in _BLOCK.findall(text) if kind == "text"]
    told = [line for line in report.splitlines() if "your session" not in line and "accepts fix" not in line]
    assert [line for line in told if line not in shown.splitlines()] in ([], ["Fix 1 · verified, same gradients"])


def test_the_readmes_first_screen_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.split("## More")[0].count("\n") < 60
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
