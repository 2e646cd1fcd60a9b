"""REINFORCE on a real policy: one batch answer by answer, and four short runs that differ in the advantage alone.

One batch: 128 training prompts of sorting, one answer each, from the warm start.
    rewards_B       uint8: 1 where the answer was right
    logp_B          log-probability of the whole answer, summed over its own tokens
    gram_BB         dot products of the answers' gradients: grad log pi(answer i) . grad log pi(answer j), all weights.
                    On the diagonal the squared length of each. It gives the noise of any weighted mean of them

The runs: A = 4 advantages (`ADVANTAGES`), S = 3 seeds, N = 40 updates, 128 answers each, lr 3e-4.
    reward_ASN      reward/mean of the batch, before its update; nothing added in any arm
    loss_ASN        policy/loss
    norm_ASN        optim/grad_norm, before clipping at 1
    length_ASN      response/length, the end token counted

Policies: data/warm_starts/sort6-S-seed0, -seed1, -seed2. Temperature 1. 128 prompts x 1 answer.
"""

import torch
from torch import Tensor

from grpo_lab.concepts.policy_gradient import reward_to_go
from grpo_lab.engine.recipes import reinforce
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import train
from grpo_lab.engine.warm_start import warm_start

SEED, ANSWERS, SEEDS, STEPS, LR = 60, 128, 3, 40, 3e-4


def minus_mean(rewards_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return reward_to_go(rewards_BT, mask_BT) - rewards_BT.sum(1).mean()


def plus_nine(rewards_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return reward_to_go(rewards_BT, mask_BT) + 9.0


def own_reward(rewards_BT: Tensor) -> Tensor:
    return rewards_BT


ADVANTAGES = {
    "no baseline": reward_to_go,
    "mean subtracted": minus_mean,
    "R + 9": plus_nine,
    "own reward": own_reward,
}
METRICS = {
    "reward": "reward/mean",
    "loss": "policy/loss",
    "norm": "optim/grad_norm",
    "length": "response/length",
}


def record() -> dict[str, Tensor]:
    runs = [[_run(advantage, seed, STEPS) for seed in range(SEEDS)] for advantage in ADVANTAGES.values()]
    columns = {
        f"{name}_ASN": torch.tensor([[[row[metric] for row in run] for run in arm] for arm in runs])
        for name, metric in METRICS.items()
    }
    return {**_batch(ANSWERS), **columns}


def first() -> dict[str, Tensor]:
    """The first eight answers of the batch."""
    return _batch(8)


def _run(advantage, seed: int, steps: int) -> list[dict]:
    task = Sort(6)
    policy = warm_start(task, "S", seed=seed)
    rows = train(policy, task, reinforce(advantage=advantage), steps=steps, seed=seed, lr=LR, eval_every=None)
    return [row for row in rows if row["step"] > 0]


def _batch(count: int) -> dict[str, Tensor]:
    task = Sort(6)
    policy = warm_start(task, "S", seed=0)
    prompts = task.prompts(ANSWERS, generator=torch.Generator().manual_seed(SEED), split="train")[:count]
    noise_BT = row_noise(SEED, range(count), 1, task.max_tokens)
    batch = rollout(policy, task, prompts, group_size=1, noise_BT=noise_BT)
    logp_BT, _ = policy.logp(batch)
    logp_B = logp_BT.where(batch.mask_BT, 0.0).sum(1)
    score_BW = torch.stack([policy.gradient(one) for one in logp_B])
    return {
        "rewards_B": torch.tensor(total_rewards(task, batch)).to(torch.uint8),
        "logp_B": logp_B.detach(),
        "gram_BB": score_BW @ score_BW.T,
    }
