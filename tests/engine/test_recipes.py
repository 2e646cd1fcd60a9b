"""Recipes: a slot's function is given what its parameters name, a learner's own runs, and nonsense is refused."""

import dataclasses
import functools
import inspect

import pytest
import torch

from grpo_lab.concepts.aggregate import sequence_mean, sequence_sum_mean, token_mean
from grpo_lab.concepts.clipped_surrogate import clipped_surrogate
from grpo_lab.concepts.gae import gae
from grpo_lab.concepts.group_advantage import (
    batch_advantage,
    group_advantage,
    group_mean_advantage,
    leave_one_out_advantage,
)
from grpo_lab.concepts.importance_ratio import importance_ratio, rollout_ratio
from grpo_lab.concepts.kl import k1, k3
from grpo_lab.concepts.masked import masked_whiten
from grpo_lab.concepts.policy_gradient import policy_gradient, reward_to_go
from grpo_lab.engine.recipes import (
    CriticPlan,
    Recipe,
    bind,
    bind_if_there,
    call,
    grpo,
    grpo_recomputed,
    loss_ignores_zero_advantage,
    name_of,
    ppo,
    reinforce,
    wanted,
    whitened,
)
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import start, step
from tests.engine.helpers import small_policy


class Ones(Sort):
    """Sort whose judge only counts the odd digits of an answer: a random policy earns something."""

    def reward(self, prompt, turns):
        return sum(c in "13579" for c in turns[-1]) / 4


def one_step(recipe: Recipe, **arguments):
    """A run after one step of it, and the metrics."""
    run = start(
        small_policy("llama", Ones(3), spread=2.0), Ones(3), seed=0, lr=1e-3, batch_size=16, **arguments
    )
    return run, step(run, recipe)


# ---- fields by name


def test_a_function_is_given_the_fields_its_parameters_name_and_no_others():
    fields = {"rewards_B": 1, "mask_BT": 2, "group_size": 3}
    assert call(lambda group_size, rewards_B: (rewards_B, group_size), fields) == (1, 3)
    assert call(lambda: "nothing", fields) == "nothing"
    assert call(lambda *, rewards_B, eps=7: (rewards_B, eps), fields) == (1, 7)
    assert call(lambda mask_BT=9: mask_BT, fields) == 2  # a field wins over a default
    assert call(lambda mask_BT, *rest, **more: (rest, more), fields) == ((), {})


def test_names_that_a_partial_has_bound_are_not_asked_for():
    def mine(rewards_B, group_size, *, eps=0.5):
        return rewards_B, group_size, eps

    assert wanted(mine) == ["rewards_B", "group_size", "eps"]
    assert wanted(mine, required=True) == ["rewards_B", "group_size"]
    bound = functools.partial(mine, group_size=2, eps=0.1)
    assert wanted(bound) == ["rewards_B"]
    assert call(bound, {"rewards_B": 1, "group_size": 8, "eps": 9}) == (1, 2, 0.1)


def test_objects_with_a_call_are_functions_too():
    class Half:
        def __call__(self, rewards_B, factor=0.5):
            return rewards_B * factor

    assert call(Half(), {"rewards_B": 4}) == 2.0
    assert name_of(Half()) == "Half"
    assert name_of(functools.partial(functools.partial(gae, gamma=1), lam=1)) == "gae"


def test_a_parameter_the_trainer_does_not_have_is_named_with_what_there_is():
    def mine(rewards_B, difficulty):
        return rewards_B * difficulty

    with pytest.raises(ValueError) as error:
        grpo(group_advantage=mine)
    text = str(error.value)
    assert "advantage=mine asks for ['difficulty']" in text
    assert "'rewards_B'" in text and "'group_size'" in text and "'mask_BT'" in text
    assert "A hyperparameter needs a default value" in text


def test_a_hyperparameter_with_a_default_is_fine():
    def mine(rewards_B, difficulty=2.0):
        return rewards_B * difficulty

    assert grpo(group_advantage=mine).advantage is mine


@pytest.mark.parametrize(
    ("slot", "function"),
    [
        ("group_advantage", lambda logp_BT: logp_BT),  # the update has not begun
        ("group_advantage", lambda ratio_BT: ratio_BT),
        ("ratio", lambda ratio_BT: ratio_BT),
        ("keep", lambda advantages_BT: advantages_BT),
        ("aggregate", lambda mask_BT, rewards_B: mask_BT),
    ],
)
def test_a_field_that_exists_only_later_is_refused(slot, function):
    with pytest.raises(ValueError, match="which the trainer doesn't have there"):
        grpo(**{slot: function})


@pytest.mark.parametrize("slot", ["group_advantage", "ratio", "aggregate"])
@pytest.mark.parametrize("value", [None, 3, "sequence_mean"])
def test_what_is_no_function_is_refused(slot, value):
    with pytest.raises((ValueError, TypeError), match="is None|must be a function"):
        grpo(**{slot: value})


def test_my_group_advantage_really_runs():
    calls = []

    def mine(rewards_B, group_size):
        calls.append((tuple(rewards_B.shape), group_size))
        return 3.0 * group_advantage(rewards_B, group_size=group_size)

    _run, metrics = one_step(grpo(group_advantage=mine, group_size=4))
    assert calls == [((16,), 4)]
    _other, theirs = one_step(grpo(group_size=4))
    assert metrics["policy/loss"] == pytest.approx(3 * theirs["policy/loss"])
    assert metrics["optim/grad_norm"] == pytest.approx(3 * theirs["optim/grad_norm"])
    assert theirs["optim/grad_norm"] > 1e-3


def test_every_slot_of_mine_runs_and_is_given_real_tensors():
    seen = {}

    def spy(slot, function):
        @functools.wraps(function)
        def inner(**fields):
            seen[slot] = sorted(fields)
            return function(**fields)

        return inner

    recipe = grpo(
        group_size=4,
        group_advantage=spy("advantage", group_advantage),
        ratio=spy("ratio", rollout_ratio),
        policy_loss=spy(
            "policy_loss", lambda ratio_BT, advantages_BT, eps_low, eps_high: -ratio_BT * advantages_BT
        ),
        weight=spy("weight", lambda ratio_BT, staleness_BT: torch.ones_like(ratio_BT)),
        kl=spy("kl", k3),
        kl_coef=0.1,
        aggregate=spy("aggregate", sequence_mean),
        keep=spy("keep", lambda rewards_B, finished_B: torch.ones_like(finished_B)),
    )
    one_step(recipe)
    assert seen == {
        "advantage": ["group_size", "rewards_B"],
        "ratio": ["logp_BT", "logp_rollout_BT", "mask_BT"],
        "policy_loss": ["advantages_BT", "eps_high", "eps_low", "ratio_BT"],
        "weight": ["ratio_BT", "staleness_BT"],
        "kl": ["logp_BT", "logp_ref_BT", "mask_BT"],
        "aggregate": ["mask_BT"],
        "keep": ["finished_B", "rewards_B"],
    }


def test_asks_says_what_must_be_computed():
    assert grpo().asks("logp_rollout_BT") and not grpo().asks("logp_old_BT")
    assert grpo_recomputed().asks("logp_old_BT") and not grpo_recomputed().asks("logp_rollout_BT")
    assert grpo(kl=k3, kl_coef=0.1).asks("logp_ref_BT") and not grpo().asks("logp_ref_BT")
    assert ppo().asks("values_BT", "advantage") and not ppo().asks("values_BT", "policy_loss")
    # REINFORCE has no ratio in its loss, so the ratio's own fields are nobody's wish
    assert not reinforce().asks("logp_old_BT") and not reinforce().asks("ratio_BT")


# ---- bad numbers


@pytest.mark.parametrize("make", [grpo, grpo_recomputed, ppo])
@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"eps_low": -0.1}, r"eps_low must lie in \[0, 1\], got -0.1"),
        ({"eps_low": 1.5}, r"eps_low must lie in \[0, 1\], got 1.5"),
        ({"eps_high": -0.2}, r"eps_high must lie in \[0, inf\), got -0.2"),
        ({"eps_high": float("nan")}, "eps_high must lie in"),
        ({"delta": 1.1}, r"delta must lie in \(1.2, inf\), got 1.1"),
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"group_size": 2.0}, "group_size must be a whole number"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"minibatches": -1}, "minibatches must be at least 1"),
        ({"kl_coef": -1.0}, "kl_coef must lie in"),
        ({"kl": k3}, "kl_coef is 0.0 but a KL function was given: give it a weight"),
        ({"kl_in_reward": k1}, "kl_coef is 0.0 but a KL function was given: give it a weight"),
        ({"kl_coef": 0.1}, "kl_coef is 0.1 but no KL function was given: it would do nothing"),
    ],
)
def test_numbers_out_of_range_are_named_when_the_recipe_is_made(make, numbers, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(**numbers)


@pytest.mark.parametrize(
    "numbers", [{"eps_low": 0.0}, {"eps_low": 1.0}, {"eps_high": 5.0}, {"eps_high": 0.0}, {"delta": 3.0}]
)
def test_numbers_at_the_edge_are_taken(numbers):
    bound = grpo(**numbers).policy_loss.keywords
    assert numbers.items() <= bound.items()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"lr": -1.0}, "critic lr must lie in"),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1.5"),
        ({"lam": -0.1}, "lam must lie in"),
        ({"lam_target": 2}, "lam_target must lie in"),
        ({"updates": 0}, "critic updates must be at least 1"),
        ({"warmup": -1}, "critic warmup must be at least 0"),
    ],
)
def test_a_critic_plan_out_of_range_is_named(numbers, message):
    with pytest.raises(ValueError, match=message):
        CriticPlan(**numbers)


@pytest.mark.parametrize("baseline", [group_advantage, group_mean_advantage, leave_one_out_advantage])
def test_a_group_of_one_with_a_group_baseline_is_refused(baseline):
    with pytest.raises(
        ValueError, match=rf"{baseline.__name__} compares .* group_size is 1: every advantage would be 0"
    ):
        grpo(group_size=1, group_advantage=baseline)


def test_a_group_of_one_without_a_group_baseline_is_fine():
    _run, metrics = one_step(grpo(group_size=1, group_advantage=batch_advantage))
    assert "group/reward_std" not in metrics and metrics["optim/update_norm"] > 0
    assert reinforce().group_size == ppo().group_size == 1


def test_values_without_a_critic_are_refused():
    with pytest.raises(
        ValueError, match=r"recipe grpo asks for values_BT but has no critic; give critic=CriticPlan"
    ):
        grpo(group_advantage=gae)


@pytest.mark.parametrize("critic", [None, 3])
def test_ppo_without_a_critic_is_refused(critic):
    with pytest.raises(ValueError, match=r"ppo needs a critic, as in critic=CriticPlan\(lr=1e-3\), not"):
        ppo(critic=critic)


# ---- binding


def test_bind_fixes_what_is_set_and_leaves_out_none():
    bound = bind(clipped_surrogate, eps_low=0.1, eps_high=None, delta=None)
    assert bound.keywords == {"eps_low": 0.1}
    assert bind(clipped_surrogate, delta=None) is clipped_surrogate


def test_a_loss_of_mine_may_lack_what_nobody_sets():
    def mine(ratio_BT, advantages_BT, eps_low, eps_high):
        return -ratio_BT.clamp(1 - eps_low, 1 + eps_high) * advantages_BT

    assert grpo(policy_loss=mine).policy_loss.keywords == {"eps_low": 0.2, "eps_high": 0.2}
    with pytest.raises(ValueError, match=r"mine has no parameter \['delta'\]; add it, or set it to None"):
        grpo(policy_loss=mine, delta=4.0)
    assert grpo(policy_loss=policy_gradient, eps_low=None, eps_high=None).policy_loss is policy_gradient
    with pytest.raises(ValueError, match=r"policy_gradient has no parameter \['eps_low', 'eps_high'\]"):
        grpo(policy_loss=policy_gradient)


def test_bind_if_there_skips_what_a_function_does_not_take():
    assert bind_if_there(gae, gamma=0.9, lam=0.8).keywords == {"gamma": 0.9, "lam": 0.8}
    assert bind_if_there(reward_to_go, gamma=0.9, lam=0.8).keywords == {"gamma": 0.9}
    assert bind_if_there(batch_advantage, gamma=0.9, lam=0.8) is batch_advantage


def test_ppo_hands_its_critics_gamma_and_lambda_to_gae():
    plain = ppo(critic=CriticPlan(gamma=0.5, lam=0.25), whiten=False).advantage
    assert plain.func is gae and plain.keywords == {"gamma": 0.5, "lam": 0.25}
    mine = ppo(advantage=functools.partial(gae, lam=1.0), whiten=False).advantage
    assert mine.keywords == {"lam": 1.0, "gamma": 1.0}  # what was bound already stays


# ---- whitening


@pytest.mark.parametrize("advantage", [gae, functools.partial(gae, gamma=0.5, lam=0.25)])
def test_whitened_asks_for_what_the_advantage_asks_for(advantage):
    asked = [name for name in wanted(whitened(advantage)) if name not in ("gamma", "lam")]
    assert asked == ["rewards_BT", "values_BT", "mask_BT", "finished_B", "bootstrap_B"]
    assert wanted(whitened(advantage), required=True) == wanted(advantage, required=True)


@pytest.mark.parametrize("advantage", [gae, functools.partial(gae, gamma=0.5, lam=0.25)])
def test_whitened_is_the_advantage_whitened_over_own_tokens(advantage):
    mask_BT = torch.tensor([[True, True, False], [True, True, True]])
    fields = {
        "rewards_BT": torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 2.0]]),
        "values_BT": torch.tensor([[0.3, 0.1, 0.0], [0.2, 0.4, 0.9]]),
        "mask_BT": mask_BT,
        "finished_B": torch.tensor([True, True]),
        "bootstrap_B": None,
        "group_size": 1,
    }
    result_BT = call(whitened(advantage), fields)
    torch.testing.assert_close(result_BT, masked_whiten(call(advantage, fields), mask_BT))
    assert abs(float(result_BT[mask_BT].mean())) < 1e-6
    assert not torch.equal(result_BT, call(advantage, fields))


def test_an_advantage_of_mine_that_takes_no_mask_is_whitened_too():
    def mine(rewards_BT, values_BT):
        return rewards_BT.sum(1, keepdim=True) - values_BT

    plan = CriticPlan(warmup=0)
    _run, metrics = one_step(ppo(advantage=mine, minibatches=2, critic=plan))
    assert metrics["optim/update_norm"] > 0
    assert "mask_BT" in inspect.signature(whitened(mine)).parameters


# ---- which rows can be left out


@pytest.mark.parametrize(
    ("recipe", "ignores"),
    [
        (grpo(), True),
        (grpo(delta=3.0), True),
        (grpo_recomputed(), True),
        (reinforce(), True),
        (grpo(policy_loss=policy_gradient, eps_low=None, eps_high=None), True),
        (ppo(), True),
        (grpo(kl_in_reward=k1, kl_coef=0.1), True),  # then the advantages themselves are no longer 0
        (grpo(kl=k3, kl_coef=0.1), False),
    ],
)
def test_a_dead_group_can_be_left_out_unless_a_kl_pulls_on_it(recipe, ignores):
    assert loss_ignores_zero_advantage(recipe) is ignores


@pytest.mark.parametrize(
    "loss",
    [
        lambda ratio_BT: ratio_BT,
        lambda ratio_BT, advantages_BT: -ratio_BT * (advantages_BT + 0.1),
        lambda logp_BT, advantages_BT: -logp_BT * (advantages_BT >= 0),
        lambda ratio_BT, advantages_BT, entropy_BT: (
            -ratio_BT * advantages_BT
        ),  # can't be tried without a model
    ],
)
def test_a_loss_that_pushes_at_advantage_zero_keeps_every_row(loss):
    recipe = Recipe(name="mine", advantage=group_advantage, policy_loss=loss)
    assert loss_ignores_zero_advantage(recipe) is False


# ---- side by side


def differences(a: Recipe, b: Recipe) -> set[str]:
    return {f.name for f in dataclasses.fields(Recipe) if getattr(a, f.name) is not getattr(b, f.name)} - {
        "policy_loss",
        "name",
    }


def test_grpo_and_grpo_recomputed_differ_in_the_ratio_alone():
    assert differences(grpo(), grpo_recomputed()) == {"ratio"}
    assert grpo().ratio is rollout_ratio and grpo_recomputed().ratio is importance_ratio
    assert grpo().policy_loss.func is grpo_recomputed().policy_loss.func is clipped_surrogate
    assert (
        grpo().policy_loss.keywords
        == grpo_recomputed().policy_loss.keywords
        == {"eps_low": 0.2, "eps_high": 0.2}
    )
    assert (grpo().name, grpo_recomputed().name) == ("grpo", "grpo_recomputed")
    assert grpo_recomputed(group_size=4, epochs=2).group_size == 4  # keywords go through


def test_ppo_and_grpo_share_ratio_and_loss_and_differ_in_the_rest():
    assert differences(grpo(), ppo()) == {
        "advantage",
        "aggregate",
        "group_size",
        "epochs",
        "minibatches",
        "critic",
    }
    assert ppo().policy_loss.func is clipped_surrogate
    assert (ppo().aggregate, grpo().aggregate) == (token_mean, sequence_mean)
    assert grpo().critic is None and ppo().updates == 8 and grpo().updates == 1


def test_reinforce_has_no_ratio_no_clip_and_no_baseline():
    recipe = reinforce()
    assert recipe.advantage is reward_to_go and recipe.policy_loss is policy_gradient
    assert recipe.aggregate is sequence_sum_mean and recipe.critic is None and recipe.weight is None


@pytest.mark.parametrize("make", [reinforce, ppo, grpo, grpo_recomputed])
def test_every_recipe_has_a_docstring_and_takes_keywords_only(make):
    assert make.__doc__
    kinds = {p.kind for p in inspect.signature(make).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    assert make().name == make.__name__


def test_a_recipe_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        grpo().group_size = 4
