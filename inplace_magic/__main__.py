"""``python -m inplace_magic``: a script or a notebook is explained, then fixed; without one, a tour of real failures."""

from __future__ import annotations

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
