"""A check for each concept: `gae = check_gae(gae, otherwise=given_gae)` says what is right or wrong with *your* gae.

Right: it says so, notes it in your progress, and returns your function, and from then on the chapter runs yours.
Wrong, or not written yet: it names the mistake and returns `otherwise`, the package's function, so that the chapter
goes on. Your own cell is never overwritten; change it and run both cells again.

A check compares with numbers worked by hand (`grpo_lab/teach/answers`), never with the package's function. What it
prints depends on your function alone, not on what you did before.
"""

import textwrap
from collections.abc import Callable

from grpo_lab.teach import progress
from grpo_lab.teach.judge import judge
from grpo_lab.teach.probes import PROBES


def _is_the_same(function: Callable, otherwise: Callable) -> bool:
    """Whether this is the package's function: the name points to it after a failed check."""
    code, other = getattr(function, "__code__", None), getattr(otherwise, "__code__", None)
    return function is otherwise or (code is not None and code is other)


def _say(text: str) -> None:
    """Print in lines that a notebook doesn't have to break in the middle of a word."""
    print(textwrap.fill(text, width=79, break_long_words=False, break_on_hyphens=False))


def _check(name: str) -> Callable[..., Callable]:
    def check(function: Callable, *, otherwise: Callable) -> Callable:
        if not callable(function):
            _say(f"{name} should be a function, but it is {function!r}. Run the cell that defines it first.")
            return otherwise
        if _is_the_same(function, otherwise):
            _say(
                f"{name}: this is the package's function, not yours: an earlier check put it there. "
                f"Run your own cell first, the one with `def {name}`, then this one."
            )
            return otherwise
        probes = PROBES[name]
        try:
            finding = judge(function, probes)
        except NotImplementedError:
            _say(f"{name} is not written yet. Until it is, the chapter goes on with the package's.")
            return otherwise
        if finding is None:
            _say(
                f"{name} is right: {len(probes)} of {len(probes)} probes. From here on the chapter runs yours."
            )
            progress.record("checks", name, {"passed": True})
            return function
        _say(f"{name} is not right yet. {finding.sentence}")
        if finding.numbers:
            print(finding.numbers)
        _say("Until it is, the chapter goes on with the package's.")
        return otherwise

    check.__name__ = check.__qualname__ = f"check_{name}"
    check.__doc__ = f"Judge a learner's `{name}`: theirs comes back if it is right, else `otherwise`."
    return check


check_masked_sum = _check("masked_sum")
check_masked_mean = _check("masked_mean")
check_masked_var = _check("masked_var")
check_masked_whiten = _check("masked_whiten")
check_token_logprobs = _check("token_logprobs")
check_policy_gradient = _check("policy_gradient")
check_reward_to_go = _check("reward_to_go")
check_importance_ratio = _check("importance_ratio")
check_rollout_ratio = _check("rollout_ratio")
check_reference_ratio = _check("reference_ratio")
check_sequence_ratio = _check("sequence_ratio")
check_sequence_rollout_ratio = _check("sequence_rollout_ratio")
check_product_ratio = _check("product_ratio")
check_group_advantage = _check("group_advantage")
check_group_mean_advantage = _check("group_mean_advantage")
check_leave_one_out_advantage = _check("leave_one_out_advantage")
check_batch_std_advantage = _check("batch_std_advantage")
check_batch_advantage = _check("batch_advantage")
check_gae = _check("gae")
check_clipped_surrogate = _check("clipped_surrogate")
check_value_loss = _check("value_loss")
check_sequence_mean = _check("sequence_mean")
check_token_mean = _check("token_mean")
check_constant_mean = _check("constant_mean")
check_sequence_sum_mean = _check("sequence_sum_mean")
check_weighted_sum = _check("weighted_sum")
check_k1 = _check("k1")
check_k2 = _check("k2")
check_k3 = _check("k3")
check_corrected_k3 = _check("corrected_k3")
check_exact_kl = _check("exact_kl")
check_effective_sample_size = _check("effective_sample_size")
check_entropy = _check("entropy")
check_explained_variance = _check("explained_variance")
check_clip_fraction = _check("clip_fraction")
check_quadrant_fractions = _check("quadrant_fractions")
check_masked_fraction = _check("masked_fraction")
check_parameter_change = _check("parameter_change")
check_zero_variance_fraction = _check("zero_variance_fraction")
