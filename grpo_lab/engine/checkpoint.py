"""A run on disk: weights, optimisers, queue, random numbers, counters, history. On a CPU it goes on bit by bit.

Tensors are safetensors, everything else is JSON; nothing is pickled.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from grpo_lab.engine.batch import Batch
from grpo_lab.engine.device import choose_device
from grpo_lab.engine.policy import Critic, load_policy
from grpo_lab.engine.staleness import Queue
from grpo_lab.engine.tasks import Prompt, Task
from grpo_lab.engine.train import Run, adamw
from grpo_lab.guard import require

FORMAT = 1
PLAIN = (
    "seed lr batch_size temperature max_grad_norm micro_batch version critic_only_steps next_ticket counters history"
).split()


def save_run(run: Run, folder: Path | str, note: dict | None = None) -> None:
    """Write the run, and `note` beside it; what was in the folder before is replaced whole, or not at all."""
    folder = Path(folder)
    draft, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    for launch in run.queue.launches:
        require_plain(launch.prompts)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    run.policy.save(draft / "policy")
    tensors = {f"generator/{name}": g.get_state() for name, g in run.generators.items()}
    tensors |= _optimizer_tensors("optimizer", run.optimizer)
    if run.reference is not None:
        tensors |= _weights("reference", run.reference.model.named_parameters())
    if run.critic is not None:
        tensors |= _weights("critic", run.critic.named_parameters())
        tensors |= _optimizer_tensors("critic_optimizer", run.critic_optimizer)
    queue = []
    for i, launch in enumerate(run.queue.launches):
        tensors |= {f"queue/{i}/{name}": value for name, value in launch.tensors().items()}
        prompts = [[p.text, p.target] for p in launch.prompts]
        queue.append({"prompts": prompts, "turns": launch.turns, "temperature": launch.temperature})
    save_file(
        {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
        draft / "run.safetensors",
    )
    state = {name: getattr(run, name) for name in PLAIN}
    state |= {
        "format": FORMAT,
        "task": run.task.name,
        "task_state": run.task.state() if hasattr(run.task, "state") else None,
        "has_reference": run.reference is not None,
        "has_critic": run.critic is not None,
        "critic_frozen": list(run.critic_frozen),
        "queue": queue,
        "note": note,
    }
    (draft / "run.json").write_text(json.dumps(state))
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(draft, folder)
    shutil.rmtree(old, ignore_errors=True)


def load_run(folder: Path | str, task: Task, *, device: str | torch.device = "auto") -> Run:
    """The run that `save_run` wrote.

    Raises: FileNotFoundError where there is none; ValueError for another task, or a file that can't be read.
    """
    folder = _found(folder)
    state = _state(folder)
    try:
        tensors = load_file(folder / "run.safetensors")
    except Exception as error:  # safetensors raises its own
        raise _unreadable(folder, error) from error
    require(
        state["task"] == task.name,
        f"the checkpoint in {folder} is of task {state['task']}, not {task.name}; load it with its own task",
    )
    if state["task_state"] is not None:
        task.restore(state["task_state"])
    place = choose_device(device)
    policy = load_policy(folder / "policy").to(place)
    run = Run(
        policy=policy,
        task=task,
        **{name: state[name] for name in PLAIN},
        optimizer=adamw(policy.parameters(), state["lr"]),
        reference=policy.copy() if state["has_reference"] else None,
        critic_frozen=tuple(state["critic_frozen"]),
    )
    _restore_optimizer("optimizer", run.optimizer, tensors)
    if run.reference is not None:
        _restore_weights("reference", run.reference.model.named_parameters(), tensors)
    if state["has_critic"]:
        run.critic = Critic(policy, run.critic_frozen)
        _restore_weights("critic", run.critic.named_parameters(), tensors)
        run.critic_optimizer = adamw(
            run.critic.parameters(), state["lr"]
        )  # the plan's own lr is set at each step
        _restore_optimizer("critic_optimizer", run.critic_optimizer, tensors)
    for name, value in _part("generator", tensors).items():
        run.generators[name] = torch.Generator()
        run.generators[name].set_state(value)
    names = {f.name for f in dataclasses.fields(Batch)}
    for i, launch in enumerate(state["queue"]):
        fields = {k: v.to(place) for k, v in _part(f"queue/{i}", tensors).items() if k in names}
        prompts = tuple(Prompt(text, target) for text, target in launch["prompts"])
        turns = tuple(tuple(row) for row in launch["turns"])
        run.queue.put(Batch(prompts=prompts, turns=turns, temperature=launch["temperature"], **fields))
    run.queue = Queue(run.queue.launches)
    return run


def require_plain(prompts: Sequence[Prompt]) -> None:
    """Raise ValueError for a target that JSON would not bring back as it was: the judge would see another one."""
    for prompt in prompts:
        try:
            same = json.loads(json.dumps(prompt.target)) == prompt.target
        except TypeError:
            same = False
        text = f"the target of prompt {prompt.text!r} is no plain JSON: {prompt.target!r}; use lists and str keys"
        require(same, text)


def read_note(folder: Path | str) -> dict | None:
    """The note of a checkpoint, without loading the run; None where there is no checkpoint. Raises as `load_run`."""
    try:
        return _state(_found(folder))["note"]
    except FileNotFoundError:
        return None


def _found(folder: Path | str) -> Path:
    folder = Path(folder)
    old = folder.with_name(folder.name + ".old")
    return (
        old if not folder.exists() and old.exists() else folder
    )  # killed between the two renames of save_run


def _state(folder: Path) -> dict:
    if not (folder / "run.json").is_file():
        raise FileNotFoundError(f"there is no checkpoint in {folder}")
    try:
        state = json.loads((folder / "run.json").read_text())
    except ValueError as error:
        raise _unreadable(folder, error) from error
    require(
        state.get("format") == FORMAT,
        f"the checkpoint in {folder} has format {state.get('format')} and this version reads {FORMAT}; delete it",
    )
    return state


def _unreadable(folder: Path, error: Exception) -> ValueError:
    return ValueError(
        f"the checkpoint in {folder} can't be read ({error}); delete it, and the run starts again"
    )


def _part(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: v for name, v in tensors.items() if name.startswith(prefix + "/")}


def _weights(prefix: str, named) -> dict[str, Tensor]:
    # named_parameters lists a shared weight once, which is also all that safetensors takes.
    return {f"{prefix}/{name}": parameter for name, parameter in named}


@torch.no_grad()
def _restore_weights(prefix: str, named, tensors: dict[str, Tensor]) -> None:
    for name, parameter in named:
        parameter.copy_(tensors[f"{prefix}/{name}"])


def _optimizer_tensors(prefix: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{prefix}/{i}/{key}": value
        for i, parameter in enumerate(_parameters(optimizer))
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(prefix: str, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    for i, parameter in enumerate(_parameters(optimizer)):
        state = _part(f"{prefix}/{i}", tensors)
        if state:
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]
