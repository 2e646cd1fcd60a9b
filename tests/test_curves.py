"""Recorded curves can't outlive the code: the first five steps of each experiment are run again and compared."""

import math
import statistics
import tomllib

import pytest

from grpo_lab.engine.arms import parse_arm
from grpo_lab.engine.experiment import FIRST, read_curve, start_arm
from grpo_lab.engine.staleness import lag
from grpo_lab.engine.tasks import named_task
from grpo_lab.engine.train import train
from grpo_lab.engine.warm_start import DATA
from grpo_lab.teach.plots import t_quantile

MATRIX = tomllib.loads((DATA / "curves" / "experiments.toml").read_text(encoding="utf-8"))
RECORDED = [
    (name, text)
    for name, entry in MATRIX.items()
    for text in entry["arms"]
    if (DATA / "curves" / name / f"{parse_arm(text, **entry.get('defaults', {}))[0]}-seed0.csv").is_file()
]


@pytest.mark.parametrize(("name", "text"), RECORDED)
def test_the_first_five_steps_come_out_again(name, text):
    entry = MATRIX[name]
    label, arm = parse_arm(text, **entry.get("defaults", {}))
    recorded = read_curve(DATA / "curves" / name / f"{label}-seed0.csv")
    task = named_task(entry["task"])
    run = start_arm(arm, task, seed=0, device="cpu")
    rows = train(run.policy, task, arm.recipe, steps=FIRST, arrivals=lag(arm.lag), eval_every=None, run=run)
    again = [row for row in rows if "optim/lr" in row]
    assert [row["step"] for row in again] == [1, 2, 3, 4, 5] == recorded["step"][1:6]
    # Another processor sums in another order. A sampled token rarely changes for that; a wrong line changes much.
    for column, tolerance in (("reward/mean", 0.03), ("response/length", 0.1), ("policy/entropy", 0.02)):
        for i, row in enumerate(again):
            assert row[column] == pytest.approx(recorded[column][1 + i], abs=tolerance), (column, i + 1)
    for column in ("rollout/staleness", "count/rollouts", "count/updates"):
        assert [row[column] for row in again] == recorded[column][1:6]
    norms = [row["optim/grad_norm"] for row in again]
    assert norms == pytest.approx(recorded["optim/grad_norm"][1:6], rel=0.1)


def last(label: str, seed: int) -> float:
    """Held-out accuracy at the last row, of the foundation's runs."""
    return read_curve(DATA / "curves" / "foundation" / f"{label}-seed{seed}.csv")["eval/accuracy"][-1]


@pytest.mark.parametrize("seed", range(3))
def test_grpo_and_ppo_climb_and_blind_grpo_falls_on_stale_data(seed):
    assert last("grpo", seed) >= 0.80
    assert last("ppo", seed) >= 0.75
    assert last("fresh", seed) - last("stale", seed) >= 0.2
    assert last("clip_stale", seed) - last("stale", seed) >= 0.2  # the same lag, seen by the ratio


def outcome(name: str, label: str, seed: int) -> float:
    """The outcome of a run: the mean of the last fifth of its evaluations."""
    curve = read_curve(DATA / "curves" / name / f"{label}-seed{seed}.csv")
    accuracy = [value for value in curve["eval/accuracy"] if value == value]
    return statistics.mean(accuracy[-(len(accuracy) // 5) :])


def difference(name: str, label: str, against: str, seeds: int) -> tuple[float, float]:
    """Mean and half the 95 % interval of the paired difference."""
    pairs = [outcome(name, label, seed) - outcome(name, against, seed) for seed in range(seeds)]
    return statistics.mean(pairs), t_quantile(seeds - 1) * statistics.stdev(pairs) / math.sqrt(seeds)


@pytest.mark.parametrize("seed", range(5))
def test_groups_of_64_lose_at_equal_rollouts(seed):
    assert outcome("group_baseline", "grpo", seed) - outcome("group_baseline", "size_64", seed) >= 0.15


@pytest.mark.parametrize("label", ["dr_grpo", "rloo", "size_2"])
def test_five_seeds_tell_no_difference_between_the_group_baselines(label):
    mean, half = difference("group_baseline", label, "grpo", 5)
    assert abs(mean) < half and abs(mean) < 0.05


def test_the_comparison_over_the_batch_is_behind_by_about_the_width_of_its_interval():
    mean, half = difference("group_baseline", "batch", "grpo", 5)
    assert -0.06 < mean < -0.02 and 0.8 < -mean / half < 1.2
