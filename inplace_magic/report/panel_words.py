"""The panel's own sentences, as they stand in remoteEntry.js: a part of the catalogue, put there by a test's own hand."""

from __future__ import annotations

import json

from .wording import CATALOGUES

BEGIN, END = "  // WORDS begin\n", "  // WORDS end\n"


def block() -> str:
    """The lines between the two marks."""
    lines = ["  const WORDS = {\n"]
    for language, sentences in CATALOGUES.items():
        lines.append(f"    {language}: {{\n")
        for kind, sentence in sentences.items():
            if kind.startswith("panel_"):
                lines.append(f"      {kind}: {json.dumps(sentence, ensure_ascii=False)},\n")
        lines.append("    },\n")
    return "".join([*lines, "  };\n"])
