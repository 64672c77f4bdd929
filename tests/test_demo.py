"""The demo runs from the top, and what it shows is what it has stored.

INPLACE_MAGIC_WRITE_DEMO=1 stores its outputs anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
from tests.kernels import run_notebook  # noqa: E402

pytestmark = pytest.mark.all_fixes

DEMO = Path(__file__).parents[1] / "demo.ipynb"
MIME = "application/vnd.inplace-magic.v1+json"
FAMILIES = {
    "rnn": ("modified", "optimizer.step()"),
    "gan": ("modified", "optimizer_d.step()"),
    "relu": ("modified", "self.act(hidden)"),
    "model": ("modified", "x += feature16"),
    "leaf": ("leaf", "weight -= "),
    "silent": ("silent", "x.data += 1"),
}
PRINTED = {
    "rnn": "trained on 20 sequences",
    "gan": "10 steps",
    "relu": "gradient of conv1",
    "model": "the same weights: True",
    "leaf": "found [1.0, -2.0, 0.5]",
    "silent": "gradient [2.0, 4.0, 6.0]",
}


@pytest.fixture(scope="module")
def stored() -> Any:
    return nbformat.read(DEMO, as_version=4)


@pytest.fixture(scope="module")
def ran() -> Any:
    notebook = nbformat.read(DEMO, as_version=4)
    run_notebook(notebook, record_timing=False)
    notebook.metadata["language_info"] = {"name": "python"}
    if os.environ.get("INPLACE_MAGIC_WRITE_DEMO"):
        nbformat.write(notebook, DEMO)
    return notebook


@pytest.fixture(params=["ran", "stored"])
def demo(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("ran") and request.getfixturevalue(request.param)


def cell(notebook: Any, name: str) -> Any:
    (found,) = [cell for cell in notebook.cells if cell.id == name]
    return found


def report(outputs: list[Any]) -> dict[str, Any]:
    (found,) = [output.data for output in outputs if MIME in output.get("data", {})]
    return found


def printed(outputs: list[Any]) -> str:
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.parametrize("name", FAMILIES)
def test_each_failure_is_explained_and_its_fix_proved(demo: Any, name: str) -> None:
    failing = cell(demo, f"{name}-fails")
    family, blamed = FAMILIES[name]
    kinds = [output.output_type for output in failing.outputs]
    assert kinds == (["stream", "display_data"] if family == "silent" else ["error", "display_data"])
    assert ("raises-exception" in failing.metadata.get("tags", [])) == (family != "silent")
    data = report(failing.outputs)
    found = data[MIME]
    assert found["family"] == family
    assert blamed in found["changed"]["text"]
    assert found["fixes"][0]["verified"]
    for medium in ("text/html", "text/plain"):
        assert "%autograd_fix" in data[medium] and "accepts" in data[medium]


@pytest.mark.parametrize("name", PRINTED)
def test_each_accepted_cell_passes(demo: Any, name: str) -> None:
    accepted = cell(demo, f"{name}-fix")
    assert accepted.source == "%autograd_fix --run"
    assert PRINTED[name] in printed(accepted.outputs)
    assert {output.output_type for output in accepted.outputs} == {"stream"}


def test_no_other_cell_fails(demo: Any) -> None:
    for other in demo.cells:
        if other.cell_type == "code" and not other.id.endswith("-fails"):
            assert all(output.output_type == "stream" for output in other.outputs), other.id


def test_the_stored_file_is_whole_and_tells_nothing_of_where_it_was_made(stored: Any) -> None:
    nbformat.validate(stored)
    assert all(cell.outputs for cell in stored.cells if cell.id.endswith(("-fails", "-fix")))
    shown = "\n".join(str(cell.get("outputs", "")) for cell in stored.cells)
    assert not re.search(r"site-packages|/home/|/tmp/|/root/|/Users/|[A-Z]:\\\\", shown)


def test_a_page_that_shows_only_html_reads_well(stored: Any) -> None:
    nbconvert = pytest.importorskip("nbconvert")
    page, _ = nbconvert.HTMLExporter(embed_images=False).from_notebook_node(stored)
    for said in ("In-place change broke the backward pass", "x = x + feature16", "verified, same gradients"):
        assert said in page
    assert MIME not in page


def test_freshly_opened_it_says_what_to_press(stored: Any) -> None:
    first = stored.cells[0].source
    assert "Shift+Enter" in first and "not checked on your machine" in first
