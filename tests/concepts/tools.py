"""Small helpers for the tests of the concepts."""

import torch
from torch import Tensor


def row(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """One row of numbers, shape (1, T)."""
    return torch.tensor([values], dtype=dtype)


def own(*flags: int) -> Tensor:
    """One row of a mask, shape (1, T): own(1, 0, 1) is [[True, False, True]]."""
    return torch.tensor([flags]).bool()


def gradient(function, x: Tensor) -> Tensor:
    """The gradient at x of the sum of function(x)."""
    x = x.detach().clone().requires_grad_()
    (grad,) = torch.autograd.grad(function(x).sum(), x)
    return grad


def close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> bool:
    """Same shape, and nowhere further apart than tolerance. nan equals nothing."""
    return a.shape == b.shape and bool(((a - b).abs() <= tolerance).all())


def random_logits(*shape: int, seed: int = 0) -> Tensor:
    """Reproducible logits in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
