"""From one loss a token to one number: how much does each token weigh?

Each function turns a mask into weights; the loss is weighted_sum(loss_BT, weights_BT, mask_BT). Compute the
weights on the whole minibatch of one optimiser step, *before* rows are left out or micro-batches are split:
then the parts add up to the whole. Reducing after dropping rows changes every denominator.
"""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require_float, require_mask, require_range, require_same_shape


def sequence_mean(mask_BT: Tensor) -> Tensor:
    """Average within each answer, then over the answers: every answer counts the same (GRPO).

    weight[b, t] = 1 / (B * n_b), n_b own tokens in row b

    A token of a long answer weighs less than one of a short answer: a long wrong answer is punished less for
    each of its tokens. A row without own tokens still counts in B, and weighs 0.

    Returns:
        weights_BT: float32, 0 off the mask. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: mask_BT has not two axes.

    Source: Shao et al. 2024, DeepSeekMath, eq. 3 https://arxiv.org/abs/2402.03300
    """
    require_mask("mask_BT", mask_BT)

    rows = mask_BT.shape[0]
    length_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return mask_BT.float() / (rows * length_B1)


def token_mean(mask_BT: Tensor) -> Tensor:
    """Average over all tokens of the batch: every token counts the same (DAPO).

    weight[b, t] = 1 / (sum_b n_b), n_b own tokens in row b

    A long answer counts more than a short one. An all-empty mask gives zeros.

    Returns:
        weights_BT: float32, 0 off the mask, adding up to 1. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: mask_BT has not two axes.

    Source: Yu et al. 2025, DAPO, sec. 3.3 https://arxiv.org/abs/2503.14476
    """
    require_mask("mask_BT", mask_BT)

    return mask_BT.float() / mask_BT.sum().clamp(min=1)


def constant_mean(mask_BT: Tensor, *, length: float) -> Tensor:
    """Divide by a constant that no answer can change (Dr. GRPO).

    weight[b, t] = 1 / (B * length)

    Every token counts the same, in this batch and in the next: no token gets cheaper because its answer is
    long. An all-empty mask gives zeros.

    Args:
        length: the largest answer length, usually; any fixed number only scales the learning rate.

    Returns:
        weights_BT: float32, 0 off the mask. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: mask_BT has not two axes, or length is not above 0.

    Source: Liu et al. 2025, Understanding R1-Zero-Like Training (Dr. GRPO), sec. 3
        https://arxiv.org/abs/2503.20783
    """
    require_mask("mask_BT", mask_BT)
    require_range("length", length, 0, math.inf, low_open=True, high_open=True)

    return mask_BT.float() / (mask_BT.shape[0] * length)


def sequence_sum_mean(mask_BT: Tensor) -> Tensor:
    """Add up within each answer, then average over the answers (the policy gradient as it is derived).

    weight[b, t] = 1 / B

    With loss = -A * logp this is exactly -A * log pi(answer), averaged over the rows: plain REINFORCE. Longer
    answers make larger steps. An all-empty mask gives zeros.

    Returns:
        weights_BT: float32, 0 off the mask. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: mask_BT has not two axes.

    Source: Williams 1992, Simple statistical gradient-following algorithms, sec. 5 (episodic REINFORCE)
        https://doi.org/10.1007/BF00992696
    """
    require_mask("mask_BT", mask_BT)

    return mask_BT.float() / mask_BT.shape[0]


def weighted_sum(loss_BT: Tensor, weights_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Multiply each own token's loss by its weight and add up.

    loss = sum_{b,t: mask[b,t]} loss[b,t] * weights[b,t]

    nan or inf off the mask changes neither value nor gradient. An all-empty mask gives 0.

    Returns:
        loss: shape (). Gradient flows to loss_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.
    """
    require_float("loss_BT", loss_BT)
    require_same_shape(loss_BT=loss_BT, weights_BT=weights_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    # Both factors are masked: 0 * nan is nan, in the sum and in its gradient.
    loss_BT = torch.where(mask_BT, loss_BT, 0)
    weights_BT = torch.where(mask_BT, weights_BT.detach(), 0)
    return (loss_BT * weights_BT).sum()
