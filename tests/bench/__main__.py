"""What the extension costs: ``python -m tests.bench [--quick] [--only WORD] [--json FILE]``.

Every figure is a ratio of two things measured in turns in this very run (or a difference, where that is said). Nothing
here fails: a table is printed, with the target beside each figure and what bounds it.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many threads in the plain run as in a copied process

from . import measure
from .measure import Figure
from .overlay import overlay
from .replicas import replicas

_PARTS: dict[str, Callable[[bool], Iterator[Figure]]] = {
    "loading": measure.loading,
    "cells": measure.cells,
    "recording": measure.recording,
    "watching": measure.watching,
    "diagnoses": measure.diagnoses,
    "replicas": replicas,
    "overlay": overlay,
    "copying": measure.copying,
    "memory": measure.memory,
    "growth": measure.growth,
}


def line(figure: Figure) -> str:
    target = "" if figure.target is None else f"{figure.target:g}"
    mark = " " if figure.target is None or figure.value <= figure.target else "!"
    return f"{figure.name:72} {figure.value:9.2f} {target:>6} {mark} {figure.unit:8} {figure.bound}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: to see that it runs")
    parser.add_argument("--only", choices=list(_PARTS), action="append", help="measure this part (may be repeated)")
    parser.add_argument("--json", default="bench.json", help="where the figures go (default: %(default)s)")
    options = parser.parse_args(arguments)
    print(f"{'figure':72} {'measured':>9} {'target':>6}   {'unit':8} what bounds it")
    figures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in options.only or _PARTS:
            for figure in _PARTS[name](options.quick):
                figures.append(figure)
                print(line(figure), flush=True)
    measure.write(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
