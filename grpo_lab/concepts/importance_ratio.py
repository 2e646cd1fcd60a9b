"""How much more likely is this token now than it was under another policy?

Two questions settle which ratio is meant. Against whom: the policy at the start of this update (`logp_old`),
the one that really sampled (`logp_rollout`), or the frozen reference (`logp_ref`)? Over what: one token, the
whole answer as a geometric mean, or the whole answer as a product?
"""

import torch
from torch import Tensor

from grpo_lab.concepts.masked import masked_mean, masked_sum
from grpo_lab.guard import require_float, require_mask, require_same_shape


def importance_ratio(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Compare each token's probability now with its probability at the start of this update.

    ratio = exp(logp - logp_old) = pi(token) / pi_old(token)

    In the first step after logp_old was taken the ratio is 1 everywhere, and its gradient is the gradient of
    logp: the loss is then plain REINFORCE. If it is not 1, the two passes differ in something they should share:
    dropout, precision, temperature. Off the mask the ratio is 1.

    Args:
        logp_old_BT: taken before the first optimiser step of this update; a constant.

    Returns:
        ratio_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, sec. 3 (r_t above eq. 6)
        https://arxiv.org/abs/1707.06347
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    # Mask before exp: after it, an inf under the mask has already made the gradient nan.
    log_ratio_BT = torch.where(mask_BT, logp_BT - logp_old_BT.detach(), 0)
    return log_ratio_BT.exp()


def rollout_ratio(logp_BT: Tensor, logp_rollout_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Compare each token's probability now with its probability under the policy that sampled it.

    ratio = exp(logp - logp_rollout) = pi(token) / pi_rollout(token)

    This ratio sees everything that separates training from sampling: stale weights, and the small differences
    between two programs that run the same weights. `importance_ratio` sees neither of them if logp_old is
    computed anew just before the update. Off the mask the ratio is 1.

    Args:
        logp_rollout_BT: recorded while sampling, at the sampling temperature; a constant.

    Returns:
        ratio_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Hou et al. 2026, Single-rollout Asynchronous Optimization, eq. 2
        https://arxiv.org/abs/2607.07508
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_rollout_BT=logp_rollout_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    log_ratio_BT = torch.where(mask_BT, logp_BT - logp_rollout_BT.detach(), 0)
    return log_ratio_BT.exp()


def reference_ratio(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Compare each token's probability now with its probability under the frozen reference.

    ratio = exp(logp - logp_ref) = pi(token) / pi_ref(token)

    It says how far training has drifted from where it began, token by token. Note the direction: the k3
    estimator of the KL uses the inverse, pi_ref / pi. Off the mask the ratio is 1.

    Args:
        logp_ref_BT: a constant.

    Returns:
        ratio_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Ziegler et al. 2019, Fine-Tuning Language Models from Human Preferences, eq. 2 (log ratio)
        https://arxiv.org/abs/1909.08593
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_ref_BT=logp_ref_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    log_ratio_BT = torch.where(mask_BT, logp_BT - logp_ref_BT.detach(), 0)
    return log_ratio_BT.exp()


def sequence_ratio(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Give every token of an answer one common ratio: the geometric mean of its token ratios (GSPO).

    ratio[b, t] = exp( (1 / n_b) * sum_{t'} (logp[b, t'] - logp_old[b, t']) ), t' over the n_b own tokens of row b

    Because of the 1/n_b, an answer of 1000 tokens and one of 10 have ratios of the same size, and clip bounds
    can be a thousand times tighter than for tokens. Off the mask, and in a row without own tokens, it is 1.

    Args:
        logp_old_BT: taken before the first optimiser step of this update; a constant.

    Returns:
        ratio_BT: the same value on every own token of a row. Each of them passes gradient to every own token
            of that row.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Zheng et al. 2025, Group Sequence Policy Optimization, eq. 7
        https://arxiv.org/abs/2507.18071
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    mean_B = masked_mean(logp_BT - logp_old_BT.detach(), mask_BT, dim=1)
    log_ratio_BT = torch.where(mask_BT, mean_B.unsqueeze(1), 0)
    return log_ratio_BT.exp()


def sequence_rollout_ratio(logp_BT: Tensor, logp_rollout_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Give every token of an answer the geometric mean of its ratios against the policy that sampled.

    ratio[b, t] = exp( (1 / n_b) * sum_{t'} (logp[b, t'] - logp_rollout[b, t']) ), t' over the n_b own tokens

    This is `sequence_ratio` with the sampler in the denominator. Off the mask, and in a row without own tokens,
    it is 1.

    Args:
        logp_rollout_BT: recorded while sampling, at the sampling temperature; a constant.

    Returns:
        ratio_BT: the same value on every own token of a row. Each of them passes gradient to every own token
            of that row.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Zheng et al. 2025, Group Sequence Policy Optimization, eq. 7, with another denominator
        https://arxiv.org/abs/2507.18071
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_rollout_BT=logp_rollout_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    mean_B = masked_mean(logp_BT - logp_rollout_BT.detach(), mask_BT, dim=1)
    log_ratio_BT = torch.where(mask_BT, mean_B.unsqueeze(1), 0)
    return log_ratio_BT.exp()


def product_ratio(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Give every token of an answer the probability ratio of the whole answer: the product of token ratios.

    ratio[b, t] = exp( sum_{t'} (logp[b, t'] - logp_old[b, t']) ) = pi(answer) / pi_old(answer)

    Weighted by it, answers of pi_old stand exactly, on average, for answers of pi. But it is wild: 0.01 nat a
    token, always the same way, is e^10 over 1000 tokens. Token ratios of 1.1, 0.9 and 1.5 give 1.485 on each of
    the three tokens. Off the mask, and in a row without own tokens, it is 1.

    Args:
        logp_old_BT: taken before the first optimiser step of this update; a constant.

    Returns:
        ratio_BT: the same value on every own token of a row. Each of them passes gradient to every own token
            of that row.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Ahmadian et al. 2024, Back to Basics (the whole answer is one action)
        https://arxiv.org/abs/2402.14740
    """
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)

    total_B = masked_sum(logp_BT - logp_old_BT.detach(), mask_BT, dim=1)
    log_ratio_BT = torch.where(mask_BT, total_B.unsqueeze(1), 0)
    return log_ratio_BT.exp()
