"""The panel and the package's other reports say the same in the same words, whatever a diagnosis holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from inplace_magic.report import bundle, words
from inplace_magic.report.clean import visible

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from samples import ALL


def said_of(diagnosis):
    """Every sentence that a report of it has to hold."""
    yield words.took(diagnosis)
    yield words.further(diagnosis.conflicts)
    for row in words.rows(diagnosis.conflicts[0], diagnosis.family) if diagnosis.conflicts else ():
        yield from (row.label, row.code, f"{row.here} {row.note}")
    for fix in diagnosis.fixes:
        yield from (words.proof(fix), words.runs_again(fix))
    if not diagnosis.fixes:
        yield words.no_fix(diagnosis)


def squeezed(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def payload_of(diagnosis):
    """Without lone surrogates, which no file can hold."""
    return json.loads(json.dumps(diagnosis.to_dict()).replace("\\ud800", ""))


@pytest.fixture
def shown(pages, folder):
    """Every sample in one notebook, as somebody else's file: nothing has been run."""
    page = pages("lab")
    outputs = {at: {bundle.MIME: payload_of(diagnosis)} for at, diagnosis in enumerate(ALL.values())}
    page.write("samples.ipynb", *(f"# {name}" for name in ALL), outputs=outputs)
    page.open("samples.ipynb")
    return page


def test_the_panel_says_what_the_package_says(shown):
    for at, (name, diagnosis) in enumerate(ALL.items()):
        panel = shown.panel(at)
        panel.scroll_into_view_if_needed()
        text = squeezed(panel.text_content())
        shown.picture(f"sample-{name}", panel)
        missing = [said for said in said_of(diagnosis) if squeezed(visible(said).replace("\\ud800", "")) not in text]
        assert not missing, name
        assert panel.locator("script, img, iframe, svg, object, marquee, form").count() == 0
