"""The same training with the clip and without it, eight updates on each batch, three seeds.

GRPO on `sort6` from the warm starts of seeds 0, 1 and 2: 16 prompts of 8 answers a batch, 4 epochs of 2 minibatches,
learning rate 3e-4, gradient norm clipped to 1, 30 batches. Arm 0 has the clip (eps .2 on both sides), arm 1 has none.

    accuracy_ASN   share of 500 fixed held-out prompts answered right, before the first batch and after every fifth
    step_N         after how many batches
    clip_high_ASK, clip_low_ASK   share of tokens with an advantage that the clip silenced above 1 + eps and below
                   1 - eps, mean over the eight updates of each of the 30 batches; nan where no group had any
"""

import torch
from torch import Tensor

from grpo_lab.engine.recipes import Recipe, grpo
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import evaluate, start, step
from grpo_lab.engine.warm_start import warm_start

SEEDS, BATCHES, EVERY = (0, 1, 2), 30, 5


def _run(recipe: Recipe, seed: int, batches: int) -> tuple[list[float], list[float], list[float]]:
    task = Sort(6)
    policy = warm_start(task, "S", seed=seed)
    run = start(policy, task, seed=seed, lr=3e-4, device="cpu")
    accuracy, high, low = [evaluate(policy, task, n=500)], [], []
    for done in range(1, batches + 1):
        metrics = step(run, recipe)
        high.append(metrics.get("policy/clip_frac_high", float("nan")))
        low.append(metrics.get("policy/clip_frac_low", float("nan")))
        if done % EVERY == 0:
            accuracy.append(evaluate(policy, task, n=500))
    return accuracy, high, low


def _arms() -> list[Recipe]:
    return [
        grpo(epochs=4, minibatches=2),
        grpo(epochs=4, minibatches=2, eps_low=None, eps_high=None),
    ]


def record() -> dict[str, Tensor]:
    runs = [[_run(recipe, seed, BATCHES) for seed in SEEDS] for recipe in _arms()]
    accuracy, high, low = (torch.tensor([[run[i] for run in arm] for arm in runs]) for i in range(3))
    steps = torch.arange(0, BATCHES + 1, EVERY)
    return {"accuracy_ASN": accuracy, "clip_high_ASK": high, "clip_low_ASK": low, "step_N": steps}


def first() -> dict[str, Tensor]:
    task = Sort(6)
    accuracy = evaluate(warm_start(task, "S", seed=SEEDS[0]), task, n=500)
    return {"accuracy_ASN": torch.tensor([[[accuracy]]])}
