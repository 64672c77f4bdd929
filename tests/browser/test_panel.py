"""What a person does with the panel, with a stand-in for the kernel's side."""

from __future__ import annotations

import json

import pytest

LOAD = "%load_ext stand_in"
FAILS = "a = 3\nb = 1 / 0\nprint('ran', b)"
FIXED = FAILS.replace("1 / 0", "1 / 1")
HALF = "def half(x):\n    return x * (1 / 0)"
USES = "y = half(3)\nprint('got', y)"
ASKED = "print(asked)"


def started(page, name, *sources, ids=()):
    page.write(name, LOAD, *sources, ids=ids)
    page.open(name)
    page.run(0)


def test_accept_and_run_then_undo(page):
    started(page, "click.ipynb", FAILS, ASKED)
    page.run(1)
    page.expect_text(page.panel(1), "In-place change broke the backward pass")
    page.picture("report")
    page.press(1, "Accept and run")
    page.expect_text(page.bar(1), "Accepted: In[3] has the new text. In[3] ran again, without an error.")
    assert page.source(1) == FIXED
    assert "ran 1.0" in page.output(1)
    assert "ZeroDivisionError" not in page.output(1)
    page.picture("accepted")

    page.press(1, "Undo")
    page.expect_text(page.bar(1), "Undone")
    assert page.source(1) == FAILS
    assert page.prompt(1) == "[2]:"
    page.expect_text(page.panel(1), "Accept and run")
    page.run(2)
    assert "['1 --live', '1 --undo']" in page.output(2)
    page.press(1, "Dismiss")
    assert page.bar(1).count() == 0


def test_ctrl_z_is_one_step_also_straight_after_typing(page):
    started(page, "typed.ipynb", "")
    page.click_into(1)
    page.page.keyboard.type("b = 1 / 0")
    page.run(1)
    page.press(1, "Accept and run")
    page.expect_text(page.bar(1), "without an error")
    page.expect_source(1, "b = 1 / 1")
    page.click_into(1)
    page.page.keyboard.press("Control+z")
    page.expect_source(1, "b = 1 / 0")
    page.page.keyboard.press("Control+Shift+z")
    page.expect_source(1, "b = 1 / 1")


def test_a_fix_of_another_cell(page):
    started(page, "other.ipynb", HALF, USES)
    page.run(1)
    page.run(2)
    page.expect_text(page.panel(2), "half.safe = True")
    page.picture("other-cell", page.panel(2))
    page.press(2, "Accept and run")
    page.expect_text(
        page.bar(2), "Accepted: In[2] has the new text. In[4] ran again, without an error. In[2] did not have to run"
    )
    assert page.source(1) == HALF.replace("1 / 0", "1 / 1")
    assert page.prompt(1) == "[2]:"
    assert "got 3.0" in page.output(2)
    page.press(2, "Undo")
    page.expect_text(page.bar(2), "Undone")
    assert page.source(1) == HALF


def test_keyboard_alone(page):
    started(page, "keys.ipynb", FAILS + "\n\n", ASKED)
    page.run(1)
    tabs = page.panel(1).get_by_role("tab")
    shown = page.panel(1).get_by_role("tabpanel")
    seen = 0
    for _ in range(100):  # once a run is over JupyterLab moves the focus and draws its outputs anew, sooner or later
        if not seen:
            tabs.first.focus()
            page.page.keyboard.press("ArrowRight")
        page.page.wait_for_timeout(100)
        seen = seen + 1 if "gradients no longer flow" in (shown.text_content() or "") else 0
        if seen == 5:
            break
    assert tabs.nth(1).get_attribute("aria-selected") == "true"
    page.expect_text(shown, "gradients no longer flow")
    assert shown.count() == 1
    page.page.keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.textContent") == "Accept and run"
    assert page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.picture("focus")
    page.page.keyboard.press("Enter")
    page.expect_text(page.bar(1), "without an error")
    # The empty lines at the end of a cell, which the kernel does not keep, are no edit; and they stay.
    assert page.source(1) == FAILS.replace("1 / 0", "2 / 1") + "\n\n"
    for name in ("In[3]", "In[3]", "Undo"):
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("document.activeElement.textContent") == name
    page.run(2)
    assert "['2 --live']" in page.output(2)


def test_a_screen_reader_hears_the_change_and_the_outcome(lab):
    started(lab, "spoken.ipynb", FAILS)
    lab.run(1)
    rows = lab.panel(1).locator(".ipm-fix").first.locator(".ipm-row").all_text_contents()
    assert rows == [" a = 3", "-removed: b = 1 / 0", "+added: b = 1 / 1", " print('ran', b)"]
    lab.press(1, "Accept")
    status = lab.bar(1).get_by_role("status")
    assert status.get_attribute("aria-live") == "polite"
    lab.expect_text(status, "Still to run: In[2].")
    assert lab.source(1) == FIXED
    assert "ZeroDivisionError" not in lab.output(1)
    assert lab.panel(1).count() == 0
    lab.press(1, "Undo")
    lab.expect_text(lab.panel(1), "Accept and run")


def test_refuses_what_was_edited_meanwhile(lab):
    started(lab, "edited.ipynb", HALF, USES, FAILS)
    for at in (1, 2, 3):
        lab.run(at)
    lab.append(1, "  # mine")
    lab.press(2, "Accept and run")
    lab.expect_text(lab.panel(2), "In[2] has been edited since this report. Nothing was changed.")
    lab.append(3, "  # mine")
    lab.press(3, "Accept")
    lab.expect_text(lab.panel(3), "In[4] has been edited since this report. Nothing was changed.")
    lab.picture("refused")
    assert lab.source(1) == HALF + "  # mine"
    assert lab.source(2) == USES
    assert lab.source(3) == FAILS + "  # mine"
    assert "ZeroDivisionError" in lab.output(3)


def test_undo_refuses_what_was_edited_meanwhile(lab):
    started(lab, "late.ipynb", FAILS)
    lab.run(1)
    lab.press(1, "Accept and run")
    lab.expect_text(lab.bar(1), "without an error")
    lab.append(1, "  # mine")
    lab.press(1, "Undo")
    lab.expect_text(lab.bar(1), "In[3] was edited, moved or removed since. Nothing was changed.")
    assert lab.source(1) == FIXED + "  # mine"


def test_a_fixed_cell_that_fails_again_says_so(lab):
    started(lab, "fails_again.ipynb", "b = 1 / 0\nassert b > 5, 'mine'")
    lab.run(1)
    # A cell that may raise does not stop Run All; it has failed all the same.
    tag = "window.jupyterapp.shell.currentWidget.content.widgets[1].model.setMetadata('tags', ['raises-exception'])"
    lab.page.evaluate(tag)
    lab.press(1, "Accept and run")
    lab.expect_text(lab.bar(1), "In[3] raised an error again.")
    assert lab.bar(1).get_attribute("data-state") == "error", "never a green bar over an error"
    assert "AssertionError" in lab.output(1) and "ZeroDivisionError" not in lab.output(1)
    lab.press(1, "Undo")
    lab.expect_source(1, "b = 1 / 0\nassert b > 5, 'mine'")
    lab.expect_text(lab.panel(1), "Accept and run")
    lab.run(1)
    assert lab.bar(1).count() == 0, "the line on what was undone goes when the cell runs again"


def test_a_place_leads_to_its_line(page):
    started(page, "places.ipynb", HALF, USES)
    page.run(1)
    page.run(2)
    # The panel is drawn anew when the kernel has answered; a click that is half done by then is lost.
    page.expect_text(page.panel(2), "Accept and run")
    page.panel(2).get_by_role("button", name="In[2]:2").first.click()
    page.page.wait_for_function("() => document.getSelection().toString() === 'return x * (1 / 0)'")
    page.page.keyboard.type("return 0")
    page.expect_source(1, "def half(x):\n    return 0")


def test_hostile_text_stays_text(page):
    started(page, "hostile.ipynb", "# hostile\n" + FAILS)
    page.run(1)
    page.expect_text(page.panel(1), "</pre><script>window.hacked = 1</script>")
    page.expect_text(page.panel(1), "\\x1b[31mred\\u202egnihton")
    page.picture("hostile", page.panel(1))
    assert page.panel(1).locator("script, img").count() == 0
    assert page.page.evaluate("window.hacked") is None
    page.press(1, "Accept and run")
    page.expect_text(page.bar(1), "without an error")


def test_two_notebooks_with_the_same_cell_ids(lab):
    ids = ["load", "fails"]
    lab.write("twin.ipynb", LOAD, FAILS, ids=ids)
    started(lab, "first.ipynb", FAILS, ids=ids)
    lab.run(1)
    lab.command("docmanager:open", {"path": "twin.ipynb", "options": {"mode": "split-right"}})
    lab.page.wait_for_function("() => document.querySelectorAll('.jp-Notebook .jp-CodeCell').length === 4")
    lab.wait_idle()
    lab.run(2)
    lab.run(3)
    lab.press(1, "Accept and run")
    lab.expect_text(lab.bar(1), "without an error")
    assert [lab.source(1), lab.source(3)] == [FIXED, FAILS]
    lab.press(3, "Accept and run")
    lab.expect_text(lab.bar(3), "without an error")
    assert lab.source(3) == FIXED


def test_a_duplicate_of_the_cell_is_a_cell_of_its_own(lab):
    started(lab, "double.ipynb", FAILS)
    lab.run(1)
    lab.command("notebook:duplicate-below")
    lab.page.wait_for_function("() => document.querySelectorAll('.ipm-panel').length === 2")
    lab.press(2, "Accept and run")
    lab.expect_text(lab.bar(2), "without an error")
    assert [lab.source(1), lab.source(2)] == [FAILS, FIXED]


def test_reopened_with_another_kernel(page):
    started(page, "again.ipynb", FAILS)
    page.run(1)
    page.save()
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.open("again.ipynb")
    page.expect_text(page.panel(1), "The kernel does not know this report any more")
    assert page.panel(1).get_by_role("button", name="Accept and run").count() == 0
    assert "from an earlier session of the kernel" in page.panel(1).inner_text()
    assert "your session" not in page.panel(1).inner_text()
    page.picture("restarted", page.panel(1))
    page.press(1, "Accept")
    page.expect_text(page.bar(1), "Only the text was changed")
    page.expect_text(page.bar(1), "Still to run: In[2]")
    assert page.bar(1).get_attribute("data-state") == "neutral"
    assert page.source(1) == FIXED


def test_an_untrusted_notebook_offers_no_run_and_asks_no_kernel(page):
    started(page, "signed.ipynb", FAILS)
    page.run(1)
    page.save()
    book = json.loads((page.folder / "signed.ipynb").read_text())
    book["metadata"]["changed"] = "by somebody else"
    (page.folder / "foreign.ipynb").write_text(json.dumps(book))
    page.open("foreign.ipynb")
    page.expect_text(page.panel(1), "from the file, not checked here: run the cell")
    assert "your session" not in page.panel(1).text_content() and "verified" not in page.panel(1).text_content()
    assert "Trust" not in page.panel(1).text_content()
    assert page.panel(1).locator("[data-sure=true]").count() == 0, "what a file says of itself has no tick"
    page.picture("untrusted", page.panel(1))
    assert page.panel(1).get_by_role("button", name="Accept and run").count() == 0
    page.press(1, "Accept")
    page.expect_text(page.bar(1), "was not checked here")
    assert page.source(1) == FIXED


@pytest.mark.broad
def test_a_restart_while_it_is_shown_takes_the_run_button_away(lab):
    started(lab, "restart.ipynb", FAILS)
    lab.run(1)
    lab.expect_text(lab.panel(1), "Accept and run")
    lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.expect_text(lab.panel(1), "The kernel does not know this report any more")
    assert lab.panel(1).get_by_role("button", name="Accept and run").count() == 0


def test_after_a_restart_the_bar_speaks_of_the_text_alone(lab):
    started(lab, "gone.ipynb", FAILS)
    lab.run(1)
    lab.press(1, "Accept and run")
    lab.expect_text(lab.bar(1), "without an error")
    lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.expect_text(lab.bar(1), "Accepted: In[3] has the new text. The kernel has been restarted since.")
    assert lab.bar(1).get_attribute("data-state") == "neutral"
    lab.picture("bar-restarted")
    lab.press(1, "Undo")
    lab.expect_text(lab.bar(1), "Undone: In[2] is as it was.")
    assert "stays" not in lab.bar(1).inner_text()
    assert lab.source(1) == FAILS


def test_the_bar_follows_its_cell_and_leads_to_it(lab):
    started(lab, "follows.ipynb", FAILS)
    lab.run(1)
    lab.press(1, "Accept")
    lab.expect_text(lab.bar(1), "Still to run: In[2]")
    lab.bar(1).get_by_role("button", name="In[2]").first.click()
    lab.page.wait_for_function("() => document.getSelection().toString() === 'a = 3'")
    lab.run(1)
    lab.expect_text(lab.bar(1), "In[3] has been run since, without an error.")
    assert lab.bar(1).get_attribute("data-state") == "ok"
    lab.append(1, "\nraise ValueError('mine')")
    lab.run(1)
    lab.expect_text(lab.bar(1), "In[4] has been run since, and raised an error.")
    assert lab.bar(1).get_attribute("data-state") == "error"


def test_a_forged_report_does_not_look_verified(lab):
    """Somebody else's file may hold any payload: what it claims has no tick, and asks no kernel."""
    report = {
        "language": "en", "headline": "All is well", "status": "your session is unchanged", "pending": "",
        "blocks": [], "sentences": [], "noFix": "", "notes": [],
        "fixes": [{"name": "Fix", "title": "x", "status": "verified, same gradients", "sure": True, "why": "",
                   "clauses": [], "files": {}}],
    }  # fmt: skip
    payload = {
        "version": 1, "id": "x') or evil('", "cell": 1, "conflicts": [], "sources": {"1": "a = 1"}, "cell_ids": {},
        "files": {}, "fixes": [{"cells": {"1": "import os"}, "files": {}, "run": [1], "verified": True}],
        "report": report,
    }  # fmt: skip
    lab.write("forged.ipynb", "a = 1", outputs={0: {"application/vnd.inplace-magic.v1+json": payload}})
    lab.open("forged.ipynb")
    lab.expect_text(lab.panel(0), "from the file, not checked here: run the cell")
    shown = lab.panel(0).text_content()
    assert "verified" not in shown and "your session" not in shown and "\u2713" not in shown
    assert lab.panel(0).locator("[data-sure=true]").count() == 0
    assert lab.panel(0).get_by_role("button", name="Accept and run").count() == 0


@pytest.mark.broad
def test_in_chinese(page):
    started(page, "zh.ipynb", "language[0] = 'zh'", FAILS)
    page.run(1)
    page.run(2)
    page.expect_text(page.panel(2), "in-place 修改破坏了 backward")
    page.picture("zh", page.panel(2))
    page.press(2, "采用并运行")
    page.expect_text(page.bar(2), "已采用：In[4] 已换成新文本。 In[4] 已重新运行，没有错误。")
    page.press(2, "撤销")
    page.expect_text(page.bar(2), "已撤销：In[3] 已恢复原样。")


@pytest.mark.broad
def test_an_output_view(lab):
    started(lab, "view.ipynb", FAILS)
    lab.run(1)
    lab.command("notebook:create-output-view")
    view = lab.page.locator(".jp-LinkedOutputView")
    view.get_by_role("button", name="In[2]:2").first.click()
    lab.page.wait_for_function("() => document.getSelection().toString() === 'b = 1 / 0'")
    lab.picture("output-view")
    view.get_by_role("button", name="Accept and run").click()
    lab.expect_text(lab.bar(1), "without an error")
    assert lab.source(1) == FIXED


@pytest.mark.front_ends
def test_a_narrow_window_needs_no_sideways_scrolling(pages):
    page = pages("notebook", narrow=True)
    started(page, "narrow.ipynb", "long = 'a_very_long_name_without_a_break' * 1; " * 3 + FAILS)
    page.run(1)
    page.picture("narrow", page.panel(1))
    fits = "node => node.scrollWidth <= node.clientWidth && node.getBoundingClientRect().right <= innerWidth"
    assert page.panel(1).evaluate(fits)
    tabs = page.panel(1).locator(".ipm-tabs button")
    assert tabs.count() > 1 and {tab.evaluate("node => node.clientHeight < 40") for tab in tabs.all()} == {True}


CONTRAST = """node => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = at => {
    const colour = channels(getComputedStyle(at).backgroundColor);
    return colour.length < 4 || colour[3] === 1 ? colour : behind(at.parentElement);
  };
  const [one, other] = [luminance(channels(getComputedStyle(node).color)), luminance(behind(node))];
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}"""


def test_every_text_can_be_read_in_light_and_dark(page):
    started(page, "theme.ipynb", FAILS)
    page.run(1)
    parts = (
        ".ipm-headline, .ipm-where, .ipm-code, .ipm-code mark, .ipm-note, .ipm-proof, .ipm-row code, .ipm-label, "
        ".ipm-actions button, .ipm-tab-title"
    )
    found = page.panel(1).locator(parts)
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.command("apputils:change-theme", {"theme": theme})
        page.page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
        page.page.wait_for_timeout(300)
        page.picture(theme.split()[1].lower(), page.panel(1))
        contrasts = [(node.text_content(), node.evaluate(CONTRAST)) for node in found.all()]
        assert len(contrasts) >= 8
        assert min(contrast for _, contrast in contrasts) >= 4.5, contrasts
