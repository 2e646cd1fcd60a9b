"""Recipes: PPO and GRPO are the same loop with other functions in its slots. Read them side by side.

A recipe is a function whose keywords are the concepts and which returns a `Recipe`. Hand in your own function by
keyword, `grpo(group_advantage=mine)`, and it runs in the real trainer. A slot's function is called with the fields that
its parameters name, as pytest hands fixtures to a test. The fields:

    of the batch    mask_BT, turn_BT, tokens_BT, version_BT, logp_rollout_BT, finished_B, temperature, rewards_BT,
                    rewards_B, length_B, prompt_B, logp_old_BT, logp_ref_BT, values_BT, bootstrap_B, advantages_BT
    of the update   logp_BT, entropy_BT, ratio_BT, staleness_BT
    of the recipe   group_size

A field that no slot asks for is not computed: without `logp_ref_BT` there is no reference forward.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from grpo_lab.concepts.aggregate import sequence_mean, sequence_sum_mean, token_mean
from grpo_lab.concepts.clipped_surrogate import clipped_surrogate
from grpo_lab.concepts.gae import gae
from grpo_lab.concepts.group_advantage import group_advantage
from grpo_lab.concepts.importance_ratio import importance_ratio, rollout_ratio
from grpo_lab.concepts.masked import masked_whiten
from grpo_lab.concepts.policy_gradient import policy_gradient, reward_to_go
from grpo_lab.concepts.value_loss import value_loss
from grpo_lab.guard import require, require_count, require_range

BATCH_FIELDS = frozenset(
    "mask_BT turn_BT tokens_BT version_BT logp_rollout_BT finished_B temperature rewards_BT rewards_B length_B "
    "prompt_B logp_old_BT logp_ref_BT values_BT bootstrap_B group_size".split()
)
UPDATE_FIELDS = BATCH_FIELDS | {"advantages_BT", "logp_BT", "entropy_BT", "staleness_BT"}
SLOT_FIELDS = {
    "keep": BATCH_FIELDS,
    "advantage": BATCH_FIELDS,
    "kl_in_reward": BATCH_FIELDS
    | {"logp_BT"},  # there logp is logp_old: the reward is given before the update
    "ratio": UPDATE_FIELDS,
    "policy_loss": UPDATE_FIELDS | {"ratio_BT"},
    "weight": UPDATE_FIELDS | {"ratio_BT"},
    "kl": UPDATE_FIELDS | {"ratio_BT"},
    "aggregate": frozenset({"mask_BT"}),
}


@dataclasses.dataclass(frozen=True)
class CriticPlan:
    """How the critic is trained.

    lr, updates            learning rate; critic updates on each batch, before the policy's
    warmup                 batches on which only the critic learns, before the policy's first update
    gamma, lam             discount and lambda of the advantages (gae reads them)
    lam_target             lambda of the critic's own target: 1 is the return itself (Monte Carlo)
    value_loss             (values_BT, returns_BT, mask_BT[, values_old_BT]) -> loss_BT
    frozen                 parts of parameter names that are not trained, as in ("attn",); text within the name counts
    bootstrap              True: an answer that was cut off goes on with the critic's value of its last state.
                           False: the limit is a rule of the task, and a cut-off answer has ended there
    """

    lr: float = 1e-3
    updates: int = 1
    warmup: int = 0
    gamma: float = 1.0
    lam: float = 0.95
    lam_target: float = 1.0
    value_loss: Callable = value_loss
    frozen: tuple[str, ...] = ()
    bootstrap: bool = False

    def __post_init__(self):
        require_range("critic lr", self.lr, 0, float("inf"), high_open=True)
        require_range("gamma", self.gamma, 0, 1)
        require_range("lam", self.lam, 0, 1)
        require_range("lam_target", self.lam_target, 0, 1)
        require_count("critic updates", self.updates)
        require_count("critic warmup", self.warmup, 0)
        require(
            not isinstance(self.frozen, str) and all(isinstance(part, str) for part in self.frozen),
            f"frozen is a tuple of parts of parameter names, ('attn',) say, not {self.frozen!r}",
        )
        object.__setattr__(self, "frozen", tuple(self.frozen))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The slots. loss_BT = weight * policy_loss(ratio, A) + kl_coef * kl, summed with the weights of `aggregate`.

    advantage      fields -> (B,) or (B, T); no gradient
    ratio          fields -> ratio_BT; which policy stands below the line is its choice
    policy_loss    fields -> loss_BT, to be minimised
    weight         fields -> a factor on policy_loss, (B, T), or None
    kl             fields -> kl_BT, added to the loss; kl_in_reward: the same, subtracted from the reward
    aggregate      mask_BT -> weights_BT, on the whole minibatch, before dead rows are left out
    keep           fields -> bool (B,): which rows to learn from, or None for all. The others are gone from every
                   denominator, but were counted in the advantages and the metrics of the batch
    group_size, epochs, minibatches   minibatches are whole groups
    critic         a CriticPlan, or None
    """

    name: str
    advantage: Callable
    ratio: Callable = importance_ratio
    policy_loss: Callable = clipped_surrogate
    weight: Callable | None = None
    kl: Callable | None = None
    kl_in_reward: Callable | None = None
    kl_coef: float = 0.0
    aggregate: Callable = sequence_mean
    keep: Callable | None = None
    group_size: int = 8
    epochs: int = 1
    minibatches: int = 1
    critic: CriticPlan | None = None

    def __post_init__(self):
        require_count("group_size", self.group_size)
        require_count("epochs", self.epochs)
        require_count("minibatches", self.minibatches)
        require_range("kl_coef", self.kl_coef, 0, float("inf"))
        has_kl = self.kl is not None or self.kl_in_reward is not None
        require(
            has_kl == (self.kl_coef > 0),
            f"kl_coef is {self.kl_coef} but "
            + (
                "a KL function was given: give it a weight"
                if has_kl
                else "no KL function was given: it would do nothing"
            ),
        )
        for slot in ("advantage", "ratio", "policy_loss", "aggregate"):
            given = getattr(self, slot) is not None
            require(given, f"{slot} is None, and a recipe can't do without; leave it out for the default")
        for slot, function in self.slots().items():
            require(callable(function), f"{slot} must be a function, not {function!r}")
            unknown = [n for n in wanted(function, required=True) if n not in SLOT_FIELDS[slot]]
            require(
                not unknown,
                f"{slot}={name_of(function)} asks for {unknown}, which the trainer doesn't have there; "
                f"it can have {sorted(SLOT_FIELDS[slot])}. A hyperparameter needs a default value",
            )
        require(
            self.critic is not None or not self.asks("values_BT"),
            f"recipe {self.name} asks for values_BT but has no critic; give critic=CriticPlan(...)",
        )
        require(
            self.group_size > 1 or "group_size" not in wanted(self.advantage, required=True),
            f"{name_of(self.advantage)} compares an answer with the others of its group, and group_size is 1: every "
            "advantage would be 0. Take a larger group, a critic, or batch_advantage",
        )

    def slots(self) -> dict[str, Callable]:
        return {slot: getattr(self, slot) for slot in SLOT_FIELDS if getattr(self, slot) is not None}

    def asks(self, field: str, *slots: str) -> bool:
        """Whether any slot (of those named, or of all) takes this field. A ratio that nobody reads asks for nothing."""
        used = self.slots()
        if field != "ratio_BT" and not self.asks("ratio_BT"):
            del used["ratio"]
        return any(field in wanted(f) for slot, f in used.items() if not slots or slot in slots)

    @property
    def updates(self) -> int:
        """Optimiser steps on each batch."""
        return self.epochs * self.minibatches


@functools.lru_cache(maxsize=512)
def _parameters(function: Callable) -> tuple[tuple[str, bool], ...]:
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return tuple(
        (p.name, p.default is p.empty)
        for p in inspect.signature(function).parameters.values()
        if p.name not in bound and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )


def wanted(function: Callable, *, required: bool = False) -> list[str]:
    """The parameter names of a slot's function; what `functools.partial` has bound already is not among them."""
    return [name for name, needed in _parameters(function) if needed or not required]


def name_of(function: Callable) -> str:
    return getattr(function, "__name__", None) or name_of(getattr(function, "func", type(function)))


def call(function: Callable, fields: dict[str, Any]) -> Any:
    """The function, with those fields that its parameters name."""
    return function(**{name: fields[name] for name in wanted(function) if name in fields})


def fingerprint(value: Any, seen: frozenset[int] = frozenset()) -> str:
    """Text that changes when a function does: its source, bound keywords, what it closes over, and the functions and
    plain numbers of its own module that it uses. Objects count by their class and attributes."""
    if id(value) in seen:
        return "above"
    seen = seen | {id(value)}
    if isinstance(value, functools.partial):
        bound = [(name, fingerprint(v, seen)) for name, v in sorted(value.keywords.items())]
        return (
            f"partial({fingerprint(value.func, seen)}, {[fingerprint(v, seen) for v in value.args]}, {bound})"
        )
    if inspect.isfunction(value):
        closed = [fingerprint(cell.cell_contents, seen) for cell in value.__closure__ or ()]
        defaults = [fingerprint(v, seen) for v in (value.__defaults__, value.__kwdefaults__)]
        used = [(n, value.__globals__[n]) for n in value.__code__.co_names if n in value.__globals__]
        plain = (bool, int, float, str)
        used = [
            (name, fingerprint(v, seen))
            for name, v in used
            if isinstance(v, plain) or (inspect.isfunction(v) and v.__module__ == value.__module__)
        ]
        return f"{value.__qualname__} {_source(value)} {defaults} {closed} {used}"
    if isinstance(value, (list, tuple)):
        return str([fingerprint(v, seen) for v in value])
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return repr(value)
    attributes = [(name, fingerprint(v, seen)) for name, v in sorted(vars(value).items())]
    return f"{type(value).__qualname__} {_source(type(value))} {attributes}"


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):  # typed at a prompt, or made by exec
        code = getattr(value, "__code__", None)
        return code.co_code.hex() + repr(code.co_consts) if code else repr(value)


def bind(function: Callable, **hyperparameters) -> Callable:
    """The function with its hyperparameters fixed; one that it doesn't have is an error if it isn't the default.

    A learner's own function may leave out what it doesn't need, `delta` say, as long as nobody sets it.
    """
    has = wanted(function)
    missing = [name for name, value in hyperparameters.items() if value is not None and name not in has]
    require(
        not missing,
        f"{name_of(function)} has no parameter {missing}; add it, or set it to None in the recipe",
    )
    fixed = {name: value for name, value in hyperparameters.items() if value is not None}
    return functools.partial(function, **fixed) if fixed else function


def clip(
    policy_loss: Callable, eps_low: float | None, eps_high: float | None, delta: float | None
) -> Callable:
    """A policy loss with its bounds 1 - eps_low, 1 + eps_high and delta fixed. None: that bound is off.

    Raises: ValueError for a bound out of its range: here, and not after minutes of warm start.
    """
    if eps_low is not None:
        require_range("eps_low", eps_low, 0, 1)
    if eps_high is not None:
        require_range("eps_high", eps_high, 0, float("inf"))
    if delta is not None:
        require_range("delta", delta, 1 + (eps_high or 0), float("inf"), low_open=True)
    # None reaches a function that has the parameter as "off" (a ratio is never below 1 - 1 = 0), and is no reason to
    # complain about one that lacks it.
    has = wanted(policy_loss)
    off = {name: value for name, value in (("eps_low", 1.0), ("eps_high", float("inf"))) if name in has}
    given = {"eps_low": eps_low, "eps_high": eps_high, "delta": delta}
    return bind(
        policy_loss, **{name: off.get(name) if value is None else value for name, value in given.items()}
    )


def whitened(advantage: Callable) -> Callable:
    """The advantages of `advantage` (B, T), with mean 0 and deviation 1 over the own tokens of the batch."""

    @functools.wraps(advantage)
    def inner(**fields) -> Tensor:
        return masked_whiten(call(advantage, fields), fields["mask_BT"])

    signature = inspect.signature(advantage)
    if "mask_BT" not in signature.parameters:  # whitening needs it, whether the advantage does or not
        mask = inspect.Parameter("mask_BT", inspect.Parameter.KEYWORD_ONLY)
        signature = signature.replace(parameters=[*signature.parameters.values(), mask])
    inner.__signature__ = signature
    return inner


def reinforce(
    *,
    advantage: Callable = reward_to_go,
    policy_loss: Callable = policy_gradient,
    kl: Callable | None = None,
    kl_in_reward: Callable | None = None,
    kl_coef: float = 0.0,
    aggregate: Callable = sequence_sum_mean,
    group_size: int = 1,
) -> Recipe:
    """REINFORCE: every token is pushed by the reward that came after it. No ratio, no clip, no baseline.

    Source: R. J. Williams, 1992, Machine Learning 8, 229-256, https://doi.org/10.1007/BF00992696
    """
    return Recipe(
        name="reinforce",
        advantage=advantage,
        policy_loss=policy_loss,
        kl=kl,
        kl_in_reward=kl_in_reward,
        kl_coef=kl_coef,
        aggregate=aggregate,
        group_size=group_size,
    )


def ppo(
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float | None = None,
    advantage: Callable = gae,
    whiten: bool = True,
    ratio: Callable = rollout_ratio,
    policy_loss: Callable = clipped_surrogate,
    kl: Callable | None = None,
    kl_in_reward: Callable | None = None,
    kl_coef: float = 0.0,
    aggregate: Callable = token_mean,
    keep: Callable | None = None,
    group_size: int = 1,
    epochs: int = 2,
    minibatches: int = 4,
    critic: CriticPlan = CriticPlan(lr=1e-3, updates=2, warmup=20),
) -> Recipe:
    """PPO: a critic says what each state is worth, and the clip lets one batch serve several updates.

    The ratio is to the policy that sampled, as in the paper. Advantages are whitened over the batch.
    Source: J. Schulman et al., 2017, https://arxiv.org/abs/1707.06347
    """
    require(
        isinstance(critic, CriticPlan),
        f"ppo needs a critic, as in critic=CriticPlan(lr=1e-3), not {critic!r}",
    )
    advantage = bind_if_there(advantage, gamma=critic.gamma, lam=critic.lam)
    return Recipe(
        name="ppo",
        advantage=whitened(advantage) if whiten else advantage,
        ratio=ratio,
        policy_loss=clip(policy_loss, eps_low, eps_high, delta),
        kl=kl,
        kl_in_reward=kl_in_reward,
        kl_coef=kl_coef,
        aggregate=aggregate,
        keep=keep,
        group_size=group_size,
        epochs=epochs,
        minibatches=minibatches,
        critic=critic,
    )


def grpo(
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float | None = None,
    group_advantage: Callable = group_advantage,
    ratio: Callable = rollout_ratio,
    policy_loss: Callable = clipped_surrogate,
    weight: Callable | None = None,
    kl: Callable | None = None,
    kl_in_reward: Callable | None = None,
    kl_coef: float = 0.0,
    aggregate: Callable = sequence_mean,
    keep: Callable | None = None,
    group_size: int = 8,
    epochs: int = 1,
    minibatches: int = 1,
) -> Recipe:
    """GRPO: the other answers to the same prompt are the yardstick, and there is no critic.

    The ratio is to the policy that sampled, as in PPO and in the paper. The paper's own settings add
    kl=k3, kl_coef=0.04; here there is no KL unless it is asked for.
    Source: Z. Shao et al., 2024, equation 3, https://arxiv.org/abs/2402.03300
    """
    return Recipe(
        name="grpo",
        advantage=group_advantage,
        ratio=ratio,
        policy_loss=clip(policy_loss, eps_low, eps_high, delta),
        weight=weight,
        kl=kl,
        kl_in_reward=kl_in_reward,
        kl_coef=kl_coef,
        aggregate=aggregate,
        keep=keep,
        group_size=group_size,
        epochs=epochs,
        minibatches=minibatches,
    )


def grpo_recomputed(*, ratio: Callable = importance_ratio, **keywords) -> Recipe:
    """GRPO whose pi_old is recomputed with the current weights just before the update.

    With one update a batch its ratio is exactly 1 however stale the samples are, so its clip can't act. The keywords
    are those of `grpo`.
    """
    return dataclasses.replace(grpo(ratio=ratio, **keywords), name="grpo_recomputed")


def bind_if_there(function: Callable, **hyperparameters) -> Callable:
    """Like `bind`, for hyperparameters that a function may do without: an advantage that takes no gamma, say."""
    return bind(function, **{k: v for k, v in hyperparameters.items() if k in wanted(function)})


def loss_ignores_zero_advantage(recipe: Recipe) -> bool:
    """Whether a row whose advantages are all 0 may be left out: it gets no gradient and changes that of no other row.

    Tried at each step on two made-up rows, not assumed: a learner's loss may be anything. Where it takes a field that
    can't be made up here the answer is no. A KL term in the loss always pulls, dead group or not.
    """
    if recipe.kl is not None:
        return False
    functions = [f for f in (recipe.policy_loss, recipe.weight) if f is not None]
    fields = ("logp_BT", "ratio_BT", "mask_BT", "advantages_BT")
    if any(
        name in SLOT_FIELDS["policy_loss"] and name not in fields for f in functions for name in wanted(f)
    ):
        return False
    alive, dead = [0.7, -1.3, 0.4, -0.2, 1.1], [0.0] * 5

    def slopes(advantages: list[list[float]]) -> Tensor | None:
        logp_BT = torch.tensor([[-0.1, -0.7, -1.5, -3.0, -6.0]] * len(advantages), requires_grad=True)
        offset_T = torch.tensor([0.0, 0.5, -0.5, 2.0, -2.0])
        ratio_BT = (logp_BT - logp_BT.detach() + offset_T).exp()
        mask_BT = torch.ones_like(logp_BT, dtype=torch.bool)
        given = dict(zip(fields, (logp_BT, ratio_BT, mask_BT, torch.tensor(advantages)), strict=True))
        losses = [call(f, given) for f in functions]
        if not all(isinstance(loss, Tensor) and loss.shape == logp_BT.shape for loss in losses):
            return None  # the trainer will say what is wrong with it
        loss = torch.stack(losses).prod(0).sum()
        return torch.autograd.grad(loss, logp_BT)[0] if loss.requires_grad else torch.zeros_like(logp_BT)

    with torch.enable_grad():
        together, alone = slopes([alive, dead]), slopes([alive])
    return together is not None and not together[1].any() and torch.equal(together[0], alone[0])
