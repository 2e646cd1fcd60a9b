"""One real batch, and eight updates on it: where does each token's probability go?

GRPO on `sort6` from the warm start of seed 0: 16 prompts, 8 answers each, sampled once at temperature 1. Then eight
optimiser steps on these same 128 answers, AdamW at learning rate 3e-4, gradient norm clipped to 1, one loss over the
whole batch a step. Once with the clip (eps .2 on both sides), once without, from the same weights.

    logp_UBT             log-probability of each token after u updates with the clip; row 0 is before the first
    logp_unclipped_UBT   the same without the clip
    logp_rollout_BT      log-probability under the policy that sampled
    mask_BT              the policy's own tokens
    advantages_B         one a row, from the eight answers to its prompt (mean subtracted, divided by deviation)
    rewards_B            1 where the answer is right
    prompts_P, answers_B texts as character codes (`texts_of`); row p * 8 + g is answer g to prompt p
"""

import math

import torch
from torch import Tensor

from grpo_lab.concepts.aggregate import sequence_mean, weighted_sum
from grpo_lab.concepts.clipped_surrogate import clipped_surrogate
from grpo_lab.concepts.group_advantage import group_advantage
from grpo_lab.concepts.importance_ratio import importance_ratio
from grpo_lab.engine.batch import Batch
from grpo_lab.engine.policy import Policy
from grpo_lab.engine.recording import codes_of
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import adamw
from grpo_lab.engine.warm_start import warm_start

UPDATES, GROUP, PROMPTS, LR = 8, 8, 16, 3e-4


def _batch() -> tuple[Policy, Batch, dict[str, Tensor]]:
    task = Sort(6)
    policy = warm_start(task, "S", seed=0)
    prompts = task.prompts(PROMPTS, generator=torch.Generator().manual_seed(0))
    noise_BT = row_noise(0, range(PROMPTS), GROUP, task.max_tokens)
    batch = rollout(policy, task, prompts, group_size=GROUP, noise_BT=noise_BT)
    rewards_B = torch.tensor(total_rewards(task, batch))
    known = {
        "logp_rollout_BT": batch.logp_rollout_BT,
        "mask_BT": batch.mask_BT,
        "advantages_B": group_advantage(rewards_B, group_size=GROUP),
        "rewards_B": rewards_B,
        "prompts_P": codes_of([prompt.text for prompt in prompts]),
        "answers_B": codes_of([turns[0] for turns in batch.turns]),
    }
    return policy, batch, known


def _updates(policy: Policy, batch: Batch, advantages_B: Tensor, eps_low: float, eps_high: float) -> Tensor:
    optimizer = adamw(policy.parameters(), LR)
    advantages_BT = advantages_B[:, None].expand(batch.mask_BT.shape)
    weights_BT = sequence_mean(batch.mask_BT)
    rows = []
    for update in range(UPDATES + 1):
        logp_BT, _ = policy.logp(batch)
        rows.append(logp_BT.detach())
        if update == UPDATES:
            break
        ratio_BT = importance_ratio(logp_BT, rows[0], batch.mask_BT)
        loss_BT = clipped_surrogate(ratio_BT, advantages_BT, eps_low=eps_low, eps_high=eps_high)
        optimizer.zero_grad(set_to_none=True)
        weighted_sum(loss_BT, weights_BT, batch.mask_BT).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return torch.stack(rows)


def record() -> dict[str, Tensor]:
    policy, batch, known = _batch()
    known["logp_unclipped_UBT"] = _updates(policy.copy(), batch, known["advantages_B"], 1.0, math.inf)
    known["logp_UBT"] = _updates(policy, batch, known["advantages_B"], 0.2, 0.2)
    return known


def first() -> dict[str, Tensor]:
    policy, batch, known = _batch()
    with torch.no_grad():
        known["logp_UBT"] = policy.logp(batch)[0][None]
    return known
