"""From a model's logits to the log-probability of each token that was written. The one place that shifts."""

import math

import torch
from torch import Tensor

from grpo_lab.guard import require, require_float, require_range, require_shape


def token_logprobs(logits_BSV: Tensor, ids_BS: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Say how likely the model found each token, given the tokens before it.

    logp[b, s-1] = z[b, s-1, ids[b, s]] - logsumexp_v z[b, s-1, v],  z = logits / temperature,  s = 1 .. S-1

    Logits are the model's raw scores; subtracting logsumexp makes log-probabilities of them. The logits at
    position s-1 have read tokens 0 .. s-1 and predict token s. So S tokens give S-1 values: the first token has
    none before it. Column s-1 of the result belongs to token s. S = 1 gives no column at all.

    Args:
        logits_BSV: S columns, or S-1. The last of S predicts a token that is not there, and is not read.
        ids_BS: the sampled ids themselves (int64), never text encoded again. Padding too must be a valid id:
            mask its columns afterwards.
        temperature: the one the tokens were sampled with, above 0. Sampled at 0.6 and scored at 1, the ratio
            is off before any training.

    Returns:
        logp: shape (B, S-1), all <= 0 up to rounding. Gradient flows to the logits.

    Raises:
        TypeError: ids are not int64, or logits are half precision (round-off there moves a ratio away from 1:
            call logits_BSV.float()).
        ValueError: the shapes don't fit, or temperature is not above 0.

    Source: the chain rule of probability; Bengio et al. 2003, A Neural Probabilistic Language Model, sec. 1
        https://www.jmlr.org/papers/v3/bengio03a.html
    """
    require_float("logits_BSV", logits_BSV)
    require_shape("logits_BSV", logits_BSV, (None, None, None), "rows, positions, vocabulary")
    require_shape("ids_BS", ids_BS, (logits_BSV.shape[0], None), "rows, positions")
    require_range("temperature", temperature, 0, math.inf, low_open=True, high_open=True)
    if ids_BS.dtype != torch.int64:
        raise TypeError(f"ids_BS must be int64 token ids, got {ids_BS.dtype}. Try ids_BS.long().")
    if logits_BSV.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(f"logits_BSV is {logits_BSV.dtype}, too coarse for a ratio. Pass logits_BSV.float().")
    length = ids_BS.shape[1]
    require(
        length >= 1 and logits_BSV.shape[1] in (length, length - 1),
        f"{length} tokens need {length} or {length - 1} columns of logits, got {logits_BSV.shape[1]}. Pass the "
        f"logits and the ids of the same columns, unshifted: this function shifts.",
    )

    next_ids_BS1 = ids_BS[:, 1:].unsqueeze(-1)
    z_BSV = logits_BSV[:, : length - 1]
    if temperature != 1:  # dividing by 1 would copy the largest tensor of the whole step
        z_BSV = z_BSV / temperature
    chosen_BS = z_BSV.gather(-1, next_ids_BS1).squeeze(-1)
    # log_softmax(...).gather(...) gives the same numbers, and keeps one more (B, S, V) tensor to do so.
    return chosen_BS - z_BSV.logsumexp(-1)
