"""``python -m inplace_magic``: a tour of real failures, each explained, fixed and run again."""

from __future__ import annotations

import argparse
import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs the tour. Returns 0 if every failure was fixed, 1 if one was not."""
    parser = argparse.ArgumentParser(
        prog="python -m inplace_magic",
        description="A tour of real in-place autograd failures: each one is run in an embedded IPython shell, "
        "explained, fixed and run again. In your own session: %load_ext inplace_magic",
    )
    parser.parse_args(arguments)
    from .tour import run

    return run(color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))


if __name__ == "__main__":
    sys.exit(main())
