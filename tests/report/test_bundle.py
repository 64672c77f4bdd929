from __future__ import annotations

import json

import pytest

from inplace_magic.report.bundle import MIME, bundle
from tests.report import samples


@pytest.mark.parametrize("name", samples.ALL)
def test_a_bundle_has_text_html_and_the_record(name: str) -> None:
    made = bundle(samples.ALL[name], width=80)
    assert set(made) == {"text/plain", "text/html", "application/vnd.inplace-magic.v1+json"}
    assert "\x1b" not in made["text/plain"]
    assert made["text/html"].startswith("<div")
    payload = dict(made[MIME])
    drawn = payload.pop("report")
    assert payload == samples.ALL[name].to_dict()
    assert drawn["language"] == "en" and len(drawn["fixes"]) == len(payload["fixes"])
    assert json.loads(json.dumps(made)) == made
