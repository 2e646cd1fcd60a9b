"""Warm starts: in the band that was asked for, the same bits every time, one whole folder or none."""

import math
import threading

import pytest
import torch

from grpo_lab.engine import warm_start as module
from grpo_lab.engine.policy import Policy, build_policy, load_policy
from grpo_lab.engine.tasks import Addition, Bandit, FreeLength, Guess, Online, Pool, Sort, Tree
from grpo_lab.engine.train import adamw
from grpo_lab.engine.warm_start import (
    TARGET,
    demonstration_batch,
    home,
    make_warm_start,
    note_of,
    save_whole,
    supervised_update,
    warm_start,
)
from tests.engine.helpers import prompts_of, small_policy, small_rollout

NAME = "sort1-XS-seed0"


def same(a: Policy, b: Policy) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """An empty data/ and an empty cache."""
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "DATA", tmp_path / "data")
    monkeypatch.setattr(module, "PROBE", 300)
    return tmp_path


@pytest.fixture(scope="module")
def made():
    """The real thing, on the smallest task there is: sort one digit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PROBE", 300)
        return make_warm_start(Sort(1), "XS", seed=0)


@pytest.fixture
def making(made, monkeypatch):
    """Lets `warm_start` make what `made` is, and counts how often."""
    calls = []

    def make(task, preset, *, seed, target):
        calls.append((task.name, preset, seed))
        return made[0].copy(), dict(made[1])

    monkeypatch.setattr(module, "make_warm_start", make)
    return calls


# ---- making


def test_the_pass_rate_is_in_the_band_and_measured_again_it_is_the_noted_one(made):
    policy, note = made
    assert TARGET[0] <= note["pass_rate"] <= TARGET[1]
    assert {k: note[k] for k in ("task", "preset", "seed")} == {"task": "sort1", "preset": "XS", "seed": 0}
    task = Sort(1)
    probe = task.prompts(300, generator=torch.Generator().manual_seed(0))
    assert module._pass_rate(policy, task, probe, 0) == note["pass_rate"]


def test_made_again_it_is_the_same_bit_by_bit_and_the_global_random_numbers_are_left_alone(made):
    state = torch.get_rng_state()
    again, note = make_warm_start(Sort(1), "XS", seed=0)
    assert same(again, made[0]) and note == made[1]
    assert torch.equal(state, torch.get_rng_state())


def updates(policy: Policy, task, n: int, *, seed: int) -> None:
    """n batches of demonstrations, drawn as `make_warm_start` draws them."""
    optimizer, generator = (
        adamw(policy.parameters(), module.LR),
        torch.Generator().manual_seed(1_000_003 * (seed + 1)),
    )
    for _ in range(n):
        prompts = task.prompts(module.BATCH, generator=generator)
        supervised_update(
            policy, task, optimizer, prompts, [task.demonstration(p, generator=generator) for p in prompts]
        )


def test_a_climb_over_the_band_is_taken_back_and_gone_up_step_by_step(monkeypatch):
    """Measured .0 at batch 0, .1 at 5, .9 at 10: too far. Back to 5, then after each batch: .2, .35, .45."""
    rates = iter([0.0, 0.1, 0.9, 0.1, 0.2, 0.35, 0.45])
    monkeypatch.setattr(module, "_pass_rate", lambda *_: next(rates))
    monkeypatch.setattr(module, "BATCH", 8)
    policy, note = make_warm_start(Sort(3), "XS", seed=2)
    assert note["batches"] == 8 and note["pass_rate"] == 0.45
    straight = build_policy(Sort(3), "XS", seed=2)
    updates(straight, Sort(3), 8, seed=2)
    assert same(policy, straight)  # weights, optimiser and demonstrations all went back


def test_supervised_updates_lower_the_loss():
    task, policy = Sort(2), build_policy(Sort(2), "XS")
    optimizer = adamw(policy.parameters(), 3e-3)
    prompts = prompts_of(task, 64)
    turns = [[p.target] for p in prompts]
    losses = [supervised_update(policy, task, optimizer, prompts, turns) for _ in range(25)]
    assert losses[0] == pytest.approx(torch.tensor(13.0).log().item(), abs=0.2)  # uniform over 13 tokens
    assert losses[-1] < losses[0] - 0.5


def test_a_target_that_is_not_met_says_where_it_stands(monkeypatch):
    monkeypatch.setattr(module, "MOST_BATCHES", 3)
    with pytest.raises(
        ValueError,
        match=r"sort6 \(XS, seed 0\) stands at a pass rate of 0.00 after 3 batches .* take a larger preset",
    ):
        make_warm_start(Sort(), "XS", seed=0)
    assert not home().exists()


class Easy(Sort):
    def reward(self, prompt, turns):
        return 1.0


def test_a_task_that_is_solved_untrained_is_said_to_be():
    with pytest.raises(ValueError, match="untrained, sort3 has a pass rate of 1.00 already: above"):
        make_warm_start(Easy(3), "XS", seed=0)


@pytest.mark.parametrize("target", [(0.5, 0.4), (-0.1, 0.5), (0.5, 1.5), (0.4, 0.4)])
def test_a_target_that_is_no_band_is_refused(target):
    with pytest.raises(ValueError, match="target is a band of pass rates within 0 to 1"):
        make_warm_start(Sort(1), "XS", seed=0, target=target)


def test_a_judge_that_pays_by_the_turn_is_summed():
    class ByTurn(Sort):
        def reward(self, prompt, turns):
            return [0.25]

    probe = prompts_of(Sort(1), 10)
    assert module._pass_rate(build_policy(Sort(1), "XS"), ByTurn(1), probe, 0) == 0.25


# ---- keeping


def test_the_second_call_finds_what_the_first_one_made(making, made):
    first = warm_start(Sort(1), "XS", seed=0)
    second = warm_start(Sort(1), "XS", seed=0)
    assert making == [("sort1", "XS", 0)]
    assert same(first, second) and same(first, made[0])
    folder = home() / "warm_starts" / NAME
    assert note_of(folder) == {"end_ids": [1], **made[1]}
    assert [p.name for p in folder.parent.iterdir()] == [NAME]


def test_data_comes_before_the_cache_and_nothing_is_made(making, places):
    stored = build_policy(Sort(1), "XS", seed=77)
    stored.save(places / "data" / "warm_starts" / NAME)
    assert same(warm_start(Sort(1), "XS", seed=0), stored)
    assert making == [] and not home().exists()


def test_seed_preset_task_and_target_each_have_their_own(making):
    warm_start(Sort(1), "XS", seed=0)
    warm_start(Sort(1), "XS", seed=1)
    warm_start(Sort(2), "XS", seed=0)
    warm_start(Sort(1), "S", seed=0)
    warm_start(Sort(1), "XS", seed=0, target=(0.1, 0.2))
    assert making == [
        ("sort1", "XS", 0),
        ("sort1", "XS", 1),
        ("sort2", "XS", 0),
        ("sort1", "S", 0),
        ("sort1", "XS", 0),
    ]
    names = sorted(p.name for p in (home() / "warm_starts").iterdir())
    assert names == ["sort1-S-seed0", NAME, f"{NAME}-0.1-0.2", "sort1-XS-seed1", "sort2-XS-seed0"]


def test_pool_and_online_start_where_their_task_does_and_use_up_no_fresh_prompt(making):
    online = Online(Sort(1))
    plain = warm_start(Sort(1), "XS", seed=0)
    assert same(plain, warm_start(online, "XS", seed=0))
    assert same(plain, warm_start(Pool(Sort(1), size=4), "XS", seed=0))
    assert making == [("sort1", "XS", 0)] and online.state() == []


@pytest.mark.parametrize("task", [Bandit(), Tree()])
def test_tasks_of_fixed_length_start_from_random_weights(making, task):
    policy = warm_start(task, "XS", seed=3)
    assert same(policy, build_policy(task, "XS", seed=3)) and not same(
        policy, build_policy(task, "XS", seed=4)
    )
    assert making == [] and not home().exists()


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match="there is no preset 'XXL'; the presets are XS, S, M, L"):
        warm_start(Sort(1), "XXL", seed=0)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", "cut"), ("model.safetensors", "gone"), ("config.json", "cut"), ("config.json", "gone"),
        ("tokenizer.json", "cut"), ("tokenizer.json", "gone"), ("grpo_lab.json", "cut"),
    ],
)  # fmt: skip
def test_damaged_weights_say_which_folder_to_delete(making, name, damage):
    warm_start(Sort(1), "XS", seed=0)
    path = home() / "warm_starts" / NAME / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    with pytest.raises(
        ValueError, match=rf"{NAME} can't be read .*; if it is a warm start, delete the folder"
    ):
        warm_start(Sort(1), "XS", seed=0)
    assert len(making) == 1


def test_two_that_make_the_same_at_once_leave_one_whole_folder(tmp_path, monkeypatch):
    """Both have written their draft before either renames it."""
    both_written = threading.Barrier(2, timeout=60)
    save = Policy.save

    def slow_save(self, folder, note=None):
        save(self, folder, note)
        both_written.wait()

    monkeypatch.setattr(Policy, "save", slow_save)
    policies = [build_policy(Sort(1), "XS", seed=s) for s in (5, 6)]
    errors = []

    def write(policy):
        try:
            save_whole(policy, tmp_path / "w", {"seed": 5})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=[p]) for p in policies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [p.name for p in tmp_path.iterdir()] == ["w"]
    left = load_policy(tmp_path / "w")
    assert same(left, policies[0]) != same(left, policies[1])


def test_a_rename_that_fails_because_another_was_faster_is_no_error(tmp_path, monkeypatch):
    """The folder appears between the look and the rename."""
    first, second = (build_policy(Sort(1), "XS", seed=s) for s in (5, 6))
    save_whole(first, tmp_path / "w", {})
    with monkeypatch.context() as patch:
        patch.setattr(module.Path, "exists", lambda self: False)
        save_whole(second, tmp_path / "w", {})
    assert same(load_policy(tmp_path / "w"), first)
    assert [p.name for p in tmp_path.iterdir()] == ["w"]


def test_a_save_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Policy, "save", full)
    with pytest.raises(OSError, match="no space left"):
        save_whole(build_policy(Sort(1), "XS"), tmp_path / "w", {})
    assert list(tmp_path.iterdir()) == []


# ---- demonstrations


@pytest.mark.parametrize(
    "task", [Sort(3), Addition(2), FreeLength(3, 8), Guess()], ids=lambda task: task.name
)
def test_a_demonstration_is_the_batch_that_a_rollout_of_the_same_tokens_is(task):
    policy = small_policy("llama", task, spread=1.0)
    bias_V = torch.zeros(len(policy.tokenizer), dtype=torch.float64)
    # Padding, which no text can say, never; the end often, so that many rows end by themselves.
    bias_V[policy.pad_id], bias_V[policy.end_ids[0]] = -50.0, math.log(len(bias_V))
    policy.model.get_output_embeddings().register_forward_hook(lambda _, __, logits: logits + bias_V)
    written = small_rollout(policy, task, prompts=40, group_size=1)
    rows = torch.nonzero(written.finished_B).squeeze(1)
    assert len(rows) >= 10
    said = [list(written.turns[b]) for b in rows.tolist()]
    if task.max_turns > 1:
        assert max(map(len, said)) > 1
    written = written.rows(rows)
    shown = demonstration_batch(policy, task, list(written.prompts), said)
    names = "tokens_BT mask_BT attend_BT turn_BT prompt_ids_PL prompt_mask_PL prompt_B finished_B".split()
    for name in names:
        mine, theirs = getattr(shown, name), getattr(written, name)
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs), name
    assert (shown.turns, shown.prompts) == (written.turns, written.prompts)
    torch.testing.assert_close(policy.logp(shown)[0].detach(), written.logp_rollout_BT, atol=1e-10, rtol=0)


def test_a_demonstration_of_a_fixed_length_task_has_no_end_token():
    policy, task = small_policy("llama", Tree()), Tree()
    batch = demonstration_batch(policy, task, prompts_of(task, 2), [["ab"], ["bb"]])
    assert batch.tokens_BT.tolist() == [policy.encode_text("ab"), policy.encode_text("bb")]
    assert bool(batch.mask_BT.all()) and bool(batch.finished_B.all())


def test_the_reply_after_the_last_turn_is_not_shown():
    policy, task = small_policy("llama", Guess()), Guess()
    (prompt,) = prompts_of(task, 1)
    wrong = task.symbols[prompt.target["secret"] - 1]
    batch = demonstration_batch(policy, task, [prompt], [[wrong]])
    assert batch.tokens_BT.tolist() == [[*policy.encode_text(wrong), policy.end_ids[0]]]


def test_a_task_that_borrows_a_name_and_not_the_alphabet_is_refused(tmp_path, monkeypatch):
    class Letters(Sort):
        alphabet = "abc="

    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path))
    build_policy(Sort(1), "XS").save(tmp_path / "warm_starts" / "sort1-XS-seed0")
    with pytest.raises(
        ValueError, match=r"another task that is called sort1 too: it lacks \['a', 'b', 'c'\]"
    ):
        warm_start(Letters(1), "XS", seed=0)


def test_a_cache_that_cannot_be_made_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="can't be made .* set GRPO_LAB_HOME"):
        warm_start(Sort(5), "XS", seed=3)
