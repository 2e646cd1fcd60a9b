"""How often is each prompt answered right? 256 answers of the warm start to each of 64 prompts of sorting.

    rewards_PN   int8, 64 x 256: 1 where answer n of prompt p was right. Answers are drawn one by one: the first 8 of a
                 row are a group of 8, the next 8 another
    prompts_PT   uint8, 64 x 7: the prompts' texts, as character codes (`texts_of` reads them)

Policy: data/warm_starts/sort6-S-seed0. Temperature 1. Training prompts.
"""

import torch
from torch import Tensor

from grpo_lab.engine.recording import codes_of
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.warm_start import warm_start

PROMPTS, ANSWERS, SEED = 64, 256, 50


def record() -> dict[str, Tensor]:
    return _answers(PROMPTS)


def first() -> dict[str, Tensor]:
    """The rows of the first four prompts."""
    return _answers(4)


def _answers(count: int) -> dict[str, Tensor]:
    task = Sort(6)
    policy = warm_start(task, "S", seed=0)
    prompts = task.prompts(PROMPTS, generator=torch.Generator().manual_seed(SEED), split="train")[:count]
    rewards = []
    for ticket, prompt in enumerate(prompts):
        noise_BT = row_noise(SEED, [ticket], ANSWERS, task.max_tokens)
        batch = rollout(policy, task, [prompt], group_size=ANSWERS, noise_BT=noise_BT)
        rewards.append(total_rewards(task, batch))
    return {
        "rewards_PN": torch.tensor(rewards).to(torch.int8),
        "prompts_PT": codes_of([prompt.text for prompt in prompts]),
    }
