"""What a person does with the panel, with a stand-in for the kernel's side."""

from __future__ import annotations

LOAD = "%load_ext stand_in"
FAILS = "a = 3\nb = 1 / 0\nprint('ran', b)"


def test_click_accepts_runs_and_undoes(page):
    page.write("click.ipynb", LOAD, FAILS)
    page.open("click.ipynb")
    page.run_all()
    page.expect_text(page.panel(1), "In-place change broke the backward pass")
    page.picture("report")
    page.press(1, "Accept and run")
    page.expect_text(page.bar(1), "Fix accepted in In[2]. In[2] ran.")
    page.picture("accepted")
