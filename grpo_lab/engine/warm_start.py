"""The supervised warm start: a policy that is right some of the time, from which reinforcement learning can climb.

Each seed has its own: weights, demonstrations and all. They are made on demand and cached; a few lie in `data/`.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import platformdirs
import torch
from torch import Tensor

from grpo_lab.concepts.aggregate import token_mean, weighted_sum
from grpo_lab.engine.batch import Batch
from grpo_lab.engine.policy import Policy, build_policy, load_policy
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Prompt, Task, Wrapped
from grpo_lab.engine.train import adamw
from grpo_lab.guard import require

DATA = Path(__file__).resolve().parents[2] / "data"
TARGET = (0.45, 0.50)
BATCH = 128
LR = 2e-3
PROBE = 1000  # training prompts on which the pass rate is measured
MOST_BATCHES = 3000


def home() -> Path:
    """Where this machine keeps what can be made again: $GRPO_LAB_HOME, or the user's cache folder."""
    return Path(os.environ.get("GRPO_LAB_HOME") or platformdirs.user_cache_dir("grpo-lab"))


def warm_start(task: Task, preset: str = "S", *, seed: int, target: tuple[float, float] = TARGET) -> Policy:
    """A policy whose pass rate, sampled at temperature 1, lies in `target`; from data/, from the cache, or made now.

    Tasks of fixed length (bandit, tree) need none and start from random weights.
    Raises: ValueError where stored weights can't be read or the target isn't met.
    """
    while isinstance(
        task, Wrapped
    ):  # Pool and Online start where their task does, and no fresh prompt is used up
        task = task.task
    if task.fixed_length:
        return build_policy(task, preset, seed=seed)
    name = f"{task.name}-{preset}-seed{seed}" + ("" if target == TARGET else f"-{target[0]}-{target[1]}")
    for place in (DATA / "warm_starts" / name, home() / "warm_starts" / name):
        if place.is_dir() and any(place.iterdir()):
            return _checked(load_policy(place), task, place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the cache {home()} can't be made ({error}); set GRPO_LAB_HOME to another folder"
        ) from error
    policy, note = make_warm_start(task, preset, seed=seed, target=target)
    save_whole(policy, place, note)
    return load_policy(place)  # what is cached and what is fresh must be the same object in the same state


def _checked(policy: Policy, task: Task, place: Path) -> Policy:
    known, needed = set(policy.tokenizer.get_vocab()), set(task.alphabet)
    require(
        needed <= known,
        f"{place} was made for another task that is called {task.name} too: it lacks {sorted(needed - known)}. "
        "Give your task a name of its own",
    )
    return policy


def save_whole(policy: Policy, folder: Path, note: dict) -> None:
    """Save into a folder beside and rename it: whoever looks sees all of it or nothing, and the first writer wins."""
    draft = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        policy.save(draft, note)
        os.chmod(draft, 0o755)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if not folder.exists():
            draft.rename(folder)
    except OSError:
        if not folder.is_dir():  # another process may have been faster, which is as good
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def make_warm_start(
    task: Task, preset: str, *, seed: int, target: tuple[float, float] = TARGET
) -> tuple[Policy, dict]:
    """Train on demonstrations until the pass rate is in the target band. Returns the policy and a note on how it went.

    The pass rate is measured every fifth batch, and from the last measurement below the band on after each batch, so
    that a steep climb doesn't jump over it.
    """
    require(0 <= target[0] < target[1] <= 1, f"target is a band of pass rates within 0 to 1, not {target}")
    policy = build_policy(task, preset, seed=seed)
    optimizer = adamw(policy.parameters(), LR)
    generator = torch.Generator().manual_seed(1_000_003 * (seed + 1))
    probe = task.prompts(PROBE, generator=torch.Generator().manual_seed(seed), split="train")
    every, rate = 5, 0.0
    before: dict = {}
    batches = 0
    while batches < MOST_BATCHES:
        if batches % every == 0 or every == 1:
            rate = _pass_rate(policy, task, probe, seed)
            if target[0] <= rate <= target[1]:
                return policy, {
                    "task": task.name,
                    "preset": preset,
                    "seed": seed,
                    "batches": batches,
                    "pass_rate": rate,
                }
            above = f"{task.name} went from below {target} to {rate:.2f} in one batch; take a wider band"
            require(
                rate < target[0] or batches > 0,
                f"untrained, {task.name} has a pass rate of {rate:.2f} already: above {target}",
            )
            require(rate < target[0] or every > 1, above)
            if rate > target[1] and every > 1:
                every, batches = 1, before["batches"]
                policy.model.load_state_dict(before["weights"])
                optimizer.load_state_dict(before["optimizer"])
                generator.set_state(before["generator"])
                continue
            if rate < target[0]:
                before = _state(policy, optimizer, generator, batches)
        prompts = task.prompts(BATCH, generator=generator, split="train")
        turns = [task.demonstration(prompt, generator=generator) for prompt in prompts]
        supervised_update(policy, task, optimizer, prompts, turns)
        batches += 1
    raise ValueError(
        f"the warm start for {task.name} ({preset}, seed {seed}) stands at a pass rate of {rate:.2f} after {batches} "
        f"batches and was to be within {target}; take a larger preset or another target"
    )


def _state(policy: Policy, optimizer, generator: torch.Generator, batches: int) -> dict:
    def cloned(value):
        if isinstance(value, Tensor):
            return value.clone()
        if isinstance(value, dict):
            return {k: cloned(v) for k, v in value.items()}
        return [cloned(v) for v in value] if isinstance(value, list) else value

    return {
        "weights": cloned(dict(policy.model.state_dict())),
        "optimizer": cloned(optimizer.state_dict()),
        "generator": generator.get_state(),
        "batches": batches,
    }


def _pass_rate(policy: Policy, task: Task, probe: Sequence[Prompt], seed: int) -> float:
    noise_BT = row_noise(seed, range(len(probe)), 1, task.max_turns * task.max_tokens)
    batch = rollout(policy, task, probe, group_size=1, noise_BT=noise_BT)
    return sum(total_rewards(task, batch)) / len(probe)


def supervised_update(
    policy: Policy, task: Task, optimizer, prompts: Sequence[Prompt], turns: Sequence[list[str]]
) -> float:
    """One step of maximum likelihood on demonstrated turns; the mean loss a token, in nats."""
    batch = demonstration_batch(policy, task, prompts, turns)
    logp_BT, _ = policy.logp(batch)
    loss = weighted_sum(-logp_BT, token_mean(batch.mask_BT), batch.mask_BT)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def demonstration_batch(
    policy: Policy, task: Task, prompts: Sequence[Prompt], turns: Sequence[list[str]]
) -> Batch:
    """Demonstrations as a Batch: one answer a prompt, the environment's replies between its turns."""
    end = [] if task.fixed_length else [policy.end_ids[0]]
    rows = []  # of (token, own, turn)
    for prompt, said in zip(prompts, turns, strict=True):
        row = []
        for i, text in enumerate(said):
            row += [(token, True, i) for token in policy.encode_text(text) + end]
            reply = task.reply(prompt, said[: i + 1])
            if reply is not None and i + 1 < len(said):
                row += [(token, False, 0) for token in policy.encode_reply(reply)]
        rows.append(row)
    width = max(len(row) for row in rows)

    def column(values: list[list], fill) -> Tensor:
        return torch.tensor([list(v) + [fill] * (width - len(v)) for v in values], device=policy.device)

    tokens_BT = column([[token for token, _, _ in row] for row in rows], 0)
    mask_BT = column([[own for _, own, _ in row] for row in rows], False)
    ids_PL, mask_PL = policy.encode(prompts)
    count = torch.arange(len(rows), device=policy.device)
    return Batch(
        prompts=tuple(prompts),
        turns=tuple(tuple(said) for said in turns),
        ticket_P=count.clone(),
        prompt_ids_PL=ids_PL,
        prompt_mask_PL=mask_PL,
        prompt_B=count,
        tokens_BT=tokens_BT,
        attend_BT=column([[True] * len(row) for row in rows], False),
        mask_BT=mask_BT,
        turn_BT=column([[turn for _, _, turn in row] for row in rows], 0),
        logp_rollout_BT=torch.zeros(mask_BT.shape, device=policy.device),
        version_BT=torch.zeros_like(tokens_BT),
        finished_B=torch.ones(len(rows), dtype=torch.bool, device=policy.device),
        temperature=1.0,
    )


def note_of(folder: Path) -> dict:
    """What was written down about a stored warm start: task, preset, seed, batches, pass rate."""
    return json.loads((folder / "grpo_lab.json").read_text())
