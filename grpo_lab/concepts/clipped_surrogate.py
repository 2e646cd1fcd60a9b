"""PPO's clip: stop pushing a token that has already moved far enough in this update."""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require_float, require_range, require_same_shape


def clipped_surrogate(
    ratio_BT: Tensor,
    advantages_BT: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float | None = None,
) -> Tensor:
    """Weight each advantage by its ratio, but give no reward for moving further than the band allows.

    loss = -min( min(ratio, delta) * A, clip(ratio, 1 - eps_low, 1 + eps_high) * A )      (delta None: no cap)

    Where the clip bites the gradient is exactly 0; everywhere else it is that of -ratio * A:
        A > 0: cut above 1 + eps_high (already much more likely). Kept below 1 - eps_low.
        A < 0: cut below 1 - eps_low (already much less likely). Kept above 1 + eps_high, without a limit
               unless delta sets one: then cut above delta.
    At ratio 1 the loss is -A and its gradient is that of REINFORCE. A = 0 gives loss 0 and gradient 0.

    Args:
        advantages_BT: A, treated as a constant. One value a row must be spread over the columns first.
        eps_low: in [0, 1]. At 1 there is no lower clip, because a ratio is never negative.
        eps_high: at least 0. The upper bound is always 1 + eps_high.
        delta: above 1 + eps_high. For A < 0 it caps the loss at delta * |A|: "dual clip", "two-sided clip".

    Returns:
        loss_BT: gradient flows to ratio_BT only. No mask here: what stands off the mask is left out when the
            tokens are added up.

    Raises:
        ValueError: the shapes differ, or a bound is out of its range.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, eq. 7 https://arxiv.org/abs/1707.06347
        eps_low != eps_high: Yu et al. 2025, DAPO, sec. 3.1 https://arxiv.org/abs/2503.14476
        delta: Ye et al. 2020, Mastering Complex Control in MOBA Games ("dual clip", with c for delta)
        https://arxiv.org/abs/1912.09729; for language models, Prime Intellect 2025, INTELLECT-2 ("two-sided
        clipping") https://arxiv.org/abs/2505.07291
    """
    require_float("ratio_BT", ratio_BT)
    require_same_shape(ratio_BT=ratio_BT, advantages_BT=advantages_BT)
    require_range("eps_low", eps_low, 0, 1)
    require_range("eps_high", eps_high, 0, math.inf)
    if delta is not None:
        require_range("delta", delta, 1 + eps_high, math.inf, low_open=True)

    advantages_BT = advantages_BT.detach()
    clipped_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)
    capped_BT = ratio_BT if delta is None else ratio_BT.clamp(max=delta)
    # min of the two products, whatever the sign of A. Taking the min of the ratios first is the old mistake.
    return -torch.minimum(capped_BT * advantages_BT, clipped_BT * advantages_BT)
