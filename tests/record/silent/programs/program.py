"""A program in two versions, and what runs ahead of each."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """``setup`` runs in a cell of its own ahead. ``line`` is False where no line of the cell wrote."""

    name: str
    text: str
    setup: str = ""
    by: str = "differences"
    line: bool = True
    fixable: bool = True

    @property
    def wrong(self) -> str:
        return "".join(line for line in self._lines() if not line.rstrip().endswith("#+"))

    @property
    def twin(self) -> str:
        return "".join(line for line in self._lines() if not line.rstrip().endswith(("#!", "#-")))

    @property
    def blamed(self) -> frozenset[tuple[str, str]]:
        """(cell, text) of the lines to blame; the first word is ``setup`` or ``cell``."""
        marked = [("cell", line) for line in self.wrong.splitlines()]
        marked += [("setup", line) for line in textwrap.dedent(self.setup).splitlines()]
        return frozenset((cell, line.strip()) for cell, line in marked if line.rstrip().endswith(("#!", "#<")))

    def _lines(self) -> list[str]:
        return textwrap.dedent(self.text).lstrip("\n").splitlines(keepends=True)


START = """
import copy, ctypes, tempfile, threading, queue
from concurrent.futures import ThreadPoolExecutor
import numpy, torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
torch.manual_seed(3)
x = torch.randn(6, requires_grad=True)
w = torch.randn(3, 3, requires_grad=True)
v = torch.rand(3).add(0.5).requires_grad_()
"""
