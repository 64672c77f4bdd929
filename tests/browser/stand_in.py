"""A stand-in for the kernel's side: an IPython extension that reports every ZeroDivisionError as if it were ours.

It makes its reports of the package's own records, so that the panel is tested with what the package really sends,
without torch and without the time that a diagnosis takes. Lines are looked at as text: `1 / 0` is the conflict, and its
fixes are `1 / 1` and `2 / 1`. Where the failing cell has no such line, the last earlier cell that has one is fixed.
"""

from __future__ import annotations

import difflib

from IPython import get_ipython

from inplace_magic.diagnosis import Conflict, Diagnosis, Fix, LiveChange, Place
from inplace_magic.message import Language, message
from inplace_magic.report.contents import report_of

MIME = "application/vnd.inplace-magic.v1+json"
HOSTILE = "</pre><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\x1b[31mred\u202egnihton"
BROKEN = "1 / 0"
LANGUAGE: list[Language] = ["en"]

sources: dict[int, str] = {}
cell_ids: dict[int, str] = {}
known: dict[str, Diagnosis] = {}
asked: list[str] = []


def line_with(source: str, text: str) -> int:
    return 1 + next(i for i, line in enumerate(source.split("\n")) if text in line)


def place(n: int, text: str) -> Place:
    number = line_with(sources[n], text)
    line = sources[n].split("\n")[number - 1].strip()
    at = line.find(text)
    return Place(n, number, line, columns=(at, at + len(text)) if at >= 0 and text != line else None)


def unified(n: int, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), f"In[{n}]", f"In[{n}] fixed", lineterm="", n=2)
    return "\n".join(lines)


def rewrite(n: int, new: str, failing: int, **more: object) -> Fix:
    old = sources[n]
    given = {
        "why": "Nothing is divided by zero any more.",
        "verified": True,
        "gradients": "same",
        "run": (failing,),
    } | more
    return Fix(
        title=f"`{new}`",
        rule="stand_in",
        diff=unified(n, old, old.replace(BROKEN, new)),
        cells={n: old.replace(BROKEN, new)},
        **given,
    )


def diagnose(failing: int) -> Diagnosis:
    broken = failing if BROKEN in sources[failing] else max(n for n in sources if BROKEN in sources[n])
    hostile = HOSTILE if "hostile" in sources[failing] else ""
    here = place(broken, BROKEN)
    end = place(failing, sources[failing].split("\n")[-1])
    conflict = Conflict(
        here,
        here,
        end,
        tensor="x",
        operation="/",
        node=None,
        sentence=f"`/` met a zero. {hostile}",
        saved_note="the quotient needs this number" + hostile,
        changed_note=message("changes"),
        needed_note=message("needs"),
    )
    live = (LiveChange("set", "half", "safe", True),) if broken != failing else ()
    return Diagnosis(
        family="modified",
        headline="In-place change broke the backward pass" + hostile if hostile else message("headline_modified"),
        cell=failing,
        conflicts=(conflict,),
        fixes=(
            rewrite(broken, "1 / 1", failing, live=live),
            rewrite(broken, "2 / 1", failing, gradients="truncated", proof="ran 3 steps past the failure" + hostile),
        ),
        notes=("A note." + hostile,) if hostile else (),
        sources={n: sources[n] for n in {broken, failing}},
        cell_ids={n: cell_ids[n] for n in {broken, failing} if cell_ids.get(n)},
        seconds=0.42,
    )


def after_cell(shell, result) -> None:
    n = result.execution_count
    if n is None:
        return
    sources[n] = result.info.raw_cell
    cell_ids[n] = result.info.cell_id
    if isinstance(result.error_in_exec, ZeroDivisionError):
        diagnosis = diagnose(n)
        known[diagnosis.id] = diagnosis
        report = report_of(diagnosis, LANGUAGE[0]).to_dict() | {"pending": ""}
        payload = diagnosis.to_dict() | {"report": report}
        shell.display_pub.publish({"text/plain": "plain report", "text/html": "<b>html report</b>", MIME: payload})


def autograd_fix(line: str) -> None:
    """What the button asks for. Definitions are fixed live by running their new text."""
    *number, verb, _, name = line.split()
    if name not in known:
        raise ValueError("unknown report")
    if verb == "--known":
        return
    number = number[0]
    asked.append(f"{number} {verb}")
    diagnosis = known[name]
    for n, text in diagnosis.fixes[int(number) - 1].cells.items():
        if n != diagnosis.cell:
            get_ipython().ex(text if verb == "--live" else sources[n])


def load_ipython_extension(shell) -> None:
    shell.events.register("post_run_cell", lambda result: after_cell(shell, result))
    shell.register_magic_function(autograd_fix)
    shell.user_ns["asked"], shell.user_ns["language"] = asked, LANGUAGE
