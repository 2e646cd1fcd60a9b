"""How far has the policy moved from the reference? Three estimates from sampled tokens, and the exact sum.

KL(pi || ref) = sum_v pi(v) * (log pi(v) - log ref(v)), v over the vocabulary, pi the policy being trained, ref
the frozen reference. It is the average of log pi - log ref over tokens drawn from pi, so it can be estimated from
the tokens that were sampled.

A right *value* and a right *gradient* are two things. On average over tokens drawn from pi, the gradient of each
estimate used as a loss is

    k1            0                          a loss that does nothing; its place is in the reward
    k2            gradient of KL(pi || ref)  right
    k3            gradient of KL(ref || pi)  the other direction
    corrected_k3  gradient of KL(pi || ref)  right, for tokens drawn from an older policy too

"Right" is meant for each token by itself, given what stands before it. How a token changes the KL of later ones,
because it changes what stands before them, is in none of these; only k1 in the reward has it.
"""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require_float, require_mask, require_range, require_same_shape, require_shape


def _log_ratio(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log pi - log ref on the mask, 0 off it. Gradient flows to logp_BT only."""
    require_float("logp_BT", logp_BT)
    require_same_shape(logp_BT=logp_BT, logp_ref_BT=logp_ref_BT, mask_BT=mask_BT)
    require_mask("mask_BT", mask_BT)
    return torch.where(mask_BT, logp_BT - logp_ref_BT.detach(), 0)


def k1(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Estimate the KL by the log ratio itself.

    k1 = logp - logp_ref

    On average it is the KL, but noisy: single values are often negative although a KL never is. Its place is in
    the *reward* (R - kl_coef * k1), where it has the right gradient. As a loss its average gradient is 0, because
    probabilities add up to 1 whatever the weights. It is 0 where the policies agree, and off the mask.

    Returns:
        kl_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Schulman 2020, Approximating KL Divergence http://joschu.net/blog/kl-approx.html
    """
    return _log_ratio(logp_BT, logp_ref_BT, mask_BT)


def k2(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Estimate the KL by half the squared log ratio.

    k2 = 0.5 * (logp - logp_ref)^2

    Never negative. Its average is nearly the KL where the policies are close, and far off where they are not.
    But as a loss its average gradient is that of KL(pi || ref). It is 0 where the policies agree, and off the
    mask.

    Returns:
        kl_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Schulman 2020, Approximating KL Divergence http://joschu.net/blog/kl-approx.html
    """
    log_ratio_BT = _log_ratio(logp_BT, logp_ref_BT, mask_BT)
    return 0.5 * log_ratio_BT.square()


def k3(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Estimate the KL by the log ratio plus something that is 0 on average and steadies it (GRPO's choice).

    k3 = u - 1 - log u, u = exp(logp_ref - logp)

    On average it is the KL, and it is never negative. As a loss its average gradient is that of KL(ref || pi), the
    other direction. Its slope in logp is 1 - u: it pushes a token that only the policy likes down by at most 1,
    and pulls one that only the reference likes up without limit. It is 0 where the policies agree, and off the
    mask.

    Returns:
        kl_BT: gradient flows to logp_BT only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: Schulman 2020, Approximating KL Divergence http://joschu.net/blog/kl-approx.html
        in GRPO: Shao et al. 2024, DeepSeekMath, eq. 4 https://arxiv.org/abs/2402.03300
    """
    log_u_BT = -_log_ratio(logp_BT, logp_ref_BT, mask_BT)
    # exp(x) - 1 loses every digit for small x in float32: exp(1e-8) is 1. expm1 does not.
    return log_u_BT.expm1() - log_u_BT


def corrected_k3(ratio_BT: Tensor, logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Weight k3 by the importance ratio, and differentiate both: then the gradient points the right way.

    kl = ratio * k3

    At ratio 1 the value is that of k3, but the gradient is not: the ratio's own slope turns KL(ref || pi) into
    KL(pi || ref). Where the tokens were drawn from an older policy, the ratio makes value and gradient right on
    average again. It is 0 where the policies agree, and off the mask.

    Args:
        ratio_BT: pi / (the policy that drew the tokens), *with* its gradient. Detached, the correction is lost.

    Returns:
        kl_BT: gradient flows to ratio_BT and to logp_BT.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2, sec. 3.1, "Unbiased KL Estimate" https://arxiv.org/abs/2512.02556
    """
    require_same_shape(ratio_BT=ratio_BT, logp_BT=logp_BT)
    k3_BT = k3(logp_BT, logp_ref_BT, mask_BT)
    return torch.where(mask_BT, ratio_BT, 1) * k3_BT


def exact_kl(
    logits_BTV: Tensor, logits_ref_BTV: Tensor, mask_BT: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """Compute the KL of each next-token distribution, over the whole vocabulary instead of the sampled token.

    kl = sum_v pi(v) * (log pi(v) - log ref(v)), pi = softmax(logits / temperature), ref likewise

    No noise and the right gradient, at the price of both models' full logits. A token with pi(v) = 0 adds 0; one
    that only the reference forbids makes it infinite. It is 0 where the policies agree, and off the mask.

    Args:
        logits_BTV: column t holds the logits that *predict* token t.

    Returns:
        kl_BT: gradient flows to logits_BTV only.

    Raises:
        TypeError: mask_BT is not bool.
        ValueError: the shapes differ, or temperature is not above 0.

    Source: Kullback and Leibler 1951, On Information and Sufficiency https://doi.org/10.1214/aoms/1177729694
    """
    require_float("logits_BTV", logits_BTV)
    require_same_shape(logits_BTV=logits_BTV, logits_ref_BTV=logits_ref_BTV)
    require_mask("mask_BT", mask_BT)
    require_shape("logits_BTV", logits_BTV, (*mask_BT.shape, None), "rows, answer columns, vocabulary")
    require_range("temperature", temperature, 0, math.inf, low_open=True, high_open=True)

    mask_BT1 = mask_BT.unsqueeze(-1)
    z_BTV = torch.where(mask_BT1, logits_BTV, 0) / temperature
    z_ref_BTV = torch.where(mask_BT1, logits_ref_BTV.detach(), 0) / temperature
    logp_BTV = z_BTV.log_softmax(-1)
    p_BTV = logp_BTV.exp()
    # A forbidden token has logit -inf in both: (-inf) - (-inf) is nan, and 0 * nan too.
    gap_BTV = torch.where(p_BTV > 0, logp_BTV - z_ref_BTV.log_softmax(-1), 0)
    return (p_BTV * gap_BTV).sum(-1)
