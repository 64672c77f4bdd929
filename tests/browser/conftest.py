"""A real Chromium at a real server with real kernels. One server and one browser serve every test."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

SOURCES = """() => [...window.jupyterapp.shell.widgets('main')]
  .flatMap(panel => panel.content?.widgets ?? [])
  .filter(cell => cell.model?.type === 'code')
  .map(cell => cell.model.sharedModel.getSource())"""
EMPTY = "() => { for (const one of [...window.jupyterapp.shell.widgets('main')]) one.dispose(); }"
# In braces: what a command returns, a whole widget, is not to be brought over.
COMMAND = "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args); }"
ROOT = Path(__file__).parents[2]
CHROMIUM = "/usr/bin/chromium"
NEEDED = ("playwright", "jupyterlab", "notebook", "ipykernel", "nbformat")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing() -> str:
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not Path(CHROMIUM).exists():
        lacking.append(CHROMIUM)
    return ", ".join(lacking)


@pytest.fixture(scope="session", autouse=True)
def everything_is_here() -> None:
    if missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs {missing()}")


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebooks")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url: str, server: subprocess.Popen) -> None:
    for _ in range(240):
        assert server.poll() is None, "the server died"
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.25)
        else:
            return
    raise AssertionError("the server does not answer")


def silence_news(config: Path) -> None:
    settings = config / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')


@pytest.fixture(scope="package")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that serves JupyterLab and Notebook with the front end of this very checkout."""
    home = tmp_path_factory.mktemp("home")
    (home / "data" / "labextensions").mkdir(parents=True)
    (home / "data" / "labextensions" / "inplace-magic").symlink_to(ROOT / "inplace_magic" / "labextension")
    silence_news(home / "config")
    environment = {
        **os.environ,
        "HOME": str(home),
        "JUPYTER_PATH": str(home / "data"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "userdata"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
        "OMP_NUM_THREADS": "1",
    }
    port = free_port()
    options = {
        "ServerApp.port": port,
        "ServerApp.root_dir": folder,
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        "ServerApp.disable_check_xsrf": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "JupyterNotebookApp.expose_app_in_browser": True,
    }
    command = [sys.executable, "-m", "jupyter", "lab", *(f"--{name}={value}" for name, value in options.items())]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/api", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="package")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        # One profile, so that the front end's own megabytes are compiled once.
        yield chromium.new_context()
        chromium.close()


@pytest.fixture(params=["lab", pytest.param("notebook", marks=pytest.mark.front_ends)])
def front_end(request: pytest.FixtureRequest) -> str:
    return request.param


class Page:
    """One notebook in one front end, as a person handles it."""

    def __init__(self, page, server: str, folder: Path, front_end: str, loaded: bool) -> None:
        self.page = page
        self.loaded = loaded
        self.server = server
        self.folder = folder
        self.front_end = front_end

    def write(
        self, name: str, *sources: str, ids: Sequence[str] = (), outputs: Mapping[int, dict] | None = None
    ) -> None:
        """``outputs`` gives the bundle that a cell has shown, by its place."""
        import nbformat

        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        for cell, given in zip(cells, ids, strict=False):
            cell["id"] = given
        for at, data in (outputs or {}).items():
            cells[at].update(execution_count=at + 1, outputs=[nbformat.v4.new_output("display_data", data=data)])
        book = nbformat.v4.new_notebook(cells=cells)
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(book, self.folder / name)

    def open(self, name: str) -> None:
        """The first time in a test in what is loaded, if it is; then the page is loaded anew."""
        if self.loaded:
            self.command("docmanager:open", {"path": name, "kernel": {"name": "python3"}})
        else:
            where = f"lab/tree/{name}?reset" if self.front_end == "lab" else f"notebooks/{name}"
            self.page.goto(f"{self.server}/{where}")
        self.loaded = False
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=240_000)
        self.wait_idle()

    def wait_idle(self) -> None:
        current = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
        self.page.wait_for_function(f"() => {current}?.status === 'idle'", timeout=240_000)

    def command(self, name: str, arguments: dict | None = None) -> None:
        self.page.evaluate(COMMAND, [name, arguments or {}])

    def cell(self, at: int):
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(at)

    def source(self, at: int) -> str:
        """From the model: older versions draw only the cells that are in view."""
        return self.page.evaluate(SOURCES)[at]

    def expect_source(self, at: int, source: str) -> None:
        until = time.monotonic() + 60
        while self.source(at) != source and time.monotonic() < until:
            self.page.wait_for_timeout(50)
        assert self.source(at) == source

    def save(self) -> None:
        self.command("docmanager:save")
        self.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")

    def click_into(self, at: int) -> None:
        self.cell(at).locator(".cm-content").click()

    def append(self, at: int, text: str) -> None:
        """Types at the end of a cell."""
        self.click_into(at)
        self.page.keyboard.press("Control+End")
        self.page.keyboard.type(text)

    def prompt(self, at: int) -> str:
        return self.cell(at).locator(".jp-InputPrompt").inner_text()

    def run(self, at: int) -> None:
        """Ctrl+Enter in the cell. The first key after a page has loaded can be lost, hence the patience."""
        before = self.prompt(at)
        for _ in range(10):
            self.click_into(at)
            self.page.keyboard.press("Control+Enter")
            if self.moved(at, before):
                break
        self.finished(at, before)

    def moved(self, at: int, before: str) -> bool:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            if self.prompt(at) != before:
                return True
            self.page.wait_for_timeout(50)
        return False

    def finished(self, at: int, before: str = "") -> None:
        until = time.monotonic() + 240
        while time.monotonic() < until:
            if re.search(r"\d", self.prompt(at)) and self.prompt(at) != before:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"cell {at} did not finish: {self.prompt(at)}")

    def run_all(self, cells: int) -> None:
        for at in range(cells):
            self.run(at)

    def type(self, at: int, text: str) -> None:
        """Without the brackets and indents that an editor adds to single keys."""
        self.cell(at).locator(".cm-content").click()
        self.page.keyboard.insert_text(text)

    def key(self, at: int, key: str) -> None:
        self.cell(at).locator(".cm-content").click()
        self.page.keyboard.press(key)

    def panel(self, at: int):
        return self.cell(at).locator(".ipm-panel")

    def bar(self, at: int):
        return self.cell(at).locator(".ipm-bar")

    def press(self, at: int, label: str) -> None:
        self.cell(at).get_by_role("button", name=label, exact=True).click()

    def expect_text(self, locator, text: str, timeout: int = 120_000) -> None:
        from playwright.sync_api import expect

        expect(locator).to_contain_text(text, timeout=timeout)

    def expect_in_view(self, locator) -> None:
        from playwright.sync_api import expect

        expect(locator).to_be_in_viewport()

    def output(self, at: int) -> str:
        return self.cell(at).locator(".jp-Cell-outputWrapper").inner_text()

    def picture(self, name: str, show=None) -> None:
        """A picture to look at, where a person asks for pictures; ``show`` is brought into view."""
        where = os.environ.get("INPLACE_MAGIC_PICTURES")
        if where:
            if show is not None:
                show.evaluate("node => node.scrollIntoView({block: 'end'})")
            self.page.screenshot(path=str(Path(where) / f"{name}-{self.front_end}.png"))


@pytest.fixture(scope="package")
def loaded() -> list:
    """Pages that hold JupyterLab, empty, left by other tests: to load it takes longer than most tests."""
    return []


@pytest.fixture
def pages(
    browser, loaded: list, server: str, folder: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Page]]:
    """Opens pages; what a page logs as an error fails the test, and its kernels are shut down afterwards."""
    opened = []
    trouble: list[str] = []
    failed = request.session.testsfailed
    heard = {
        "dialog": lambda dialog: dialog.accept(),
        "console": lambda message: trouble.append(message.text) if "inplace-magic" in message.text else None,
        "pageerror": lambda error: trouble.append(str(error)) if "inplace-magic" in str(error.stack) else None,
    }

    def make(front_end: str, narrow: bool = False) -> Page:
        again = front_end == "lab" and bool(loaded)
        page = loaded.pop() if again else browser.new_page()
        opened.append((page, front_end == "lab"))
        page.set_viewport_size({"width": 380 if narrow else 1100, "height": 900})
        page.set_default_timeout(120_000)
        for event, hear in heard.items():
            page.on(event, hear)
        return Page(page, server, folder, front_end, again)

    yield make
    for page, lab in opened:
        if lab and request.session.testsfailed == failed:
            page.evaluate(EMPTY)
            for event, hear in heard.items():
                page.remove_listener(event, hear)
            loaded.append(page)
        else:
            page.close()
    shut_kernels_down(server)
    assert not trouble


def shut_kernels_down(server: str) -> None:
    with urllib.request.urlopen(f"{server}/api/sessions") as answer:
        sessions = json.load(answer)
    for session in sessions:
        urllib.request.urlopen(
            urllib.request.Request(f"{server}/api/sessions/{session['id']}", method="DELETE")
        ).close()


@pytest.fixture
def page(pages: Callable[[str], Page], front_end: str) -> Page:
    return pages(front_end)


@pytest.fixture
def lab(pages: Callable[[str], Page]) -> Page:
    """JupyterLab alone, for what does not depend on the front end."""
    return pages("lab")
