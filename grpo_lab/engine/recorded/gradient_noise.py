"""How noisy is one group's gradient? For groups of 2 to 64 answers and three advantages, measured at the warm start.

h is the gradient of one group: the mean over its answers of A * (gradient of the answer's log-probability). Each of 400
prompts gets two separate groups of every size; prompts are in K = 10 blocks of 40.

    sizes_G        the group sizes G
    square_GEK     mean of |h|^2 over the groups of block k. E: leave-one-out, mean, mean and std
    within_GEK     mean of |h - h'|^2 / 2 over the two groups of a prompt: the noise that is left with the prompts fixed
    dot_GEKK       dot products of the blocks' mean gradients; blocks share no prompt, so off the diagonal each is a
                   clean estimate of |E h|^2
    between_GK     for the block means, dot product of leave-one-out's with that of mean and std

Policy: data/warm_starts/sort6-S-seed0. Training prompts, temperature 1. `noise` turns this into ratios.
"""

import torch
from torch import Tensor

from grpo_lab.concepts.group_advantage import (
    group_advantage,
    group_mean_advantage,
    leave_one_out_advantage,
)
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.warm_start import warm_start

SIZES = (2, 4, 8, 16, 32, 64)
ADVANTAGES = (leave_one_out_advantage, group_mean_advantage, group_advantage)
BLOCKS, PROMPTS_A_BLOCK, SEED = 10, 40, 51


def record() -> dict[str, Tensor]:
    return _measure(SIZES, BLOCKS)


def first() -> dict[str, Tensor]:
    """Groups of 2, the first block."""
    return _measure(SIZES[:1], 1)


def _measure(sizes: tuple[int, ...], blocks: int) -> dict[str, Tensor]:
    task = Sort(6)
    policy = warm_start(task, "S", seed=0)
    drawn = task.prompts(
        BLOCKS * PROMPTS_A_BLOCK, generator=torch.Generator().manual_seed(SEED), split="train"
    )
    shape = (len(sizes), len(ADVANTAGES), blocks)
    square_GEK, within_GEK = torch.zeros(shape), torch.zeros(shape)
    dot_GEKK, between_GK = torch.zeros(*shape, blocks), torch.zeros(len(sizes), blocks)
    width = sum(p.numel() for p in policy.parameters())
    for i, size in enumerate(sizes):
        means_EKW = torch.zeros(len(ADVANTAGES), blocks, width)
        for ticket in range(blocks * PROMPTS_A_BLOCK):
            block = ticket // PROMPTS_A_BLOCK
            both = []
            for half in (0, 1):
                noise_BT = row_noise(SEED + 1000 * size + half, [ticket], size, task.max_tokens)
                both.append(_group_gradients(policy, task, drawn[ticket], size, noise_BT))
            one_EW, two_EW = both
            square_GEK[i, :, block] += (one_EW.square().sum(1) + two_EW.square().sum(1)) / 2
            within_GEK[i, :, block] += (one_EW - two_EW).square().sum(1) / 2
            means_EKW[:, block] += (one_EW + two_EW) / 2
        means_EKW /= PROMPTS_A_BLOCK
        dot_GEKK[i] = means_EKW @ means_EKW.transpose(1, 2)
        between_GK[i] = (means_EKW[0] * means_EKW[2]).sum(1)
    return {
        "sizes_G": torch.tensor(sizes),
        "square_GEK": square_GEK / PROMPTS_A_BLOCK,
        "within_GEK": within_GEK / PROMPTS_A_BLOCK,
        "dot_GEKK": dot_GEKK,
        "between_GK": between_GK,
    }


def _group_gradients(policy, task, prompt, size: int, noise_BT: Tensor) -> Tensor:
    """One gradient an advantage, each as one long row; 0 for a group of equal rewards."""
    batch = rollout(policy, task, [prompt], group_size=size, noise_BT=noise_BT)
    rewards_B = torch.tensor(total_rewards(task, batch))
    if bool((rewards_B == rewards_B[0]).all()):
        return torch.zeros(len(ADVANTAGES), sum(p.numel() for p in policy.parameters()))
    logp_BT, _ = policy.logp(batch)
    logp_B = logp_BT.where(batch.mask_BT, 0.0).sum(1)
    rows = []
    for advantage in ADVANTAGES:
        objective = (advantage(rewards_B, group_size=size) * logp_B).mean()
        rows.append(policy.gradient(objective))
    return torch.stack(rows)


def noise(recording: dict[str, Tensor], *, rollouts: int) -> dict[str, Tensor]:
    """The noise of a batch of so many answers: tr Var(g) / |E g|^2, with its standard error (jackknife over blocks).

    Returns: equal_GE, equal_error_GE   prompts drawn anew, rollouts / G of them: what a training step has
             fixed_GE, fixed_error_GE   one and the same prompt set, `rollouts` prompts of G answers each
    """
    blocks = recording["square_GEK"].shape[2]

    def ratios(kept: list[int]) -> tuple[Tensor, Tensor]:
        square_GE = recording["square_GEK"][:, :, kept].double().mean(2)
        within_GE = recording["within_GEK"][:, :, kept].double().mean(2)
        dot_GEKK = recording["dot_GEKK"][:, :, kept][:, :, :, kept].double()
        others = ~torch.eye(len(kept), dtype=torch.bool)
        signal_GE = dot_GEKK[:, :, others].mean(2)
        sizes_G1 = recording["sizes_G"][:, None].double()
        return sizes_G1 / rollouts * (square_GE - signal_GE) / signal_GE, within_GE / signal_GE / rollouts

    whole = ratios(list(range(blocks)))
    without = [ratios([k for k in range(blocks) if k != left]) for left in range(blocks)]
    errors = []
    for part in (0, 1):
        stacked = torch.stack([one[part] for one in without])
        errors.append((stacked - stacked.mean(0)).square().sum(0).mul((blocks - 1) / blocks).sqrt())
    return {
        "equal_GE": whole[0],
        "equal_error_GE": errors[0],
        "fixed_GE": whole[1],
        "fixed_error_GE": errors[1],
    }
