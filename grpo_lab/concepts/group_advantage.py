"""How much better than expected was an answer? Expected = what the other answers got."""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require, require_float, require_groups, require_range, require_shape


def _require_finite(rewards_B: Tensor) -> None:
    """Raise ValueError naming the first row whose reward is nan or infinite."""
    finite_B = rewards_B.isfinite()
    if not finite_B.all():
        row = int((~finite_B).nonzero()[0])
        raise ValueError(
            f"rewards_B[{row}] is {rewards_B[row].item()}: one such reward would spoil its whole group. Give "
            f"an answer that cannot be scored a number (0, say), or leave its group out."
        )


def _grouped(rewards_B: Tensor, group_size: int) -> Tensor:
    """Check the rewards and lay them out as rewards_PG, one prompt a row, without gradient."""
    require_groups("rewards_B", rewards_B, group_size, least=2)
    _require_finite(rewards_B)
    return rewards_B.detach().reshape(-1, group_size)


def group_advantage(rewards_B: Tensor, *, group_size: int, eps: float = 1e-4) -> Tensor:
    """Compare each answer with the answers to the same prompt, in units of their spread (GRPO).

    A[p, g] = (R[p, g] - mean_g R[p]) / (std_g R[p] + eps), std with ddof 1

    R are the rewards, mean_g and std_g run over the group. A group of equal rewards gets exactly 0: it has no
    policy gradient. A group of two gets +0.707 and -0.707, whether the rewards differ by 0.1 or by 10.

    Args:
        rewards_B: row p * group_size + g is answer g of prompt p.
        eps: added to the standard deviation, for groups that hardly differ.

    Returns:
        advantages_B: sums to 0 within each group. No gradient.

    Raises:
        TypeError: rewards are not floating-point.
        ValueError: group_size is below 2 or does not divide B, or a reward is nan or infinite.

    Source: Shao et al. 2024, DeepSeekMath, sec. 4.1.2 (ddof and eps are not printed there)
        https://arxiv.org/abs/2402.03300
    """
    rewards_PG = _grouped(rewards_B, group_size)
    require_range("eps", eps, 0, math.inf)

    # dim=1 is the group. A mean over the whole batch would let easy prompts pay for hard ones.
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    std_P1 = rewards_PG.std(dim=1, keepdim=True)
    # Eight times 0.1 has a float32 mean other than 0.1, and eps is small: test for equality instead.
    differ_P1 = rewards_PG.amax(dim=1, keepdim=True) > rewards_PG.amin(dim=1, keepdim=True)
    return torch.where(differ_P1, distance_PG / (std_P1 + eps), 0).reshape(-1)


def group_mean_advantage(rewards_B: Tensor, *, group_size: int) -> Tensor:
    """Compare each answer with the mean of the answers to the same prompt, in units of reward (Dr. GRPO).

    A[p, g] = R[p, g] - mean_g R[p]

    Nothing is divided by the spread, so a prompt with 4 right answers in 8 weighs more than one with 1 in 8:
    the squares add up to 2 against 0.875 (with the division, to 7 for both). Equal rewards give exactly 0.

    Args:
        rewards_B: row p * group_size + g is answer g of prompt p.

    Returns:
        advantages_B: sums to 0 within each group. No gradient.

    Raises:
        TypeError: rewards are not floating-point.
        ValueError: group_size is below 2 or does not divide B, or a reward is nan or infinite.

    Source: Liu et al. 2025, Understanding R1-Zero-Like Training (Dr. GRPO), sec. 3
        https://arxiv.org/abs/2503.20783
    """
    rewards_PG = _grouped(rewards_B, group_size)

    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    differ_P1 = rewards_PG.amax(dim=1, keepdim=True) > rewards_PG.amin(dim=1, keepdim=True)
    return torch.where(differ_P1, distance_PG, 0).reshape(-1)


def leave_one_out_advantage(rewards_B: Tensor, *, group_size: int) -> Tensor:
    """Compare each answer with the mean of the *other* answers to the same prompt (RLOO).

    A[p, g] = R[p, g] - (sum_{j != g} R[p, j]) / (group_size - 1)

    The baseline does not contain the answer it judges, so on average the gradient is exactly that of the
    expected reward; with the group mean it is (group_size - 1) / group_size of it. That is the whole difference
    between the two. Equal rewards give exactly 0.

    Args:
        rewards_B: row p * group_size + g is answer g of prompt p.

    Returns:
        advantages_B: sums to 0 within each group. No gradient.

    Raises:
        TypeError: rewards are not floating-point.
        ValueError: group_size is below 2 or does not divide B, or a reward is nan or infinite.

    Source: Kool et al. 2019, Buy 4 REINFORCE Samples, Get a Baseline for Free!
        https://openreview.net/forum?id=r1lgTGL5DE
        for language models: Ahmadian et al. 2024, Back to Basics, sec. 2.3 https://arxiv.org/abs/2402.14740
    """
    rewards_PG = _grouped(rewards_B, group_size)

    others_PG = (rewards_PG.sum(dim=1, keepdim=True) - rewards_PG) / (group_size - 1)
    differ_P1 = rewards_PG.amax(dim=1, keepdim=True) > rewards_PG.amin(dim=1, keepdim=True)
    return torch.where(differ_P1, rewards_PG - others_PG, 0).reshape(-1)


def batch_std_advantage(rewards_B: Tensor, *, group_size: int, eps: float = 1e-4) -> Tensor:
    """Compare within the group, but measure in units of the whole batch's spread.

    A[p, g] = (R[p, g] - mean_g R[p]) / (std of all R + eps), std with ddof 1

    One scale for the whole batch: a group that hardly differs is no longer blown up. A group of equal rewards
    gets exactly 0.

    Args:
        rewards_B: row p * group_size + g is answer g of prompt p.
        eps: added to the standard deviation.

    Returns:
        advantages_B: sums to 0 within each group. No gradient.

    Raises:
        TypeError: rewards are not floating-point.
        ValueError: group_size is below 2 or does not divide B, or a reward is nan or infinite.

    Source: Liu et al. 2025, Part I: Tricks or Traps? (Lite PPO) https://arxiv.org/abs/2508.08221
        ddof and eps as in TRL 1.16.0, GRPOConfig(scale_rewards="batch")
    """
    rewards_PG = _grouped(rewards_B, group_size)
    require_range("eps", eps, 0, math.inf)

    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    std = rewards_PG.std()
    differ_P1 = rewards_PG.amax(dim=1, keepdim=True) > rewards_PG.amin(dim=1, keepdim=True)
    return torch.where(differ_P1, distance_PG / (std + eps), 0).reshape(-1)


def batch_advantage(rewards_B: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Compare each answer with all answers of the batch, whatever their prompts.

    A[b] = (R[b] - mean of all R) / (std of all R + eps), std with ddof 1

    It needs no group, so it works with one answer a prompt. The price: an answer to an easy prompt is praised
    for its prompt. If all rewards of the batch are equal, every advantage is exactly 0.

    Args:
        eps: added to the standard deviation.

    Returns:
        advantages_B: sums to 0 over the batch. No gradient.

    Raises:
        TypeError: rewards are not floating-point.
        ValueError: fewer than 2 rows, or a reward is nan or infinite.

    Source: Hu et al. 2025, REINFORCE++ https://arxiv.org/abs/2501.03262
    """
    require_float("rewards_B", rewards_B)
    require_shape("rewards_B", rewards_B, (None,), "one reward a row")
    require(
        len(rewards_B) >= 2, f"a batch of {len(rewards_B)} row has no one to compare with. Use 2 or more."
    )
    require_range("eps", eps, 0, math.inf)
    _require_finite(rewards_B)

    rewards_B = rewards_B.detach()
    distance_B = rewards_B - rewards_B.mean()
    return torch.where(rewards_B.amax() > rewards_B.amin(), distance_B / (rewards_B.std() + eps), 0)
