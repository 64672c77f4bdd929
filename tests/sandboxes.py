"""The places in which a rerun may be made, for tests that hold in both."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from inplace_magic.sandbox import may_fork

needs_fork = pytest.mark.skipif(may_fork.why_not() is not None, reason="needs a copy of the process")
needs_replica = pytest.mark.skipif(find_spec("cloudpickle") is None, reason="a replica needs cloudpickle")
SANDBOXES = [pytest.param("fork", marks=needs_fork), pytest.param("replica", marks=needs_replica)]
