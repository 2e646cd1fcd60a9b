"""Sums, means and spreads over the policy's own tokens only."""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require_count, require_mask, require_range, require_same_shape


def masked_sum(x_BT: Tensor, mask_BT: Tensor, *, dim: int | None = None) -> Tensor:
    """Add up the entries whose mask is True.

    sum = sum_{b,t: mask[b,t]} x[b,t]

    Nothing kept gives 0. Whatever stands where the mask is False, nan and inf included, changes neither the
    sum nor its gradient.

    Args:
        dim: None for one sum over everything, 1 for one sum a row, 0 for one a column.

    Returns:
        sum: shape (), or the shape left when `dim` is summed away. Gradient flows to the kept entries of x_BT.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.
    """
    require_same_shape(x_BT=x_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    # x * mask would turn a nan under the mask into nan: choose with where, do not multiply.
    kept_BT = torch.where(mask_BT, x_BT, 0)
    return kept_BT.sum(dim=dim)


def masked_mean(x_BT: Tensor, mask_BT: Tensor, *, dim: int | None = None) -> Tensor:
    """Average the entries whose mask is True.

    mean = (sum_{mask} x) / (number of True)

    Nothing kept gives 0, with gradient 0: the count in the denominator is at least 1.

    Args:
        dim: None for one mean over everything, 1 for one mean a row, 0 for one a column.

    Returns:
        mean: shape (), or the shape left when `dim` is averaged away. Gradient flows to the kept entries of x_BT.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.
    """
    total = masked_sum(x_BT, mask_BT, dim=dim)
    count = mask_BT.sum(dim=dim).clamp(min=1)
    return total / count


def masked_var(x_BT: Tensor, mask_BT: Tensor, *, ddof: int = 0) -> Tensor:
    """Measure how far the kept entries lie from their mean: the average squared distance.

    var = sum_{mask} (x - mean)^2 / (n - ddof), with n the number of True

    Equal entries give exactly 0, and so does a mask with at most one True. ddof=0 describes these n numbers,
    ddof=1 estimates the variance of the source they were drawn from.

    Returns:
        var: shape (). Gradient flows to the kept entries of x_BT.

    Raises:
        TypeError: mask_BT is not bool, or ddof is not a whole number.
        ValueError: the shapes differ, or ddof is negative.
    """
    require_same_shape(x_BT=x_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)
    require_count("ddof", ddof, least=0)

    # The mean of eight times 0.1 in float32 is not 0.1. Counting from the smallest kept entry makes equal
    # entries exactly 0 before any rounding, and moves no variance.
    lowest = torch.where(mask_BT, x_BT.detach(), math.inf).amin()
    above_BT = torch.where(mask_BT, x_BT - lowest, 0)
    distance_BT = torch.where(mask_BT, above_BT - masked_mean(above_BT, mask_BT), 0)
    count = (mask_BT.sum() - ddof).clamp(min=1)
    return distance_BT.square().sum() / count


def masked_whiten(x_BT: Tensor, mask_BT: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Shift and scale the kept entries to mean 0 and standard deviation 1.

    white = (x - mean) / (sqrt(var) + eps), var with ddof 0

    Equal entries give exactly 0 (and not rounding noise divided by eps). So does every entry off the mask.

    Args:
        eps: added to the standard deviation, not to the variance.

    Returns:
        white_BT: gradient flows to the kept entries of x_BT, through mean and var as well.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ, or eps is negative.
    """
    require_range("eps", eps, 0, math.inf)
    var = masked_var(x_BT, mask_BT)
    varies = var > 0

    # Choose before dividing and before the root: the slope of sqrt at 0 is infinite, and in the backward pass
    # 0 * inf and 0 * nan are nan.
    std = torch.where(varies, var, 1).sqrt()
    distance_BT = torch.where(mask_BT & varies, x_BT - masked_mean(x_BT, mask_BT), 0)
    return distance_BT / (std + eps)
