"""A real kernel, driven as papermill and Run All drive it."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

from tests.sandboxes import SANDBOXES

nbclient = pytest.importorskip("nbclient")
from tests.kernels import run_notebook  # noqa: E402

MIME = "application/vnd.inplace-magic.v1+json"
LOAD = "%load_ext inplace_magic"
SETUP = "import torch\nw = torch.ones(3, requires_grad=True)"
BODY = "x = w.exp()\nx += 1\nx.sum().backward()"


def execute(*cells: str, allow_errors: bool = False) -> Any:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    try:
        run_notebook(notebook, allow_errors=allow_errors)
    except nbclient.exceptions.CellExecutionError as error:
        return notebook, error
    return notebook, None


def bundles(cell: Any) -> list[Any]:
    return [out["data"][MIME] for out in cell.outputs if MIME in out.get("data", {})]


@pytest.mark.own_interpreter
def test_run_all_still_stops_at_the_failure_and_the_report_is_in_the_cell() -> None:
    notebook, error = execute(LOAD, SETUP, BODY, "after = 1")
    assert error is not None and "modified by an inplace operation" in str(error)
    failed, after = notebook.cells[2], notebook.cells[3]
    kinds = [out.output_type for out in failed.outputs]
    assert kinds.index("error") < kinds.index("display_data"), "the traceback comes first"
    (found,) = bundles(failed)
    assert (found["changed"]["cell"], found["changed"]["line"]) == (3, 2)
    assert found["fixes"][0]["verified"] and found["fixes"][0]["gradients"] == "same"
    data = next(out["data"] for out in failed.outputs if out.output_type == "display_data")
    assert "x = x + 1" in data["text/plain"] and "x = x + 1" in data["text/html"]
    assert after.execution_count is None


def test_going_on_after_the_failure_and_accepting() -> None:
    notebook, error = execute(
        LOAD, SETUP, BODY, "%autograd_fix --run", "print(w.grad)", "torch.get_num_threads()", allow_errors=True
    )
    assert error is None
    assert not any(out.output_type == "error" for out in notebook.cells[3].outputs)
    assert "2.7183" in notebook.cells[4].outputs[0]["text"]


@pytest.mark.own_interpreter
def test_after_convolutions_on_several_threads() -> None:
    work = "import torch\ntorch.set_num_threads(2)\nc = torch.nn.Conv2d(3, 8, 3)\nfor _ in range(3): c(torch.randn(4, 3, 64, 64)).sum().backward()"
    fail = "h = torch.sigmoid(c(torch.randn(4, 3, 64, 64)))\nh *= 2\nh.sum().backward()"
    notebook, _ = execute(
        LOAD, work, fail, "c(torch.randn(4, 3, 64, 64)).sum().backward()\nprint('alive')", allow_errors=True
    )
    (found,) = bundles(notebook.cells[2])
    assert found["fixes"][0]["verified"]
    assert notebook.cells[3].outputs[0]["text"] == "alive\n"


def test_a_healthy_notebook_has_no_output_of_ours() -> None:
    notebook, error = execute(LOAD, SETUP, BODY.replace("x += 1", "x = x + 1"), "1 + 1")
    assert error is None
    assert [len(cell.outputs) for cell in notebook.cells] == [0, 0, 0, 1]


def test_an_error_of_the_users_own_has_one_output() -> None:
    notebook, error = execute(LOAD, "1 / 0")
    assert error is not None
    assert [out.output_type for out in notebook.cells[1].outputs] == ["error"]


def test_the_check_magic_in_a_kernel() -> None:
    notebook, error = execute(
        LOAD,
        "import torch\nx = torch.tensor([1., 2.], requires_grad=True)",
        "%%autograd_check\nloss = (x ** 2).sum()\nx.data += 1\nloss.backward()\nx.grad",
        "%%autograd_check\nloss = (x ** 2).sum()\nloss.backward()",
    )
    assert error is None
    (found,) = bundles(notebook.cells[2])
    assert found["family"] == "silent" and found["changed"]["line"] == 3
    shown = next(out for out in notebook.cells[2].outputs if out.output_type == "execute_result")
    assert "tensor([4., 6.])" in shown["data"]["text/plain"]
    assert notebook.cells[3].outputs[0]["text"].startswith("autograd check: nothing found")


@pytest.mark.parametrize("room", SANDBOXES)
def test_both_rooms_in_a_kernel_and_a_task_of_the_persons_goes_on(room: str) -> None:
    ticking = (
        "import asyncio\nticks = []\nasync def tick():\n    while True:\n        ticks.append(len(ticks))\n"
        "        await asyncio.sleep(0.01)\ntask = asyncio.get_running_loop().create_task(tick())\nawait asyncio.sleep(0.05)"
    )
    check = (
        "n = len(ticks); await asyncio.sleep(0.2)\n"
        "print(not task.done() and len(ticks) > n and ticks == [*range(len(ticks))]); task.cancel()"
    )
    notebook, error = execute(
        LOAD, f"%config InplaceMagic.sandbox = '{room}'\n{SETUP}", ticking, BODY, check, allow_errors=True
    )
    assert error is None
    (found,) = bundles(notebook.cells[3])
    assert found["fixes"] and found["fixes"][0]["verified"], found["notes"]
    assert notebook.cells[4].outputs[0]["text"] == "True\n"


def test_two_kernels_do_not_meet() -> None:
    client = pytest.importorskip("jupyter_client.manager")
    kernels = [client.start_new_kernel(kernel_name="python3") for _ in range(2)]
    try:
        for number, (_, talk) in enumerate(kernels):
            talk.execute(f"{LOAD}\n{SETUP}\nmine = {number}")
        sent = [talk.execute(BODY.replace("1", f"{number + 1}.5")) for number, (_, talk) in enumerate(kernels)]
        for number, (_, talk) in enumerate(kernels):
            fixes: list[dict[str, Any]] = []
            while not fixes:  # the report grows
                message = talk.get_iopub_msg(timeout=300)
                if message["parent_header"].get("msg_id") == sent[number]:
                    fixes = message["content"].get("data", {}).get(MIME, {}).get("fixes", [])
            assert fixes[0]["diff"].count(f"x = x + {number + 1}.5") == 1
    finally:
        for manager, talk in kernels:
            talk.stop_channels()
            manager.shutdown_kernel(now=True)


def test_accepting_without_the_panel_puts_the_fixed_cell_below_and_says_what_is_left_to_do() -> None:
    """The failing cell, which is no longer the one that runs, is not replaced; nor is the one that accepts."""
    client = pytest.importorskip("jupyter_client.manager")
    manager, talk = client.start_new_kernel(kernel_name="python3")
    talk.session.metadata = {"cellId": "a cell"}
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        said.append(message["content"].get("text", ""))

    try:
        for cell in (LOAD, SETUP, BODY):
            talk.execute_interactive(cell, timeout=300, output_hook=lambda message: None)
        answer = talk.execute_interactive("%autograd_fix", timeout=300, output_hook=hear)
        talk.execute_interactive("%autograd_fix --undo", timeout=300, output_hook=hear)
        for cell in ("def f(w):\n    x = w.exp()\n    x += 1\n    return x", "f(w).sum().backward()", "%autograd_fix"):
            talk.execute_interactive(cell, timeout=300, output_hook=hear)
    finally:
        talk.stop_channels()
        manager.shutdown_kernel(now=True)
    (put,) = answer["content"]["payload"]
    assert (put["source"], put["replace"], put["text"]) == (
        "set_next_input",
        False,
        BODY.replace("x += 1", "x = x + 1"),
    )
    assert "A cell below holds the new text of In[3]: put it in the place of the old one and run it." in "".join(said)
    assert "put it in the place of the old one and run In[7]." in "".join(said), "a definition has not to run again"
    # What stands in the notebook is the person's, who may have put the text there by now.
    assert "Undone in the kernel: In[3] is as it was. Text that was put into the notebook stays." in "".join(said)


def test_where_no_cell_is_named_what_has_run_is_not_put_into_a_prompt_where_enter_runs_it_again() -> None:
    """As in Jupyter Console and Qt Console."""
    client = pytest.importorskip("jupyter_client.manager")
    manager, talk = client.start_new_kernel(kernel_name="python3")
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        said.append(message["content"].get("text", ""))

    try:
        for cell in (LOAD, SETUP, BODY):
            talk.execute_interactive(cell, timeout=300, output_hook=lambda message: None)
        ran = talk.execute_interactive("%autograd_fix --run", timeout=300, output_hook=hear)
        handed = talk.execute_interactive("%autograd_fix", timeout=300, output_hook=hear)
    finally:
        talk.stop_channels()
        manager.shutdown_kernel(now=True)
    assert ran["content"]["payload"] == []
    assert [put["text"] for put in handed["content"]["payload"]] == [BODY.replace("x += 1", "x = x + 1")]
    text = "".join(said)
    assert "Fixed In[3] and ran it: no error. %autograd_fix hands over the new text of In[3]." in text
    assert "Fixed In[3] in the kernel. The next prompt, or a cell below, holds the new text of In[3]; run it." in text


def test_a_cell_with_top_level_await_is_fixed_handed_over_and_not_run() -> None:
    awaits = f"import asyncio\nawait asyncio.sleep(0)\n{BODY}"
    notebook, error = execute(
        LOAD, SETUP, awaits, "%autograd_fix --run", "print(w.grad)", f"%%autograd_check\n{awaits}", allow_errors=True
    )
    assert error is None
    (found,) = bundles(notebook.cells[2])
    assert found["fixes"]
    (said,) = notebook.cells[3].outputs
    assert "holds the new text of In[3]; run it. (A cell with top-level await cannot be run" in said["text"]
    assert notebook.cells[4].outputs[0]["text"] == "None\n"
    (refused,) = notebook.cells[5].outputs
    assert "UsageError: a cell with top-level await cannot be watched in a notebook" in refused["text"]
