"""One preset's whole GRPO step: ours, TRL's, and the floor of its matrix products, one after the other in turns.

All three live in one process with one thread and take turns of a few steps (TRL's trainer leads, a callback lets the
others in): so they share whatever the machine does that second, its caches and its neighbours, and each round gives
one ratio of each kind. A process for each would let the neighbours decide who gets the quiet seconds. That the peers
don't slow each other down by living together can be seen with `--alone`, which times ours without TRL in the process.

Prints one JSON object. Started by `benchmarks.run`.
"""

import argparse
import json
import statistics
import warnings

import torch
from torch import Tensor

from benchmarks.bound import Products, Shapes
from benchmarks.clock import now, spread
from grpo_lab.concepts.group_advantage import group_advantage
from grpo_lab.engine.batch import Batch
from grpo_lab.engine.recipes import Recipe, grpo
from grpo_lab.engine.rollout import rollout, row_noise
from grpo_lab.engine.tasks import Prompt, Task, named_task
from grpo_lab.engine.train import Run, start, step
from grpo_lab.engine.warm_start import warm_start

PROMPTS, GROUP = 16, 8
BATCH = PROMPTS * GROUP
LR = 1e-7  # both learners stay where they start, so lengths and dead groups don't drift
WARM_UP = 6  # steps of each, not counted


class Ours:
    """Our learner, and the floor for the very batches it trains on."""

    def __init__(self, preset: str, task: Task, device: str, recipe: Recipe):
        self.device, self.recipe = device, recipe
        self.run: Run = start(
            warm_start(task, preset, seed=0), task, seed=0, lr=LR, batch_size=BATCH, device=device
        )
        self.frozen = self.run.policy.copy()
        self.products = Products(self.run.policy.model)
        self.metrics: list[dict] = []

    def steps(self, count: int) -> float:
        begun = now(self.device)
        for _ in range(count):
            self.metrics.append(step(self.run, self.recipe))
        return now(self.device) - begun

    def floors(self, prompts: list[list[Prompt]], tickets: list[range]) -> tuple[float, float]:
        """Seconds of the products of the steps on these prompts, rows shared by prompt and by prefix.

        The batches are sampled again for their sizes, off the clock.
        """
        batches = [self._batch(p, t) for p, t in zip(prompts, tickets, strict=True)]
        seconds = []
        for shapes_of in (Shapes.rows, Shapes.prefixes):
            plans = [self.products.plan(shapes_of(batch, alive_B)) for batch, alive_B in batches]
            for plan in plans:
                plan()
            begun = now(self.device)
            for plan in plans:
                plan()
            seconds.append(now(self.device) - begun)
        return seconds[0], seconds[1]

    def _batch(self, prompts: list[Prompt], tickets: range) -> tuple[Batch, Tensor]:
        task = self.run.task
        noise_BT = row_noise(self.run.seed, tickets, GROUP, task.max_tokens)
        batch = rollout(self.frozen, task, prompts, group_size=GROUP, noise_BT=noise_BT)
        pairs = zip(batch.prompt_B.tolist(), batch.turns, strict=True)
        rewards_B = torch.tensor([task.reward(prompts[p], list(turns)) for p, turns in pairs])
        return batch, group_advantage(rewards_B, group_size=GROUP) != 0


def measure(
    preset: str, task_name: str, *, micro_batch: int | None, rounds: int, block: int, device: str
) -> dict[str, object]:
    """`rounds` rounds of `block` steps each: TRL with this micro-batch (None: no TRL), ours, the products."""
    task = named_task(task_name)
    ours = Ours(preset, task, device, grpo(group_size=GROUP))
    steps = WARM_UP + rounds * block
    # The run draws its prompts one by one from this very stream, so both learners see the same ones.
    stream = torch.Generator()
    stream.set_state(ours.run.generators["prompts"].get_state())
    prompts = task.prompts(steps * PROMPTS, generator=stream)
    seconds: dict[str, list[float]] = {"trl": [], "ours": [], "bound": [], "prefix_bound": []}
    block_seconds, done = 0.0, 0

    def others_turn(trl_seconds: float) -> None:
        nonlocal block_seconds, done
        done += 1
        if done <= WARM_UP:
            ours.steps(1)
            return
        block_seconds += trl_seconds
        if (done - WARM_UP) % block:
            return
        seconds["trl"].append(block_seconds / block)
        block_seconds = 0.0
        seconds["ours"].append(ours.steps(block) / block)
        parts = range(done - block, done)
        used = [prompts[k * PROMPTS : (k + 1) * PROMPTS] for k in parts]
        floors = ours.floors(used, [range(k * PROMPTS, (k + 1) * PROMPTS) for k in parts])
        seconds["bound"].append(floors[0] / block)
        seconds["prefix_bound"].append(floors[1] / block)

    result: dict[str, object] = {"preset": preset, "task": task.name, "micro_batch": micro_batch}
    if micro_batch is None:
        for _ in range(steps):
            others_turn(0.0)
    else:
        from benchmarks.peer import Peer

        peer = Peer(
            warm_start(task, preset, seed=0),
            task,
            prompts,
            steps=steps,
            group_size=GROUP,
            batch_size=BATCH,
            micro_batch=micro_batch,
            lr=LR,
            device=device,
        )
        peer.train(others_turn)
        batches = peer.judge.batches
        for k in (0, steps - 1):
            mine = [p.text for p in prompts[k * PROMPTS : (k + 1) * PROMPTS] for _ in range(GROUP)]
            assert batches[k][0] == mine, "TRL trained on other prompts than ours"
        groups = [
            rewards[i : i + GROUP] for _, rewards, _ in batches[WARM_UP:] for i in range(0, BATCH, GROUP)
        ]
        result["trl"] = {
            "length": statistics.mean(n for _, _, lengths in batches[WARM_UP:] for n in lengths),
            "pass": statistics.mean(r for group in groups for r in group),
            "dead": statistics.mean(min(group) == max(group) for group in groups),
        }
        result["to_trl"] = spread([a / b for a, b in zip(seconds["ours"], seconds["trl"], strict=True)])
    seen = ours.metrics[WARM_UP:]
    result["ours"] = {
        "length": statistics.mean(m["response/length"] for m in seen),
        "pass": statistics.mean(m["reward/mean"] for m in seen),
        "dead": statistics.mean(m["group/zero_variance_frac"] for m in seen),
    }
    for name in ("bound", "prefix_bound"):
        result[f"to_{name}"] = spread([a / b for a, b in zip(seconds["ours"], seconds[name], strict=True)])
    result["ms"] = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="S")
    parser.add_argument("--task", default="sort")
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--block", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    micro_batch = None if asked.alone else asked.micro_batch
    result = measure(
        asked.preset,
        asked.task,
        micro_batch=micro_batch,
        rounds=asked.rounds,
        block=asked.block,
        device=asked.device,
    )
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
