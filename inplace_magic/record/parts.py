"""The strided tensors that a tensor of another layout is made of: they lie in memory that others may write."""

from __future__ import annotations

import torch

from ..torch_private import sparse_parts

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A strided tensor is its own only part; a layout that is not known has none."""
    if tensor.layout is torch.strided:
        return (tensor,)
    try:
        if tensor.layout is torch.sparse_coo:
            return sparse_parts(tensor)
        if tensor.layout in _COMPRESSED:
            return (*(getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]), tensor.values())
    except (RuntimeError, AttributeError):
        pass
    return ()
