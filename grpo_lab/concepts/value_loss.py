"""The critic's lesson: predict the return."""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require, require_float, require_mask, require_range, require_same_shape


def value_loss(
    values_BT: Tensor,
    returns_BT: Tensor,
    mask_BT: Tensor,
    values_old_BT: Tensor | None = None,
    *,
    clip: float | None = None,
) -> Tensor:
    """Punish the critic by the square of its error: V is what it predicted, R the return that came.

    loss = 0.5 * (V - R)^2
    with clip: loss = 0.5 * max( (V - R)^2, (V_clipped - R)^2 )
               V_clipped = V_old + clamp(V - V_old, -clip, clip)

    The larger of the two counts, so the clip never hides an error. A value that has moved further than `clip`
    towards its target gets gradient 0 for the rest of this update. Off the mask the loss is 0.

    Args:
        returns_BT: the target; a constant.
        values_old_BT: the critic's values before this update; a constant. Read only if clip is given.
        clip: largest useful change of a value in one update, in units of reward. None: no clip.

    Returns:
        loss_BT: gradient flows to values_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ, clip is not above 0, or clip comes without values_old_BT.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, eq. 9 https://arxiv.org/abs/1707.06347
        the clip is not in the paper but in its code: Huang et al. 2022, The 37 Implementation Details of PPO,
        core detail 9 https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/
    """
    require_float("values_BT", values_BT)
    require_same_shape(values_BT=values_BT, returns_BT=returns_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    error_BT = torch.where(mask_BT, values_BT - returns_BT.detach(), 0)
    if clip is None:
        return 0.5 * error_BT.square()

    require_range("clip", clip, 0, math.inf, low_open=True)
    require(values_old_BT is not None, "clip needs values_old_BT, the values before this update. Pass both.")
    require_same_shape(values_BT=values_BT, values_old_BT=values_old_BT)
    values_old_BT = values_old_BT.detach()
    change_BT = (values_BT - values_old_BT).clamp(-clip, clip)
    clipped_error_BT = torch.where(mask_BT, values_old_BT + change_BT - returns_BT.detach(), 0)
    return 0.5 * torch.maximum(error_BT.square(), clipped_error_BT.square())
