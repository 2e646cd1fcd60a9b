"""A run goes to disk and comes back bit by bit, with a full queue and everything else that changes."""

import json

import pytest
import torch

from grpo_lab.concepts.kl import k3
from grpo_lab.engine import checkpoint
from grpo_lab.engine.checkpoint import load_run, read_note, save_run
from grpo_lab.engine.recipes import CriticPlan, grpo, ppo
from grpo_lab.engine.staleness import lag
from grpo_lab.engine.tasks import Online, Sort
from grpo_lab.engine.train import step
from tests.engine.test_train import Digits, fingerprint, small_run, unchanged, untimed, weights

RECIPES = {
    "grpo": (grpo(), lag(0)),
    "stale": (grpo(kl=k3, kl_coef=0.05), lag(3)),
    "ppo": (ppo(epochs=2, minibatches=2, critic=CriticPlan(warmup=2, frozen=("self_attn",))), lag(1)),
}


def same_batches(a, b) -> bool:
    fields = a.tensors()
    return (a.prompts, a.turns, a.temperature) == (b.prompts, b.turns, b.temperature) and all(
        torch.equal(value, b.tensors()[name]) for name, value in fields.items()
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_resumed_run_is_the_same_bit_by_bit(name, tmp_path):
    recipe, arrivals = RECIPES[name]
    straight, run = (small_run(dtype=torch.float32) for _ in range(2))
    for _ in range(6):
        step(straight, recipe, arrivals=arrivals)
    for _ in range(3):
        step(run, recipe, arrivals=arrivals)
    save_run(run, tmp_path / "c")
    loaded = load_run(tmp_path / "c", Digits(3), device="cpu")
    assert unchanged(fingerprint(run), fingerprint(loaded))
    assert all(same_batches(a, b) for a, b in zip(run.queue.launches, loaded.queue.launches, strict=True))
    for _ in range(3):
        step(loaded, recipe, arrivals=arrivals)
    assert unchanged(fingerprint(straight), fingerprint(loaded))
    assert [untimed(m) for m in straight.history] == [untimed(m) for m in loaded.history]


def test_prompts_already_used_stay_used(tmp_path):
    run = small_run(Online(Sort(4), flip_at=2))
    for _ in range(3):
        step(run, grpo())
    save_run(run, tmp_path / "c")
    loaded = load_run(tmp_path / "c", Online(Sort(4), flip_at=2), device="cpu")
    assert loaded.task.seen == run.task.seen and len(run.task.seen) == 6


def test_a_step_that_failed_gives_its_prompts_back():
    run = small_run(Online(Sort(4), flip_at=2))
    with pytest.raises(ValueError, match="kept no row"):
        step(run, grpo(keep=lambda rewards_B: rewards_B > 9))
    assert not run.task.seen


def test_nothing_is_pickled_and_a_note_can_be_read_alone(tmp_path):
    save_run(small_run(dtype=torch.float32), tmp_path / "c", {"who": "me"})
    kinds = {p.suffix for p in (tmp_path / "c").rglob("*") if p.is_file()}
    assert kinds <= {".safetensors", ".json", ".jinja"}
    assert read_note(tmp_path / "c") == {"who": "me"} and read_note(tmp_path / "nowhere") is None


def test_a_kill_between_the_renames_loses_nothing(tmp_path, monkeypatch):
    run = small_run(dtype=torch.float32)
    save_run(run, tmp_path / "c", {"n": 1})
    real, calls = checkpoint.os.replace, []

    def killed(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(checkpoint.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_run(run, tmp_path / "c", {"n": 2})
    monkeypatch.undo()
    assert read_note(tmp_path / "c") == {"n": 1}
    assert unchanged(fingerprint(run), fingerprint(load_run(tmp_path / "c", Digits(3), device="cpu")))
    save_run(run, tmp_path / "c", {"n": 3})
    assert read_note(tmp_path / "c") == {"n": 3} and sorted(p.name for p in tmp_path.iterdir()) == ["c"]


def test_what_cannot_be_loaded_says_why(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_run(tmp_path / "nowhere", Digits(3))
    run = small_run(dtype=torch.float32)
    save_run(run, tmp_path / "c")
    with pytest.raises(ValueError, match="is of task sort3, not sort6"):
        load_run(tmp_path / "c", Sort(6))
    state = tmp_path / "c" / "run.json"
    text = state.read_text()
    state.write_text(json.dumps({**json.loads(text), "format": 99}))
    with pytest.raises(ValueError, match="has format 99 and this version reads 1; delete it"):
        load_run(tmp_path / "c", Digits(3))
    state.write_text(text[:100])
    with pytest.raises(ValueError, match="can't be read .* delete it, and the run starts again"):
        load_run(tmp_path / "c", Digits(3))
    state.write_text(text)
    tensors = tmp_path / "c" / "run.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-50])
    with pytest.raises(ValueError, match="can't be read .* delete it"):
        load_run(tmp_path / "c", Digits(3))


def test_weights_on_disk_are_those_of_the_run(tmp_path):
    run = small_run(dtype=torch.float32)
    step(run, grpo())
    save_run(run, tmp_path / "c")
    loaded = load_run(tmp_path / "c", Digits(3), device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(weights(run), weights(loaded), strict=True))


def test_a_target_that_json_would_change_is_refused_before_it_is_written(tmp_path):
    class Tuples(Digits):
        def draw(self, generator):
            prompt = super().draw(generator)
            return type(prompt)(prompt.text, (1, 2))

    run = small_run(Tuples(3), dtype=torch.float32)
    step(run, grpo(), arrivals=lag(1))
    with pytest.raises(ValueError, match="is no plain JSON: \\(1, 2\\); use lists"):
        save_run(run, tmp_path / "c")
    assert not (tmp_path / "c").exists()
