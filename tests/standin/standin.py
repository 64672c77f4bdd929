"""A stand-in for an accelerator: ``import standin``, then ``device="standin"`` is one that torch runs backward apart for.

Built with the compiler of the system on first import, once for each text and version of torch; see standin.cpp.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

_SOURCE = Path(__file__).with_suffix(".cpp")


def build() -> Path:
    """The library, which is made if it is not there yet."""
    torch_folder = Path(torch.__file__).parent
    key = hashlib.sha256(_SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("STANDIN_CACHE", tempfile.gettempdir()))
    library = cache / f"standin-{key}.so"
    if not library.exists():
        beginning = library.with_suffix(f".{os.getpid()}")
        libraries = [f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_folder / 'lib'}"]
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
        compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-w", "-shared", "-fPIC", abi]
        subprocess.run(
            [*compiler, f"-I{torch_folder / 'include'}", str(_SOURCE), "-o", str(beginning), *libraries],
            check=True,
        )
        beginning.rename(library)
    return library


def _module() -> Any:
    ops = torch.ops.standin
    module: Any = types.ModuleType("torch.standin")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda device: None
    module.synchronize = lambda device=None: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.manual_seed = lambda seed: ops.default_generator().manual_seed(seed) and None
    module.get_rng_state = lambda device="standin": ops.default_generator().get_state()
    module.set_rng_state = lambda state, device="standin": ops.default_generator().set_state(state) and None
    for name in ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats", "set_capacity"):
        setattr(module, name, getattr(ops, name))
    module.mem_get_info = lambda device=None: (max(0, (ops.capacity() or 2**40) - ops.memory_allocated()), 2**40)
    module.synchronized, module.kernels = ops.synchronized, ops.kernels
    return module


torch.utils.rename_privateuse1_backend("standin")
torch.ops.load_library(build())
torch._register_device_module("standin", _module())
torch.utils.generate_methods_for_privateuse1_backend()
