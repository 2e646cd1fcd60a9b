"""What a training step reports: each number with formula, unit and healthy range. `print(glossary())` shows all."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Metric:
    formula: str
    unit: str
    healthy: str


GLOSSARY = {
    "step": Metric(
        "policy updates done (one a batch, whatever its epochs and minibatches)", "updates", "grows by 1"
    ),
    "reward/mean": Metric("mean over rows of the sum of rewards_BT", "reward", "rises; the number to watch"),
    "reward/std": Metric(
        "standard deviation over all rows of the batch, ddof 1", "reward", "near 0 at both ends"
    ),
    "group/reward_std": Metric(
        "mean over groups of the deviation inside a group, ddof 1", "reward", "above 0"
    ),
    "group/zero_variance_frac": Metric(
        "share of groups whose rewards are all equal", "0 to 1", "below about 0.5"
    ),
    "eval/accuracy": Metric(
        "mean reward on 2,000 fixed held-out prompts, one sample each, temperature 1", "reward", "rises"
    ),
    "eval/greedy_accuracy": Metric(
        "the same with the most likely token each time", "reward", "above eval/accuracy"
    ),
    "response/length": Metric(
        "mean own tokens a row, end tokens included", "tokens", "no drift without a reason"
    ),
    "response/cut_off_frac": Metric("share of rows that did not end by themselves", "0 to 1", "near 0"),
    "policy/loss": Metric(
        "sum of loss_BT * weights_BT, mean over updates", "-", "near 0; no sign of progress"
    ),
    "policy/entropy": Metric(
        "mean over trained own tokens of -sum p log p", "nats", "falls slowly, not to 0"
    ),
    "policy/ratio_mean": Metric("mean of the ratio the recipe uses, trained own tokens", "-", "near 1"),
    "policy/ratio_max": Metric("largest ratio the recipe uses", "-", "below about 10"),
    "policy/clip_frac": Metric(
        "share of trained own tokens with A != 0 whose policy loss has gradient exactly 0",
        "0 to 1",
        "0 to 0.3",
    ),
    "policy/clip_frac_high": Metric("the part of clip_frac with ratio above 1", "0 to 1", "0 to 0.3"),
    "policy/clip_frac_low": Metric("the part of clip_frac with ratio below 1", "0 to 1", "0 to 0.3"),
    "policy/masked_frac": Metric(
        "share of trained own tokens with gradient exactly 0 although a one-sided clip would keep them "
        "(A > 0 and ratio < 1, or A < 0 and ratio > 1)",
        "0 to 1",
        "0 for PPO and GRPO",
    ),
    "policy/ess": Metric(
        "(sum w)^2 / (n sum w^2), w = pi / pi_rollout on trained own tokens", "0 to 1", "above 0.5"
    ),
    "policy/kl_rollout": Metric(
        "mean of r - 1 - log r, r = pi / pi_rollout: an estimate of KL(rollout || pi)", "nats", "below 0.05"
    ),
    "policy/kl_ref": Metric(
        "mean of k1 to the reference, own tokens, before the update", "nats", "grows slowly"
    ),
    "value/loss": Metric("mean value loss over own tokens, last critic update", "reward^2", "falls"),
    "value/explained_variance": Metric(
        "1 - Var(returns - values) / Var(returns), own tokens, before the update", "up to 1", "above 0"
    ),
    "value/grad_norm": Metric(
        "gradient norm of the critic before clipping, mean over its updates", "-", "no spikes"
    ),
    "value/critic_only_steps": Metric(
        "batches so far on which only the critic learned", "batches", "stops at warm-up"
    ),
    "rollout/staleness": Metric(
        "mean over own tokens of step - version, before the update", "updates", "the lag"
    ),
    "rollout/staleness_max": Metric("the largest of them", "updates", "the lag"),
    "rollout/queued": Metric(
        "prompts that wait in the queue after the update", "prompts", "lag x prompts a batch"
    ),
    "optim/grad_norm": Metric(
        "gradient norm of the policy before clipping, mean over updates", "-", "no spikes"
    ),
    "optim/clipped_frac": Metric(
        "share of this step's updates whose gradient norm was above the limit",
        "0 to 1",
        "any; 1 is a hidden trust region",
    ),
    "optim/update_norm": Metric("L2 norm of the change of all policy weights in this step", "-", "steady"),
    "optim/lr": Metric("learning rate of the policy", "-", "-"),
    "batch/trained_frac": Metric(
        "share of rows that went through the training forward (dead groups may stay out)",
        "0 to 1",
        "above 0.5",
    ),
    "count/rollouts": Metric("answers written so far, evaluation not counted", "answers", "-"),
    "count/tokens_generated": Metric("own tokens written so far", "tokens", "-"),
    "count/tokens_trained": Metric(
        "own tokens that went through a training forward so far, each time counted", "tokens", "-"
    ),
    "count/updates": Metric("optimiser steps of the policy so far", "updates", "-"),
    "time/rollout": Metric(
        "writing and judging the answers (not in the CSV; totals in the .json)", "seconds", "-"
    ),
    "time/train": Metric("scoring and updates (not in the CSV; totals in the .json)", "seconds", "-"),
}


def glossary(names: Iterable[str] | None = None) -> str:
    """The glossary as text, whole or for these metrics. Raises: KeyError for a metric that doesn't exist."""
    lines = []
    for name in names if names is not None else GLOSSARY:
        if name not in GLOSSARY:
            raise KeyError(f"there is no metric {name!r}; the metrics are {', '.join(GLOSSARY)}")
        metric = GLOSSARY[name]
        lines.append(f"{name:26s} {metric.formula} [{metric.unit}]; healthy: {metric.healthy}")
    return "\n".join(lines)
