"""REINFORCE: make what was rewarded more likely. And the return a token is rewarded with."""

import torch
from torch import Tensor

from grpo_lab.guard import require_float, require_mask, require_range, require_same_shape


def policy_gradient(logp_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Push each token's probability up if its advantage is positive, down if negative.

    loss = -A * logp

    On average its gradient is the gradient of the expected reward (turned around, for an optimiser that walks
    down), provided the tokens were sampled from the very policy that is being trained. Its value says nothing
    about progress. Off the mask the loss is 0.

    Args:
        advantages_BT: A, how much better than expected the token turned out; treated as a constant.

    Returns:
        loss_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Williams 1992, Simple statistical gradient-following algorithms, sec. 4
        https://doi.org/10.1007/BF00992696
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, advantages_BT=advantages_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    # Both factors are masked: 0 * nan is nan, in the loss and in its gradient.
    logp_BT = torch.where(mask_BT, logp_BT, 0)
    advantages_BT = torch.where(mask_BT, advantages_BT.detach(), 0)
    return -advantages_BT * logp_BT


def reward_to_go(rewards_BT: Tensor, mask_BT: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Give each token the sum of the rewards that came at it or after it.

    returns[t] = rewards[t] + gamma * returns[next own token]

    A token cannot have caused a reward that came before it, so those are left out. Columns whose mask is False
    (a tool's reply, padding) are stepped over: gamma counts own tokens only. They hold 0 themselves, and a
    reward written there is not read. With gamma = 1 and one reward at the end, every own token gets that reward.

    Args:
        gamma: what a reward is worth one own token earlier; 1 = just as much, 0 = nothing.

    Returns:
        returns_BT: no gradient.

    Raises:
        TypeError: mask_BT is not bool, or rewards are not floating-point.
        ValueError: the shapes differ, or gamma is outside [0, 1].

    Source: Sutton and Barto 2018, Reinforcement Learning, 2nd ed., eq. 3.9
        http://incompleteideas.net/book/the-book-2nd.html
    """
    require_float("rewards_BT", rewards_BT)
    require_same_shape(rewards_BT=rewards_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)
    require_range("gamma", gamma, 0, 1)

    returns_BT = torch.zeros_like(rewards_BT)
    running_B = rewards_BT.new_zeros(rewards_BT.shape[0])
    for t in reversed(range(rewards_BT.shape[1])):
        own_B = mask_BT[:, t]
        running_B = torch.where(own_B, rewards_BT[:, t].detach() + gamma * running_B, running_B)
        returns_BT[:, t] = torch.where(own_B, running_B, 0)
    return returns_BT
