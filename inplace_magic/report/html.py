"""The report for notebooks: html that still reads well where styles, colours or the page's own look are taken away."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ..diagnosis import Diagnosis
from ..message import Language
from . import diff
from .contents import FixShown, Report, report_of
from .escape import code_spans, one_line
from .excerpt import Block, Line, Mark

# Tints and opacity instead of colours: they suit a light and a dark page alike, also where var() is stripped.
_BOX = (
    "border-left:3px solid var(--jp-error-color1, #d9534f);padding:2px 0 2px 14px;margin:6px 0;"
    "line-height:1.5;max-width:70em"
)
_MONO = "font-family:var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace);font-size:0.93em"
_CODE = f"{_MONO};background:transparent;padding:0;color:inherit"
_PARAGRAPH = "margin:6px 0"
_QUIET = "opacity:0.78"
_VERDICT = "padding:1px 7px;border-radius:8px;-webkit-box-decoration-break:clone;box-decoration-break:clone"
_RED, _GREEN, _GREY = "rgba(229,83,75,0.22)", "rgba(46,160,67,0.22)", "rgba(128,128,128,0.22)"
_AMBER = "rgba(210,153,34,0.26)"
_PRE = (
    f"{_MONO};background:rgba(128,128,128,0.09);color:inherit;border:none;border-radius:4px;"
    "padding:6px 0;margin:4px 0 8px 0;overflow-x:auto;line-height:1.45;white-space:pre"
)
_LINE = "display:block;color:inherit;padding:0 10px"
# A label that does not fit goes on below itself, or below its carets where they leave no room; code never does.
_BELOW, _CARETS, _WRAPPED = f"{_LINE};display:flex;flex-wrap:wrap", "flex:none", "white-space:normal;flex:1 1 8em"
_LINE_STYLE = {
    "-": f"{_LINE};background:{_RED}",
    "+": f"{_LINE};background:{_GREEN}",
    " ": f"{_LINE};{_QUIET}",
}
_TAG = {"-": "del", "+": "ins"}


def render(diagnosis: Diagnosis, accept: str = "%autograd_fix", language: Language = "en", pending: str = "") -> str:
    """Draw ``diagnosis`` as one html fragment without scripts, classes to style or anything to load.

    ``pending`` stands where further fixes will, while they are looked for.
    """
    report = report_of(diagnosis, language)
    parts = [_head(report), *map(_block, report.blocks)]
    parts += [_paragraph(_prose(sentence)) for sentence in report.sentences]
    parts += _fixes(report, accept) if report.fixes or not pending else []
    parts += [_paragraph(_text(pending), _QUIET)] if pending else []
    parts += [_paragraph(f"<strong>{_text(report.say('note'))}</strong> {_prose(note)}") for note in report.notes]
    inside = "\n".join(part for part in parts if part)
    lang = "" if language == "en" else ' lang="zh"'
    return f'<div class="inplace-magic"{lang} style="{_BOX}">\n{inside}\n</div>'


def _head(report: Report) -> str:
    return _paragraph(
        f'<strong>{_prose(report.headline)}</strong> <small style="{_QUIET};margin-left:12px">({_text(report.status)})</small>'
    )


# ---- the lines ------------------------------------------------------------------------------------------------------


def _block(block: Block) -> str:
    gutter = max(len(str(line.number)) for line in block.lines)
    rows = "".join(_excerpt_line(line, gutter) for line in block.lines)
    return f'<div style="{_QUIET}">{_code(block.name)}</div>\n<pre style="{_PRE}">{rows}</pre>'


def _excerpt_line(line: Line, gutter: int) -> str:
    blank = " " * gutter + " │ "
    drawn = f'<span style="{_LINE}">{line.number:>{gutter}} │ <bdi>{_marked(line.text, line.marks)}</bdi>\n</span>'
    before: tuple[int, int] | None = None
    for mark in line.marks:
        at = (mark.start, mark.end)
        carets = (" " if at == before else "^") * max(1, _wide(line.text[mark.start : mark.end]))
        place = f"{blank}{' ' * _wide(line.text[: mark.start])}{carets} "
        drawn += (
            f'<span style="{_BELOW}"><span style="{_CARETS}">{place}</span>'
            f'<span style="{_WRAPPED}">{_label(mark)}\n</span></span>'
        )
        before = at
    return drawn


def _marked(text: str, marks: Sequence[Mark]) -> str:
    """The code with its marked stretches tinted, those that do not overlap."""
    drawn, at = "", 0
    for start, end, changed in sorted({(m.start, m.end, m.role == "changed") for m in marks}):
        if start < at:
            continue
        tint = _RED if changed else _GREY
        drawn += html.escape(text[at:start])
        drawn += f'<span style="background:{tint};border-radius:3px">{html.escape(text[start:end])}</span>'
        at = end
    return drawn + html.escape(text[at:])


def _label(mark: Mark) -> str:
    label = _prose(mark.label)
    return f"<strong>{label}</strong>" if mark.role == "changed" else label


def _wide(text: str) -> int:
    from .load_rich import load_rich, same_random

    with same_random():
        return int(load_rich().cells.cell_len(text))


# ---- the fixes ------------------------------------------------------------------------------------------------------


def _fixes(report: Report, accept: str) -> list[str]:
    if not report.fixes:
        return [_paragraph(_text(report.no_fix))] if report.no_fix else []
    first, *others = report.fixes
    drawn = [f"{_paragraph(_fix_line(first), 'margin-top:14px')}\n{_body(report, first, accept)}"]
    for number, fix in enumerate(others, 2):
        summary = f'<summary style="cursor:pointer">{_fix_line(fix)} {_prose(fix.title)}</summary>'
        body = _body(report, fix, accept and f"{accept} {number}")
        drawn.append(f'<details style="{_PARAGRAPH}">\n{summary}\n{body}\n</details>')
    return drawn


def _fix_line(fix: FixShown) -> str:
    tint = _GREEN if fix.sure else _AMBER
    verdict = f'<span style="{_VERDICT};background:{tint}">{_prose(fix.status)}</span>'
    return f"<strong>{_text(fix.name)}</strong> · {verdict}"


def _body(report: Report, fix: FixShown, accept: str) -> str:
    parts = [_paragraph(_prose(fix.why))] if fix.why else []
    parts += map(_section, fix.sections)
    parts += [_paragraph(_prose(clause)) for clause in fix.clauses]
    if accept:
        parts.append(_paragraph(_prose(report.say("accepts_number", command=f"`{accept}`"))))
    return "\n".join(parts)


def _section(section: diff.Section) -> str:
    label = f'<div style="{_QUIET}">{_code(section.label)}</div>\n' if section.label else ""
    return f'{label}<pre style="{_PRE}">' + "".join(map(_line, section.lines)) + "</pre>"


def _line(line: diff.Line) -> str:
    code = f"<bdi>{html.escape(line.text)}</bdi>"
    if tag := _TAG.get(line.sign):
        code = f'<{tag} style="text-decoration:none;color:inherit">{code}</{tag}>'
    return f'<span style="{_LINE_STYLE[line.sign]}">{line.sign} {code}\n</span>'


def _paragraph(inside: str, style: str = "") -> str:
    return f'<p style="{_PARAGRAPH}{";" if style else ""}{style}">{inside}</p>'


def _text(text: str) -> str:
    return html.escape(one_line(text))


def _code(text: str, style: str = "") -> str:
    return f'<code style="{_CODE}{";" if style else ""}{style}"><bdi>{_text(text)}</bdi></code>'


def _prose(text: str) -> str:
    return "".join(_code(part) if is_code else html.escape(part) for is_code, part in code_spans(one_line(text)))
