"""What to look at while a policy learns. All of it is for the eye; only `entropy` passes gradient."""

import math

import torch
from torch import Tensor

from grpo_lab.concepts.masked import masked_mean, masked_var
from grpo_lab.guard import (
    require,
    require_float,
    require_groups,
    require_mask,
    require_range,
    require_same_shape,
    require_shape,
)


def effective_sample_size(ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Say what share of the tokens really counts when each is weighted by its ratio.

    ess = (sum w)^2 / (n * sum w^2), w = ratio on the mask, n own tokens

    1: all weights equal, every token counts. 1/n: one token outweighs all others. Nothing to weigh (an empty
    mask, or all weights 0) gives 0. An infinite ratio gives nan: exp has overflowed.

    Args:
        ratio_BT: at least 0.

    Returns:
        ess: shape (), between 0 and 1. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Kong 1992, A note on importance sampling using standardized weights (Univ. of Chicago, TR 348)
        Owen 2013, Monte Carlo theory, methods and examples, sec. 9.3 https://artowen.su.domains/mc/
    """
    require_float("ratio_BT", ratio_BT)
    require_same_shape(ratio_BT=ratio_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    tiny = torch.finfo(ratio_BT.dtype).tiny
    w_BT = torch.where(mask_BT, ratio_BT.detach(), 0)
    # A common factor changes nothing. Without it the square of 1e20 is inf in float32.
    w_BT = w_BT / w_BT.amax().clamp(min=tiny)
    count = mask_BT.sum()
    return w_BT.sum().square() / (count * w_BT.square().sum()).clamp(min=tiny)


def entropy(logits_BTV: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Measure how undecided the policy is about each next token, in nats.

    entropy = -sum_v p(v) * log p(v), p = softmax(logits / temperature)

    0: one token is certain. log V: all V tokens are equally likely. A forbidden token (logit -inf) adds 0.

    Args:
        temperature: the one tokens are sampled with, above 0.

    Returns:
        entropy_BT: gradient flows to the logits.

    Raises:
        ValueError: not three axes, or temperature is not above 0.

    Source: Shannon 1948, A Mathematical Theory of Communication, sec. 6
        https://doi.org/10.1002/j.1538-7305.1948.tb01338.x
    """
    require_float("logits_BTV", logits_BTV)
    require_shape("logits_BTV", logits_BTV, (None, None, None), "rows, answer columns, vocabulary")
    require_range("temperature", temperature, 0, math.inf, low_open=True, high_open=True)

    logp_BTV = (logits_BTV / temperature).log_softmax(-1)
    p_BTV = logp_BTV.exp()
    # 0 * (-inf) is nan; the limit of p * log p is 0.
    logp_BTV = torch.where(p_BTV > 0, logp_BTV, 0)
    return -(p_BTV * logp_BTV).sum(-1)


def explained_variance(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Say what share of the differences between returns the critic foresaw.

    ev = 1 - Var(R - V) / Var(R), over own tokens, ddof 0

    1: perfect (up to a constant error, which a variance cannot see). 0: no better than a constant. Negative:
    worse than a constant. If all returns are equal there is nothing to explain and the result is 0: nan would
    break a curve, and 1 would flatter.

    Returns:
        ev: shape (), at most 1. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Hou et al. 2026, Single-rollout Asynchronous Optimization, fig. 4 https://arxiv.org/abs/2607.07508
    """
    require_same_shape(values_BT=values_BT, returns_BT=returns_BT, mask_BT=mask_BT)

    total = masked_var(returns_BT.detach(), mask_BT)
    unexplained = masked_var(returns_BT.detach() - values_BT.detach(), mask_BT)
    return torch.where(total > 0, 1 - unexplained / total, 0)


def clip_fraction(
    ratio_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    delta: float | None = None,
) -> Tensor:
    """Say for what share of own tokens the clip has set the gradient to 0.

    cut = (A > 0 and ratio > 1 + eps_high) or (A < 0 and ratio < 1 - eps_low) or (A < 0 and ratio > delta)

    A ratio outside the band is not enough: with the other sign of A its gradient is kept. Tokens with A = 0
    have no gradient to lose and do not count as cut, but they count in the denominator. An empty mask gives 0.

    Returns:
        fraction: shape (), between 0 and 1. No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: the cases of Schulman et al. 2017, Proximal Policy Optimization Algorithms, fig. 1
        https://arxiv.org/abs/1707.06347
    """
    require_same_shape(ratio_BT=ratio_BT, advantages_BT=advantages_BT, mask_BT=mask_BT)

    cut_above_BT = (advantages_BT > 0) & (ratio_BT > 1 + eps_high)
    cut_below_BT = (advantages_BT < 0) & (ratio_BT < 1 - eps_low)
    cut_BT = cut_above_BT | cut_below_BT
    if delta is not None:
        cut_BT = cut_BT | ((advantages_BT < 0) & (ratio_BT > delta))
    return masked_mean(cut_BT.float(), mask_BT)


def quadrant_fractions(
    ratio_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor, *, eps_low: float, eps_high: float
) -> dict[str, Tensor]:
    """Say where the tokens outside the band lie: good or bad, above or below.

    good_above  A > 0, ratio > 1 + eps_high    cut: raised far enough
    bad_below   A < 0, ratio < 1 - eps_low     cut: lowered far enough
    good_below  A > 0, ratio < 1 - eps_low     kept: it went the wrong way and is called back
    bad_above   A < 0, ratio > 1 + eps_high    kept: likewise, and the larger the ratio the harder the push

    Each is a share of own tokens. good_above + bad_below is the clip fraction (without delta). An empty mask
    gives zeros.

    Returns:
        fractions: the four names above, each of shape (). No gradient.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: the cases of Schulman et al. 2017, Proximal Policy Optimization Algorithms, fig. 1
        https://arxiv.org/abs/1707.06347
    """
    require_same_shape(ratio_BT=ratio_BT, advantages_BT=advantages_BT, mask_BT=mask_BT)

    above_BT = ratio_BT > 1 + eps_high
    below_BT = ratio_BT < 1 - eps_low
    good_BT = advantages_BT > 0
    bad_BT = advantages_BT < 0
    return {
        "good_above": masked_mean((good_BT & above_BT).float(), mask_BT),
        "bad_below": masked_mean((bad_BT & below_BT).float(), mask_BT),
        "good_below": masked_mean((good_BT & below_BT).float(), mask_BT),
        "bad_above": masked_mean((bad_BT & above_BT).float(), mask_BT),
    }


def masked_fraction(kept_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Say what share of own tokens a trust filter has thrown out.

    fraction = (own tokens not kept) / (own tokens)

    An empty mask gives 0.

    Args:
        kept_BT: bool, True where the filter lets a token teach.

    Returns:
        fraction: shape (), between 0 and 1. No gradient.

    Raises:
        TypeError: kept_BT or mask_BT is not bool.
        ValueError: the shapes differ.
    """
    require_mask("kept_BT", kept_BT)
    require_same_shape(kept_BT=kept_BT, mask_BT=mask_BT)

    return masked_mean((~kept_BT).float(), mask_BT)


def parameter_change(before: list[Tensor], after: list[Tensor]) -> Tensor:
    """Measure how far the weights moved: the length of the step in parameter space.

    change = sqrt( sum over all weights of (after - before)^2 )

    Nothing moved, or no weights at all: 0. Any iterable of tensors will do.

    Args:
        before: copies (`[p.detach().clone() for p in model.parameters()]`). The parameters themselves change
            with the model, and the result would be 0.

    Returns:
        change: shape (). No gradient.

    Raises:
        ValueError: the lists differ in length, or two tensors in shape.
    """
    before, after = list(before), list(after)
    require(
        len(before) == len(after),
        f"before has {len(before)} tensors, after has {len(after)}. Take both from one model's parameters().",
    )
    total = torch.zeros(())
    for old, new in zip(before, after, strict=True):
        require_same_shape(before=old, after=new)
        total = total + (new.detach() - old.detach()).square().sum()
    return total.sqrt()


def zero_variance_fraction(rewards_B: Tensor, *, group_size: int) -> Tensor:
    """Say in what share of the groups all answers got the same reward, so that there is nothing to compare.

    fraction = (groups with max = min) / (groups)

    With rewards 0 and 1 and pass rate p, it is on average p^G + (1 - p)^G for groups of G. Groups of one always
    count.

    Args:
        rewards_B: row p * group_size + g is answer g of prompt p.

    Returns:
        fraction: shape (), between 0 and 1. No gradient.

    Raises:
        TypeError: rewards are not floating-point.
        ValueError: group_size does not divide B.
    """
    require_groups("rewards_B", rewards_B, group_size)

    rewards_PG = rewards_B.reshape(-1, group_size)
    equal_P = rewards_PG.amax(dim=1) == rewards_PG.amin(dim=1)
    return equal_P.float().mean()
