"""The report for notebooks: html that still reads well where styles, colours or the page's own look are taken away."""

from __future__ import annotations

import html

from ..diagnosis import Diagnosis, Fix
from . import diff, words
from .escape import code_spans, one_line

_CODE_MOST, _LINE_MOST, _LEAD = 120, 400, 60

# Tints and opacity instead of colours: they suit a light and a dark page alike, also where var() is stripped.
_BOX = (
    "border-left:3px solid var(--jp-error-color1, #d9534f);padding:2px 0 2px 14px;margin:6px 0;"
    "line-height:1.5;max-width:70em"
)
_MONO = "font-family:var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace);font-size:0.93em"
_CODE = f"{_MONO};background:transparent;padding:0;color:inherit"
_PARAGRAPH = "margin:6px 0"
_QUIET = "opacity:0.72"
_TABLE = "border-collapse:collapse;border:none;margin:6px 0;table-layout:auto;font-size:inherit"
_ROW = "background:transparent;border:none"
_CELL = "text-align:left;vertical-align:top;padding:2px 18px 2px 0;border:none;background:transparent"
_PILL = "padding:1px 7px;border-radius:8px;white-space:nowrap;font-weight:600"
_PROOF = "padding:1px 7px;border-radius:8px;-webkit-box-decoration-break:clone;box-decoration-break:clone"
_RED, _GREEN, _GREY = "rgba(229,83,75,0.22)", "rgba(46,160,67,0.22)", "rgba(128,128,128,0.18)"
_AMBER = "rgba(210,153,34,0.26)"
_PRE = (
    f"{_MONO};background:rgba(128,128,128,0.09);color:inherit;border:none;border-radius:4px;"
    "padding:6px 0;margin:4px 0 8px 0;overflow-x:auto;line-height:1.45;white-space:pre"
)
_LINE = "display:block;color:inherit;padding:0 10px"
_LINE_STYLE = {
    "-": f"{_LINE};background:{_RED}",
    "+": f"{_LINE};background:{_GREEN}",
    " ": f"{_LINE};{_QUIET}",
}
_TAG = {"-": "del", "+": "ins"}


def render(diagnosis: Diagnosis, accept: str = "%autograd_fix") -> str:
    """Draw ``diagnosis`` as one html fragment without scripts, classes to style or anything to load."""
    parts = [_head(diagnosis), _places(diagnosis), _trouble(diagnosis)]
    count = len(diagnosis.fixes)
    for number, fix in enumerate(diagnosis.fixes, 1):
        name = words.fix_name(number, count)
        parts.append(
            _first_fix(name, fix, accept) if number == 1 else _other_fix(name, fix, accept and f"{accept} {number}")
        )
    if not diagnosis.fixes and (known := words.no_fix(diagnosis)):
        parts.append(_paragraph(_text(known)))
    parts += [_paragraph(f"<strong>Note:</strong> {_prose(note)}") for note in diagnosis.notes]
    inside = "\n".join(part for part in parts if part)
    return f'<div class="inplace-magic" style="{_BOX}">\n{inside}\n</div>'


def _head(diagnosis: Diagnosis) -> str:
    return _paragraph(
        f"<strong>{_prose(diagnosis.headline)}</strong> "
        f'<small style="{_QUIET};margin-left:12px">({_text(words.took(diagnosis))})</small>'
    )


def _places(diagnosis: Diagnosis) -> str:
    rows = words.rows(diagnosis.conflicts[0], diagnosis.family) if diagnosis.conflicts else []
    if not rows:
        return ""
    return f'<table style="{_TABLE}">\n<tbody>\n' + "\n".join(map(_row, rows)) + "\n</tbody>\n</table>"


def _row(row: words.Row) -> str:
    here = f'<strong style="{_PILL};background:{_RED if row.role == "changed" else _GREY}">{_text(row.here)}</strong>'
    cells = [_code(row.label, _QUIET), _code(_cut(row.code, _CODE_MOST)), here, _prose(row.note)]
    return f'<tr style="{_ROW}">' + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _trouble(diagnosis: Diagnosis) -> str:
    more = words.further(diagnosis.conflicts)
    said = [_paragraph(_prose(diagnosis.sentence)) if diagnosis.sentence else "", _paragraph(_text(more), _QUIET)]
    return "\n".join(said if more else said[:1])


def _first_fix(name: str, fix: Fix, accept: str) -> str:
    return f"{_paragraph(_fix_line(name, fix), 'margin-top:14px')}\n{_body(fix, accept)}"


def _other_fix(name: str, fix: Fix, accept: str) -> str:
    summary = f'<summary style="cursor:pointer">{_fix_line(name, fix)}</summary>'
    return f'<details style="{_PARAGRAPH}">\n{summary}\n{_body(fix, accept)}\n</details>'


def _fix_line(name: str, fix: Fix) -> str:
    return f"<strong>{_text(name)}:</strong> {_prose(fix.title)} — {_proof(fix)}"


def _proof(fix: Fix) -> str:
    tint = _GREEN if fix.verified and fix.gradients == "same" else _AMBER
    return f'<span style="{_PROOF};background:{tint}">{_prose(words.proof(fix))}</span>'


def _body(fix: Fix, accept: str) -> str:
    parts = [_paragraph(_prose(fix.why))] if fix.why else []
    parts += map(_section, diff.sections(fix))
    parts += [_paragraph(_prose(words.live(change))) for change in fix.live]
    if again := words.runs_again(fix):
        parts.append(_paragraph(_text(again)))
    if accept:
        parts.append(_paragraph(f"Accept with {_code(accept)}"))
    return "\n".join(parts)


def _section(section: diff.Section) -> str:
    label = f'<div style="{_QUIET}">{_code(section.label)}</div>\n' if section.label else ""
    return f'{label}<pre style="{_PRE}">' + "".join(map(_line, section.lines)) + "</pre>"


def _line(line: diff.Line) -> str:
    shown = line.text
    if len(shown) > _LINE_MOST and line.differs > _LINE_MOST - _LEAD:
        shown = "…" + shown[line.differs - _LEAD :]
    code = f"<bdi>{html.escape(_cut(shown, _LINE_MOST))}</bdi>"
    if tag := _TAG.get(line.sign):
        code = f'<{tag} style="text-decoration:none;color:inherit">{code}</{tag}>'
    return f'<span style="{_LINE_STYLE[line.sign]}">{line.sign} {code}\n</span>'


def _paragraph(inside: str, style: str = "") -> str:
    return f'<p style="{_PARAGRAPH}{";" if style else ""}{style}">{inside}</p>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(text: str) -> str:
    return html.escape(one_line(text))


def _code(text: str, style: str = "") -> str:
    return f'<code style="{_CODE}{";" if style else ""}{style}"><bdi>{_text(text)}</bdi></code>'


def _prose(text: str) -> str:
    return "".join(_code(part) if is_code else html.escape(part) for is_code, part in code_spans(one_line(text)))
