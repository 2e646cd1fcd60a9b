"""Every number that a step reports is explained in the glossary."""

import math

import pytest

from grpo_lab.concepts.group_advantage import batch_advantage
from grpo_lab.concepts.kl import k1, k3
from grpo_lab.engine.metrics import GLOSSARY, glossary
from grpo_lab.engine.recipes import CriticPlan, grpo, grpo_recomputed, ppo, reinforce
from grpo_lab.engine.staleness import lag
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import start, step, train
from tests.engine.helpers import small_policy


class Odd(Sort):
    """The share of odd digits in the answer: a random policy earns something, and groups differ."""

    def reward(self, prompt, turns):
        return sum(c in "13579" for c in turns[-1]) / 4


RECIPES = {
    "reinforce": reinforce(),
    "grpo": grpo(group_size=4),
    "grpo_recomputed": grpo_recomputed(group_size=4, epochs=2),
    "single": grpo(group_size=1, group_advantage=batch_advantage),
    "kl_in_loss": grpo(group_size=4, kl=k3, kl_coef=0.04),
    "kl_in_reward": grpo(group_size=4, kl_in_reward=k1, kl_coef=0.04),
    "ppo": ppo(minibatches=2, critic=CriticPlan(warmup=1)),
}
ALWAYS = {
    "step", "reward/mean", "reward/std", "response/length", "response/cut_off_frac", "rollout/staleness",
    "rollout/staleness_max", "rollout/queued", "count/rollouts", "count/tokens_generated", "count/tokens_trained",
    "count/updates", "time/rollout", "time/train",
}  # fmt: skip
OF_AN_UPDATE = {
    "policy/loss", "policy/entropy", "policy/ratio_mean", "policy/ratio_max", "policy/clip_frac",
    "policy/clip_frac_high", "policy/clip_frac_low", "policy/masked_frac", "policy/ess", "policy/kl_rollout",
    "optim/grad_norm", "optim/clipped_frac", "optim/update_norm", "optim/lr", "batch/trained_frac",
}  # fmt: skip
OF_GROUPS = {"group/reward_std", "group/zero_variance_frac"}
OF_A_CRITIC = {"value/loss", "value/explained_variance", "value/grad_norm", "value/critic_only_steps"}


def small_run():
    return start(small_policy("llama", Odd(3), spread=2.0), Odd(3), seed=0, lr=1e-3, batch_size=16)


@pytest.mark.parametrize("name", RECIPES)
def test_a_step_reports_what_it_should_and_the_glossary_knows_all_of_it(name):
    recipe, run = RECIPES[name], small_run()
    for _ in range(2):
        metrics = step(run, recipe, arrivals=lag(1))
        wanted = set(ALWAYS)
        if run.version > 0:
            wanted |= OF_AN_UPDATE
        if recipe.group_size > 1:
            wanted |= OF_GROUPS
        if recipe.critic is not None:
            wanted |= OF_A_CRITIC
        if name.startswith("kl") and run.version > 0:
            wanted.add("policy/kl_ref")
        assert set(metrics) == wanted
        assert set(metrics) <= set(GLOSSARY)
        assert all(isinstance(v, (int, float)) and math.isfinite(v) for v in metrics.values())


def test_evaluations_are_in_the_glossary_and_nothing_in_it_is_never_reported():
    run = small_run()
    reported = set()
    for metrics in train(run.policy, run.task, grpo(group_size=4, kl=k3, kl_coef=0.1), steps=1, run=run):
        reported |= set(metrics)
    assert {"eval/accuracy", "eval/greedy_accuracy"} <= reported
    assert reported | OF_A_CRITIC == set(GLOSSARY)


SHARES = [name for name, metric in GLOSSARY.items() if metric.unit == "0 to 1"]


def test_shares_lie_between_0_and_1_and_the_clips_add_up():
    run = small_run()
    for _ in range(3):
        metrics = step(run, grpo(group_size=4, minibatches=2, epochs=3, eps_low=0.01, eps_high=0.01))
    assert {"group/zero_variance_frac", "policy/clip_frac", "policy/ess", "batch/trained_frac"} <= set(SHARES)
    assert all(0 <= metrics[name] <= 1 for name in SHARES if name in metrics)
    assert metrics["policy/clip_frac"] == pytest.approx(
        metrics["policy/clip_frac_high"] + metrics["policy/clip_frac_low"]
    )
    assert metrics["policy/clip_frac"] > 0 and metrics["policy/masked_frac"] == 0


def test_every_metric_has_formula_unit_and_healthy_range():
    for name, metric in GLOSSARY.items():
        assert name == "step" or name.count("/") == 1
        assert metric.formula and metric.unit and metric.healthy, name


def test_the_glossary_prints_one_line_a_metric():
    lines = glossary().splitlines()
    assert len(lines) == len(GLOSSARY)
    assert [line.split()[0] for line in lines] == list(GLOSSARY)


def test_the_glossary_of_some_prints_those_in_that_order():
    text = glossary(["policy/ess", "reward/mean"])
    assert [line.split()[0] for line in text.splitlines()] == ["policy/ess", "reward/mean"]
    assert "pi / pi_rollout" in text and "[0 to 1]; healthy: above 0.5" in text
    assert glossary([]) == ""


def test_an_unknown_metric_is_named_with_what_there_is():
    with pytest.raises(
        KeyError, match=r"there is no metric 'reward/median'; the metrics are step, reward/mean"
    ):
        glossary(["reward/median"])
