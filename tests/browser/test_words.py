"""The panel and the package's other reports say the same in the same words, whatever a diagnosis holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inplace_magic.report import bundle, html
from inplace_magic.report.contents import report_of
from inplace_magic.report.escape import visible

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.report.samples import ALL

HARMFUL = "script, img, iframe, svg, object, marquee, form"


def said_of(diagnosis):
    """Every sentence that a report of it has to hold, but for what only this session's kernel may claim."""
    report = report_of(diagnosis)
    yield report.headline
    yield from report.sentences
    yield from report.notes
    for block in report.blocks:
        yield block.name
        for line in block.lines:
            yield from (str(line.number), line.text, *(mark.label for mark in line.marks))
    for fix in report.fixes:
        yield from fix.clauses
        if len(report.fixes) > 1:
            yield fix.name
    yield report.no_fix


def squeezed(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def payload_of(diagnosis):
    """Without lone surrogates, which no file can hold."""
    return without_surrogates(bundle.bundle(diagnosis, width=80)[bundle.MIME])


def without_surrogates(data):
    if isinstance(data, dict):
        return {key: without_surrogates(value) for key, value in data.items()}
    if isinstance(data, list):
        return [without_surrogates(item) for item in data]
    return data.replace("\ud800", "") if isinstance(data, str) else data


@pytest.fixture
def show(pages):
    """Opens every sample in one notebook, as somebody else's file: nothing has been run, nothing is trusted."""

    def show_all(make_bundle):
        page = pages("lab")
        outputs = {at: make_bundle(diagnosis) for at, diagnosis in enumerate(ALL.values())}
        page.write("samples.ipynb", *(f"# {name}" for name in ALL), outputs=outputs)
        page.open("samples.ipynb")
        return page

    return show_all


def check(page, name, diagnosis, shown):
    shown.scroll_into_view_if_needed()
    text = squeezed(shown.text_content())
    page.picture(f"sample-{name}", shown)
    missing = [said for said in said_of(diagnosis) if squeezed(visible(said).replace("\\ud800", "")) not in text]
    assert not missing, name
    assert shown.locator(HARMFUL).count() == 0


def test_the_panel_says_what_the_package_says(show):
    page = show(lambda diagnosis: {bundle.MIME: payload_of(diagnosis), "text/plain": "plain"})
    for at, (name, diagnosis) in enumerate(ALL.items()):
        check(page, name, diagnosis, page.panel(at))


def test_where_only_html_is_shown_it_says_the_same_and_how_to_accept(show):
    page = show(lambda diagnosis: {"text/html": html.render(diagnosis)})
    for at, (name, diagnosis) in enumerate(ALL.items()):
        shown = page.cell(at).locator(".jp-RenderedHTMLCommon")
        check(page, f"{name}-html", diagnosis, shown)
        assert ("%autograd_fix accepts it" in shown.text_content()) == bool(diagnosis.fixes)
