"""Generalized advantage estimation: how much better did it go than the critic had expected?"""

import torch
from torch import Tensor

from grpo_lab.guard import require_float, require_mask, require_range, require_same_shape, require_shape


def gae(
    rewards_BT: Tensor,
    values_BT: Tensor,
    mask_BT: Tensor,
    finished_B: Tensor,
    bootstrap_B: Tensor | None = None,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
) -> Tensor:
    """Compare what came after each token with what the critic had foreseen, near surprises counting most.

    delta[t] = rewards[t] + gamma * values[next] - values[t]
    A[t]     = delta[t] + gamma * lam * A[next]

    The critic is a second model: at each point of an answer it predicts the reward still to come, its *value*.
    delta is the surprise of one token: what came, and what is expected after it, minus what was expected before.
    `next` is the row's next *own* token: columns whose mask is False (a tool's reply, padding) are stepped over,
    as if they were not there. After the last own token A[next] is 0, and values[next] is 0 if the row finished
    by itself, bootstrap_B if it was cut off. A row without own tokens is all 0.

    lam = 1: return minus value, right on average whatever the critic says, but noisy (for a finished row).
    lam = 0: the one-step surprise delta, calm, but wrong where the critic is wrong.

    Args:
        values_BT: values[t] is the critic's value of the state *before* token t. Off by one, the critic has
            already seen the token it should judge.
        finished_B: True = ended by itself, False = cut off. A cut-off row taken for an ended one is taught
            that the future is worth 0.
        bootstrap_B: the value of the state after the last own token, read for cut-off rows only. None: 0.
        gamma: what a reward is worth one own token earlier; 1 = just as much.
        lam: how much of the surprise at the next own token counts here as well, from 0 to 1.

    Returns:
        advantages_BT: 0 off the mask. No gradient. The critic's target is advantages_BT + values_BT.

    Raises:
        TypeError: rewards or values are not floating-point, or mask_BT or finished_B are not bool.
        ValueError: the shapes differ, or gamma or lam is outside [0, 1].

    Source: Schulman et al. 2016, High-Dimensional Continuous Control Using GAE, eq. 16
        https://arxiv.org/abs/1506.02438
        stepping over observations: Hou et al. 2026, Single-rollout Asynchronous Optimization, eqs. 4 and 5
        https://arxiv.org/abs/2607.07508
    """
    require_float("rewards_BT", rewards_BT)
    require_float("values_BT", values_BT)
    require_same_shape(rewards_BT=rewards_BT, values_BT=values_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)
    require_shape("finished_B", finished_B, (mask_BT.shape[0],), "one flag a row")
    if finished_B.dtype != torch.bool:
        raise TypeError(f"finished_B must be bool, got {finished_B.dtype}. Try finished_B.bool().")
    if bootstrap_B is None:
        bootstrap_B = values_BT.new_zeros(mask_BT.shape[0])
    require_shape("bootstrap_B", bootstrap_B, (mask_BT.shape[0],), "one value a row")
    require_range("gamma", gamma, 0, 1)
    require_range("lam", lam, 0, 1)

    rewards_BT = rewards_BT.detach()
    values_BT = values_BT.detach()
    advantages_BT = torch.zeros_like(values_BT)
    running_B = values_BT.new_zeros(mask_BT.shape[0])
    next_value_B = torch.where(finished_B, 0, bootstrap_B.detach())
    for t in reversed(range(mask_BT.shape[1])):
        own_B = mask_BT[:, t]
        delta_B = rewards_BT[:, t] + gamma * next_value_B - values_BT[:, t]
        # Not own: both the next value and the running sum pass through unchanged.
        running_B = torch.where(own_B, delta_B + gamma * lam * running_B, running_B)
        next_value_B = torch.where(own_B, values_BT[:, t], next_value_B)
        advantages_BT[:, t] = torch.where(own_B, running_B, 0)
    return advantages_BT
