"""A tour of real failures: each one is run, explained, fixed, then run again in an embedded IPython shell."""

from __future__ import annotations

import contextlib
import io
import sys
import time
import warnings
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any, TextIO, cast

from .diagnosis import Diagnosis
from .message import Language, message, said
from .report.printing import showable


@dataclass(frozen=True)
class Situation:
    """A failure people meet. The last of ``cells`` fails; with ``check`` it raises nothing and has to be watched."""

    title: str
    cells: tuple[str, ...]
    check: bool = False


@dataclass
class Stop:
    """What came of one situation."""

    situation: Situation
    diagnosis: Diagnosis | None = None
    error: BaseException | None = None
    report: str = ""
    accepted: str = ""
    seconds: float = field(default=0.0)

    @property
    def fixed(self) -> bool:
        found = self.diagnosis
        return found is not None and bool(found.fixes) and found.fixes[0].verified and self.error is None


def _situation(kind: str, *cells: str, check: bool = False) -> Situation:
    return Situation(message(kind), tuple(dedent(cell).strip("\n") for cell in cells), check)


SITUATIONS = (
    _situation(
        "tour_rnn",
        """
        import torch
        torch.manual_seed(0)
        rnn = torch.nn.RNN(input_size=2, hidden_size=3)
        xs, ys = torch.randn(5, 4, 2), torch.randn(5, 4, 3)
        opt = torch.optim.Adadelta(rnn.parameters(), lr=0.01)
        state = torch.zeros(1, 3)
        """,
        """
        for i in range(5):
            opt.zero_grad()
            out, new_state = rnn(xs[i], state)
            loss = (out - ys[i]).pow(2).mean()
            loss.backward(retain_graph=True)
            opt.step()
            state = new_state
        """,
    ),
    _situation(
        "tour_lstm",
        """
        import torch
        torch.manual_seed(0)
        lstm = torch.nn.LSTM(3, 4, batch_first=True)
        xs, ys = torch.randn(6, 2, 5, 3), torch.randn(6, 2, 4)
        opt = torch.optim.SGD(lstm.parameters(), lr=0.05)
        hidden = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
        """,
        """
        for step in range(6):
            opt.zero_grad()
            out, hidden = lstm(xs[step], hidden)
            loss = (out[:, -1] - ys[step]).pow(2).mean()
            loss.backward()
            opt.step()
        """,
    ),
    _situation(
        "tour_gan_step",
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        G, D = nn.Linear(2, 3), nn.Linear(3, 1)
        optG, optD = (torch.optim.Adam(net.parameters()) for net in (G, D))
        noise = torch.randn(4, 2)
        """,
        """
        fake = G(noise)
        score = D(fake)
        lossD = score.mean()
        optD.zero_grad()
        lossD.backward(retain_graph=True)
        optD.step()
        lossG = fake.pow(2).mean() - score.mean()
        optG.zero_grad()
        lossG.backward()
        optG.step()
        """,
    ),
    _situation(
        "tour_gan_freed",
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        G, D = nn.Linear(2, 3), nn.Linear(3, 1)
        optG, optD = (torch.optim.Adam(net.parameters()) for net in (G, D))
        noise = torch.randn(4, 2)
        """,
        """
        fake = torch.tanh(G(noise))
        score = D(fake)
        lossD = score.mean()
        optD.zero_grad()
        lossD.backward()
        optD.step()
        lossG = fake.pow(2).mean() - score.mean()
        optG.zero_grad()
        lossG.backward()
        optG.step()
        """,
    ),
    _situation(
        "tour_leaf",
        """
        import torch
        a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        a += 1
        loss = (a ** 2).sum()
        loss.backward()
        """,
    ),
    _situation(
        "tour_augmentation",
        """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(12, 3)
        images = torch.rand(2, 12, requires_grad=True)
        """,
        """
        augmented = images
        augmented += 0.1
        loss = model(augmented).pow(2).mean()
        loss.backward()
        """,
    ),
    _situation(
        "tour_relu",
        """
        import torch
        from torch import nn

        class Gate(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 3, padding=1)
                self.act = nn.ReLU(inplace=True)

            def forward(self, x):
                gate = torch.sigmoid(self.conv(x))
                return self.act(gate)
        """,
        """
        torch.manual_seed(0)
        net = Gate()
        x = torch.randn(2, 3, 6, 6)
        """,
        """
        loss = net(x).mean()
        loss.backward()
        """,
    ),
    _situation(
        "tour_model",
        """
        import torch
        import torch.nn as nn
        import torch.nn.functional as F

        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.score16 = nn.Conv2d(3, 4, 1)
                self.main = nn.Conv2d(3, 4, 1)

            def forward(self, img):
                feature16 = self.score16(img)
                x = F.relu(self.main(img))
                x += feature16
                return x
        """,
        """
        torch.manual_seed(0)
        net = Decoder()
        img = torch.randn(2, 3, 8, 8)
        """,
        """
        for epoch in range(2):
            loss = net(img).pow(2).mean()
            loss.backward()
        """,
    ),
    _situation(
        "tour_two",
        """
        import torch
        torch.manual_seed(0)
        w, y = torch.randn(4, requires_grad=True), torch.ones(4)
        """,
        """
        x = w.exp()
        x.add_(y)
        z = x.sigmoid()
        z.mul_(2)
        loss = z.sum()
        loss.backward()
        """,
    ),
    _situation(
        "tour_data",
        """
        import torch
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        """,
        """
        loss = (x ** 2).sum()
        x_data = x.data
        x_data += 1
        loss.backward()
        """,
        check=True,
    ),
)


def run(color: bool, language: Language = "en") -> int:
    """Runs the whole tour, printing as it goes. Returns the exit status: 0 if every situation was fixed, else 1."""
    from rich.console import Console

    def say(kind: str, **arguments: Any) -> str:
        return said(message(kind, **arguments), language)

    console = Console(file=cast(TextIO, _Printing(sys.stdout)), no_color=not color, highlight=False)
    console.print(f"[bold]inplace_magic[/bold]: {say('tour_title')}\n")
    with console.status(say("tour_loading")), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch misses numpy, which nothing here needs
        import torch  # noqa: F401
        from IPython.core.interactiveshell import InteractiveShell  # noqa: F401
    stops = []
    for number, situation in enumerate(SITUATIONS, 1):
        title = said(situation.title, language)
        console.rule(say("tour_stop", number=number, count=len(SITUATIONS), title=title), align="left")
        with console.status(say("tour_running")):
            stop = visit(situation)
        _show(console, stop, language)
        stops.append(stop)
    console.rule()
    _table(console, stops, language)
    return 0 if all(stop.fixed for stop in stops) else 1


def visit(situation: Situation) -> Stop:
    """Runs one situation in a shell of its own and accepts the first fix."""
    shell = _new_shell()
    stop = Stop(situation)
    *before, failing = situation.cells
    for cell in before:
        _run(shell, cell)
    start = time.perf_counter()
    error, output = _run(shell, f"%%autograd_check\n{failing}" if situation.check else failing)
    stop.seconds = time.perf_counter() - start
    import inplace_magic

    stop.diagnosis = inplace_magic.last_diagnosis()
    stop.report = output
    stop.error = error
    if stop.diagnosis is not None and stop.diagnosis.fixes:
        stop.seconds = stop.diagnosis.seconds
        stop.error, stop.accepted = _run(shell, "%autograd_fix --run")
    return stop


def _new_shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "inplace_magic")
    return shell


def _run(shell: Any, cell: str) -> tuple[BaseException | None, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        result = shell.run_cell(cell, store_history=True)
    return result.error_before_exec or result.error_in_exec, out.getvalue()


def _show(console: Any, stop: Stop, language: Language) -> None:
    from .report import text

    for number, cell in enumerate(stop.situation.cells, 1):
        console.print(f"[dim]In[{number}][/dim]")
        for line in cell.splitlines():
            console.print(f"  {line}", markup=False, highlight=False)
    console.print()
    if stop.diagnosis is None:
        console.print(said(message("tour_nothing"), language), style="bold")
        console.print(stop.report, markup=False, highlight=False)
        return
    width = min(console.width, 110)
    report = text.render(stop.diagnosis, width=width, color=console.is_terminal, language=language)
    console.out(report, highlight=False)
    if stop.fixed:
        console.print(f"[green]%autograd_fix --run[/green]: {said(message('tour_accepted'), language)}\n")
    elif stop.error is not None:
        console.print(f"[red]%autograd_fix --run[/red]: {stop.error}\n", highlight=False)


def _table(console: Any, stops: list[Stop], language: Language = "en") -> None:
    from rich import box
    from rich.table import Table

    def say(kind: str) -> str:
        return said(message(kind), language)

    table = Table(title=say("tour_result"), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    # Prose is wrapped between words; a fix's code is cut where the terminal is narrow, as its diff stands above.
    table.add_column(say("tour_situation"), min_width=24, max_width=46, overflow="fold")
    table.add_column(say("tour_line"), no_wrap=True, min_width=7)
    table.add_column(say("tour_fix"), no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - 58))
    table.add_column(say("tour_verified"), no_wrap=True, min_width=9)
    table.add_column(say("tour_seconds"), justify="right", no_wrap=True, min_width=3)
    for stop in stops:
        found = stop.diagnosis
        fix = found.fixes[0] if found is not None and found.fixes else None
        place = found.changed if found is not None else None
        table.add_row(
            said(stop.situation.title, language),
            place.label if place is not None else "-",
            said(fix.title, language) if fix is not None else say("tour_no_fix"),
            say(f"tour_{fix.gradients if fix is not None else 'unknown'}") if stop.fixed else say("tour_not_fixed"),
            f"{stop.seconds:.1f}",
        )
    console.print(table)


class _Printing:
    """A stream for rich that shows what the real one can of each text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(showable(text, self._stream))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
