"""What a policy learns from a judge that checks half of the wish: six digits that don't fall, whichever they are.

Sorting; the judge gives the share of neighbours, of 5, that stand in order, and 0 for an answer that isn't six digits
long. It never compares with the prompt. S = 3 seeds, N = 7 looks: before the first update and after each 10th.

    steps_N        int64: policy updates done at each look
    proxy_SN       mean reward of this judge, 500 held-out prompts, one answer each
    accuracy_SN    share of the same answers that are the sorted prompt
    answers_AT     uint8: of seed 0, the answers to the first K = 6 of those prompts at each look, as character codes,
                   cut after 12 characters; row n * 6 + k is answer k at look n (`texts_of` reads them)
    prompts_KT     uint8: the texts of these 6 prompts, as character codes

Policies: data/warm_starts/sort6-S-seed0, -seed1, -seed2. GRPO, 16 prompts x 8 answers, lr 3e-4, temperature 1.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_lab.engine.recipes import grpo
from grpo_lab.engine.recording import codes_of
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Prompt, Sort
from grpo_lab.engine.train import start, step
from grpo_lab.engine.warm_start import warm_start

SEEDS, LOOKS, EVERY, LR = 3, 7, 10, 3e-4
PROMPTS, SHOWN, WIDEST = 500, 6, 12


class HalfAJudge(Sort):
    """Pays for digits that don't fall, and not for the right ones."""

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float:
        answer = turns[-1]
        if len(answer) != self.digits or not answer.isdigit():
            return 0.0
        return sum(a <= b for a, b in itertools.pairwise(answer)) / (self.digits - 1)


def record() -> dict[str, Tensor]:
    return _runs(SEEDS, LOOKS)


def first() -> dict[str, Tensor]:
    """Seed 0, before the first update and after the tenth."""
    return _runs(1, 2)


def _runs(seeds: int, looks: int) -> dict[str, Tensor]:
    runs = [_run(seed, looks) for seed in range(seeds)]
    answers = [text[:WIDEST] for _, _, texts in runs[0] for text in texts]
    codes = torch.zeros(len(answers), WIDEST, dtype=torch.uint8)
    made = codes_of(answers)
    codes[:, : made.shape[1]] = made
    return {
        "steps_N": torch.arange(looks) * EVERY,
        "proxy_SN": torch.tensor([[proxy for proxy, _, _ in run] for run in runs]),
        "accuracy_SN": torch.tensor([[accuracy for _, accuracy, _ in run] for run in runs]),
        "answers_AT": codes,
        "prompts_KT": codes_of([prompt.text for prompt in _held_out()[:SHOWN]]),
    }


def _held_out() -> list[Prompt]:
    return Sort(6).prompts(PROMPTS, generator=torch.Generator().manual_seed(1), split="held_out")


def _run(seed: int, looks: int) -> list[tuple[float, float, list[str]]]:
    task, wish, prompts = HalfAJudge(6), Sort(6), _held_out()
    run = start(warm_start(task, "S", seed=seed), task, seed=seed, lr=LR)
    noise_BT = row_noise(1, range(PROMPTS), 1, task.max_tokens)
    rows = []
    for look in range(looks):
        for _ in range(EVERY if look else 0):
            step(run, grpo())
        batch = rollout(run.policy, wish, prompts, group_size=1, noise_BT=noise_BT)
        means = [sum(total_rewards(judge, batch)) / PROMPTS for judge in (task, wish)]
        rows.append((*means, [turns[0] for turns in batch.turns[:SHOWN]]))
    return rows
