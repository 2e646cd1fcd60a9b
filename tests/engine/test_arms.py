"""Arms as text: what is written is what runs, and a slip of the pen gets the nearest right word."""

import dataclasses
import functools

import pytest

from grpo_lab.concepts.aggregate import sequence_mean, token_mean
from grpo_lab.concepts.gae import gae
from grpo_lab.concepts.group_advantage import batch_advantage, leave_one_out_advantage
from grpo_lab.concepts.importance_ratio import importance_ratio, rollout_ratio, sequence_ratio
from grpo_lab.concepts.kl import k1, k3
from grpo_lab.engine.arms import ARM_KEYS, Arm, concept_functions, parse_arm, parse_value, recipe_makers
from grpo_lab.engine.recipes import CriticPlan, Recipe, grpo, ppo


def settings(arm: Arm) -> dict:
    """What can be compared of an arm: partials aren't equal to each other."""

    def plain(value):
        return (value.func, value.keywords) if isinstance(value, functools.partial) else value

    values = {
        f.name: plain(getattr(arm.recipe, f.name))
        for f in dataclasses.fields(Recipe)
        if f.name != "advantage"
    }
    return values | {k: getattr(arm, k) for k in ARM_KEYS}


def test_a_name_alone_is_a_recipe_with_its_own_defaults():
    label, arm = parse_arm("grpo")
    assert label == "grpo" and arm.text == "grpo"
    assert settings(arm) == settings(Arm(grpo()))


def test_keys_of_the_arm_and_of_the_recipe_are_told_apart():
    text = "slow=grpo_recomputed:lag=8,lr=1.5e-4,preset=XS,batch_size=64,temperature=0.7,max_grad_norm=none"
    text += ",group_size=4,eps_high=0.28"
    label, arm = parse_arm(text)
    assert label == "slow" and arm.text == text
    assert (arm.lag, arm.lr, arm.preset, arm.batch_size, arm.temperature, arm.max_grad_norm) == (
        8,
        1.5e-4,
        "XS",
        64,
        0.7,
        None,
    )
    assert arm.recipe.name == "grpo_recomputed" and arm.recipe.ratio is importance_ratio
    assert arm.recipe.group_size == 4
    assert arm.recipe.policy_loss.keywords == {"eps_low": 0.2, "eps_high": 0.28}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("grpo:aggregate=token_mean", {"aggregate": token_mean}),
        ("grpo:kl=k3,kl_coef=0.04", {"kl": k3, "kl_coef": 0.04}),
        ("grpo:kl_in_reward=k1,kl_coef=0.04,kl=none", {"kl": None, "kl_in_reward": k1, "kl_coef": 0.04}),
        ("grpo:ratio=sequence_ratio", {"ratio": sequence_ratio}),
        ("grpo:group_advantage=leave_one_out_advantage", {"advantage": leave_one_out_advantage}),
        (
            "grpo:group_size=1,group_advantage=batch_advantage",
            {"advantage": batch_advantage, "group_size": 1},
        ),
        ("grpo:epochs=2,minibatches=4", {"epochs": 2, "minibatches": 4, "aggregate": sequence_mean}),
        ("ppo:whiten=false,ratio=importance_ratio", {"ratio": importance_ratio}),
        ("reinforce:group_size=2", {"group_size": 2}),
    ],
)
def test_values_reach_their_slot(text, wanted):
    recipe = parse_arm(text)[1].recipe
    assert {name: getattr(recipe, name) for name in wanted} == wanted


def test_whiten_false_is_a_truth_value_and_not_a_word():
    assert parse_arm("ppo:whiten=false")[1].recipe.advantage.func is gae
    assert not hasattr(parse_arm("ppo:whiten=true")[1].recipe.advantage, "func")


def test_the_critic_is_set_by_its_own_keys_and_keeps_the_rest():
    plan = parse_arm("ppo:critic.warmup=5,critic.lr=2e-3,critic.bootstrap=true")[1].recipe.critic
    assert plan == dataclasses.replace(ppo().critic, warmup=5, lr=2e-3, bootstrap=True)
    assert plan.updates == 2 != CriticPlan().updates  # PPO's default, not the plan's


def test_defaults_fill_what_the_text_leaves_open():
    _, arm = parse_arm("grpo:lag=2", lag=9, lr=1e-5, group_size=4, max_grad_norm=None)
    assert (arm.lag, arm.lr, arm.recipe.group_size, arm.max_grad_norm) == (2, 1e-5, 4, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2", -2),
        ("1.5e-4", 1.5e-4),
        ("inf", float("inf")),
        ("true", True),
        ("False", False),
        ("none", None),
        ("None", None),
        ("XS", "XS"),
        ("token_mean", token_mean),
        ("rollout_ratio", rollout_ratio),
    ],
)
def test_values_are_read_as_what_they_look_like(text, value):
    read = parse_value(text)
    assert read == value and type(read) is type(value)


def test_spaces_around_a_key_and_a_value_and_an_empty_tail_are_harmless():
    assert settings(parse_arm("grpo: lag = 3 , lr = 1e-4")[1]) == settings(Arm(grpo(), lag=3, lr=1e-4))
    assert settings(parse_arm("grpo:")[1]) == settings(Arm(grpo()))


def test_all_recipes_and_all_concepts_are_known_by_name():
    assert list(recipe_makers()) == ["reinforce", "ppo", "grpo", "grpo_recomputed"]
    functions = concept_functions()
    assert {"group_advantage", "gae", "k1", "k2", "k3", "token_mean", "sequence_ratio"} <= functions.keys()
    assert not any(name.startswith(("_", "require")) for name in functions)
    assert all(functions[name].__name__ == name for name in functions)


# ---- mistakes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gropo",
            r"there is no arm 'gropo' \(did you mean 'grpo'\?\); the arms are reinforce, ppo, grpo, grpo_recomputed",
        ),
        ("", "there is no arm ''; the arms are reinforce"),
        ("label=", "there is no arm ''"),
        ("zzz", "there is no arm 'zzz'; the arms are"),
        ("grpo:lagg=3", r"has no key \['lagg'\] \(did you mean 'lag'\?\); it knows lag, lr, preset"),
        ("grpo:epsilon_high=3", r"has no key \['epsilon_high'\] \(did you mean 'eps_high'\?\)"),
        ("grpo:recipe=3", r"has no key \['recipe'\]"),
        ("reinforce:eps_low=0.2", r"has no key \['eps_low'\]"),
        (
            "grpo:aggregate=tokn_mean",
            r"'tokn_mean' is no number, no preset, and no concept's function \(did you mean 'token_mean'\?\)",
        ),
        ("grpo:lr=fast", "'fast' is no number"),
        ("grpo:preset=XXL", "'XXL' is no number, no preset"),
        ("grpo:preset=3", "there is no preset 3; the presets are XS, S, M, L"),
        ("grpo:lag", "'lag' in arm 'grpo:lag' should be key=value"),
        ("grpo:lag=", "'lag=' in arm 'grpo:lag=' should be key=value"),
        ("grpo:critic.lr=1e-3", "arm 'grpo:critic.lr=1e-3' has no critic"),
        ("ppo:critic.speed=1", r"critic has no \['speed'\]; it has lr, updates, warmup"),
        ("ppo:critic.warmup=-1", "critic warmup must be at least 0"),
        ("ppo:critic=none", "ppo needs a critic"),
        ("grpo:aggregate=none", "aggregate is None"),
        ("grpo:aggregate=3", "aggregate must be a function, not 3"),
        ("grpo:aggregate=k3", r"aggregate=k3 asks for \['logp_BT', 'logp_ref_BT'\]"),
        ("grpo:group_advantage=gae", "asks for values_BT but has no critic"),
        ("grpo:lag=-1", "arm 'grpo:lag=-1': lag counts policy updates: a whole number of at least 0, not -1"),
        ("grpo:lag=1.5", "lag counts policy updates: a whole number of at least 0, not 1.5"),
        ("grpo:lag=true", "lag counts policy updates"),
        ("grpo:lr=-1e-4", "lr must lie in"),
        ("grpo:lr=nan", "lr must lie in"),
        ("grpo:lr=none", "lr must be a Python number"),
        ("grpo:temperature=0", "temperature must lie in"),
        ("grpo:max_grad_norm=0", "max_grad_norm must lie in"),
        ("grpo:batch_size=0", "batch_size must be at least 1"),
        ("grpo:batch_size=100", "a batch of 100 answers can't be cut into groups of 8"),
        ("grpo:group_size=3", "a batch of 128 answers can't be cut into groups of 3"),
        ("grpo:group_size=1", "group_size is 1: every advantage would be 0"),
        ("grpo:eps_low=2", r"eps_low must lie in \[0, 1\], got 2"),
        ("grpo:kl=k3", "kl_coef is 0.0 but a KL function was given"),
        ("grpo:kl_coef=0.1", "no KL function was given"),
    ],
)
def test_a_slip_is_one_clear_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse_arm(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("label", ["a/b", "../up", "a b", "a\\b", "a:b=grpo", "x=y", "*", "\n"])
def test_a_label_that_is_no_file_name_is_refused(label):
    with pytest.raises(ValueError, match="becomes a file name|there is no arm"):
        parse_arm(f"{label}=grpo")


@pytest.mark.parametrize("label", ["lag-8", "lr_1.5e-4", "G16", "größer"])
def test_labels_may_have_letters_digits_dots_and_dashes(label):
    assert parse_arm(f"{label}=grpo:lag=1")[0] == label


def test_an_arm_made_in_python_is_held_to_the_same_rules():
    with pytest.raises(ValueError, match="can't be cut into groups of 8"):
        Arm(grpo(), batch_size=12)
    with pytest.raises(ValueError, match="lag counts policy updates"):
        Arm(grpo(), lag=-1)
    with pytest.raises(ValueError, match="there is no preset 'XXL'"):
        Arm(grpo(), preset="XXL")
