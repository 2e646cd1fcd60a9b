"""The loop. One `step` is: start rollouts, take a batch from the queue, judge it, score it, update, commit.

A step is a transaction. Whatever stops it half-way (an interrupt, a NaN, an error in a learner's function), the run is
left as it was before the step, queue and random numbers included, and can go on. During the commit itself an interrupt
is held back.
"""

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from grpo_lab.concepts.aggregate import weighted_sum
from grpo_lab.concepts.diagnostics import (
    effective_sample_size,
    explained_variance,
    parameter_change,
    zero_variance_fraction,
)
from grpo_lab.concepts.gae import gae
from grpo_lab.concepts.importance_ratio import rollout_ratio
from grpo_lab.concepts.kl import k1, k3
from grpo_lab.concepts.policy_gradient import reward_to_go
from grpo_lab.engine.batch import Batch, widen
from grpo_lab.engine.device import choose_device
from grpo_lab.engine.policy import Critic, Policy
from grpo_lab.engine.recipes import (
    Recipe,
    call,
    loss_ignores_zero_advantage,
    name_of,
)
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.staleness import Arrivals, Queue, lag
from grpo_lab.engine.tasks import Task, rewards_of
from grpo_lab.guard import require, require_count, require_range

EVAL_PROMPTS = 2000
EVAL_SEED = 20_000
COUNTERS = ("rollouts", "tokens_generated", "tokens_trained", "updates")


class NonFiniteError(FloatingPointError):
    """A nan or inf where none may be. The run is as it was before the step that met it."""


@dataclasses.dataclass
class Run:
    """All that changes while a policy is trained, and so all that a checkpoint holds."""

    policy: Policy
    task: Task
    seed: int
    lr: float
    batch_size: int
    temperature: float
    max_grad_norm: float | None
    micro_batch: int | None
    optimizer: torch.optim.Optimizer
    reference: Policy | None
    critic: Critic | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    critic_frozen: tuple[str, ...] = ()
    queue: Queue = dataclasses.field(default_factory=Queue)
    version: int = 0  # policy updates done, one a batch
    critic_only_steps: int = 0
    next_ticket: int = 0
    counters: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    generators: dict[str, torch.Generator] = dataclasses.field(default_factory=dict)
    history: list[dict] = dataclasses.field(default_factory=list)


def start(
    policy: Policy,
    task: Task,
    *,
    seed: int,
    lr: float,
    batch_size: int = 128,
    temperature: float = 1.0,
    device: str | torch.device = "auto",
    max_grad_norm: float | None = 1.0,
    micro_batch: int | None = None,
    keep_reference: bool = True,
) -> Run:
    """A run at step 0. It trains the given policy in place.

    seed            keys prompts, noise and minibatches; the same seed gives the same prompts and noise to every recipe
    batch_size      answers a step, over all groups
    max_grad_norm   gradient norms are clipped to this; None: never
    micro_batch     most rows in one forward (memory only: the gradient is the same); None: all
    keep_reference  hold a frozen copy of the policy as it is now, for KL terms
    Raises: ValueError for numbers out of range.
    """
    require_count("seed", seed, 0)
    require_count("batch_size", batch_size)
    require_range("lr", lr, 0, float("inf"), high_open=True)
    require_range("temperature", temperature, 0, float("inf"), low_open=True)
    if max_grad_norm is not None:
        require_range("max_grad_norm", max_grad_norm, 0, float("inf"), low_open=True)
    if micro_batch is not None:
        require_count("micro_batch", micro_batch)
    policy.to(choose_device(device))
    streams = {
        name: torch.Generator().manual_seed(2 * seed + i) for i, name in enumerate(("prompts", "minibatches"))
    }
    return Run(
        policy=policy,
        task=task,
        seed=seed,
        lr=lr,
        batch_size=batch_size,
        temperature=temperature,
        max_grad_norm=max_grad_norm,
        micro_batch=micro_batch,
        optimizer=adamw(policy.parameters(), lr),
        reference=policy.copy() if keep_reference else None,
        generators=streams,
    )


def adamw(parameters: list[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """AdamW with betas (0.9, 0.95), no weight decay; fused, since a small model's step is mostly overhead."""
    fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=fused)


def step(
    run: Run,
    recipe: Recipe,
    *,
    arrivals: Arrivals = lag(0),
    sampler: Callable[[Policy], Policy] | None = None,
) -> dict[str, Any]:
    """One batch: a policy update, or a critic-only step while the critic warms up. Returns its metrics (`GLOSSARY`).

    arrivals  which rollouts start and which are consumed
    sampler   from the policy, the one that writes the answers (rounded weights, say); None: the policy itself
    Raises: ValueError for a recipe that doesn't fit the run; NonFiniteError, with step, recipe and tensor named.
    """
    require(
        isinstance(recipe, Recipe),
        f"step takes a Recipe, not {recipe!r}" + ("; call it: grpo()" if callable(recipe) else ""),
    )
    require(callable(arrivals), f"arrivals must be a function such as lag(4), not {arrivals!r}")
    require(
        run.batch_size % recipe.group_size == 0,
        f"a batch of {run.batch_size} answers can't be cut into groups of {recipe.group_size}; "
        f"take a batch_size that group_size divides, {-(-run.batch_size // recipe.group_size) * recipe.group_size} say",
    )
    need = run.batch_size // recipe.group_size
    require(
        recipe.minibatches <= need,
        f"{recipe.minibatches} minibatches need at least as many prompts, and a batch has {need}: "
        "minibatches are whole groups",
    )
    draft = _Draft(run, recipe)
    committed = False
    try:
        draft.work(arrivals, sampler, need)
        with uninterrupted():
            draft.commit()
            committed = True
    except BaseException:
        if not committed:
            with uninterrupted():
                draft.roll_back()
        raise
    return draft.metrics


class _Draft:
    """One step before it counts. What it changes in place (weights, optimisers, critic) it can put back."""

    def __init__(self, run: Run, recipe: Recipe):
        self.run, self.recipe, self.plan = run, recipe, recipe.critic
        self.queue = run.queue.copy()
        self.counters = dict(run.counters)
        self.generators = {name: g.clone_state() for name, g in run.generators.items()}
        self.next_ticket = run.next_ticket
        self.fresh_prompts = []
        self.saved: list[_Saved] = []
        self.had_critic = run.critic, run.critic_optimizer, run.critic_frozen
        self.metrics: dict[str, Any] = {}
        self.critic_only = self.plan is not None and run.critic_only_steps < self.plan.warmup

    # ---- the way of the data

    def work(self, arrivals: Arrivals, sampler, need: int) -> None:
        begun = time.perf_counter()
        batch = self.take(arrivals, sampler, need)
        batch = self.judge(batch)
        written = time.perf_counter()
        batch = self.score(batch)
        batch = self.advantages(batch)
        if self.plan is not None:
            self.update_critic(batch)
        if not self.critic_only:
            self.update_policy(batch)
        self.metrics["time/rollout"] = written - begun
        self.metrics["time/train"] = time.perf_counter() - written

    def take(self, arrivals: Arrivals, sampler, need: int) -> Batch:
        run = self.run
        plan = arrivals(need=need, waiting=self.queue.tickets, next_ticket=self.next_ticket)
        if plan.start:
            tickets = range(self.next_ticket, self.next_ticket + plan.start)
            prompts = run.task.prompts(
                plan.start, generator=self.generators["prompts"], split="train", step=run.version
            )
            self.fresh_prompts = prompts
            require(
                len(prompts) == plan.start,
                f"task {run.task.name} gave {len(prompts)} prompts and {plan.start} were asked for",
            )
            launch = rollout(
                sampler(run.policy) if sampler else run.policy,
                run.task,
                prompts,
                group_size=self.recipe.group_size,
                noise_BT=row_noise(
                    run.seed, tickets, self.recipe.group_size, run.task.max_turns * run.task.max_tokens
                ),
                temperature=run.temperature,
                version=run.version,
                tickets=tickets,
            )
            self.check_finite("logp_rollout_BT", launch.logp_rollout_BT)
            self.queue.put(launch)
            self.next_ticket += plan.start
            self.counters["rollouts"] += len(launch)
            self.counters["tokens_generated"] += int(launch.mask_BT.sum())
        if plan.drop:
            self.queue.take(plan.drop)
        batch = self.queue.take(plan.take)
        require(
            batch is not None, "`arrivals` gave this update nothing to learn from: its plan takes no ticket"
        )
        require(
            len(batch) == len(batch.prompts) * self.recipe.group_size,
            f"the queue holds groups of {len(batch) / len(batch.prompts):g} and the recipe wants "
            f"{self.recipe.group_size}; with a new group size start a new run, or empty run.queue",
        )
        return batch

    def judge(self, batch: Batch) -> Batch:
        """Ask the task, and put each reward on the token that earned it."""
        rewards = torch.zeros(len(batch), self.run.task.max_turns, dtype=batch.logp_rollout_BT.dtype)
        for b, (turns, p) in enumerate(zip(batch.turns, batch.prompt_B.tolist(), strict=True)):
            prompt = batch.prompts[p]
            each = rewards_of(self.run.task, prompt, turns)
            for turn, value in enumerate(each):
                if not math.isfinite(value):
                    raise NonFiniteError(
                        f"step {self.run.version}, recipe {self.recipe.name}: task {self.run.task.name} gave reward "
                        f"{value} to {turns[turn]!r} for {prompt.text!r}; a reward must be a finite number. "
                        "The run is as it was before this step"
                    )
                if value:
                    rewards[b, turn] = value
        rewards = rewards.to(batch.mask_BT.device)
        rewards_BT = torch.zeros_like(batch.logp_rollout_BT)
        place_T = torch.arange(batch.mask_BT.shape[1], device=batch.mask_BT.device)
        for turn in range(rewards.shape[1]):
            own_BT = batch.mask_BT & (batch.turn_BT == turn)
            last_B1 = torch.where(own_BT, place_T, 0).amax(1, keepdim=True)
            rewards_BT.scatter_add_(1, last_B1, rewards[:, turn : turn + 1])
        return batch.replace(rewards_BT=rewards_BT)

    def score(self, batch: Batch) -> Batch:
        """What is known about each token before the update: only what some slot asks for."""
        recipe, run = self.recipe, self.run
        before = ("advantage", "keep", "kl_in_reward", "kl", "ratio", "policy_loss", "weight")
        if (
            recipe.asks("logp_old_BT", *before[:2])
            or recipe.kl_in_reward is not None
            or (recipe.updates > 1 and recipe.asks("logp_old_BT"))
        ):
            # With one update, and nobody asking earlier, logp_old is the training forward's own value, for free.
            batch = batch.replace(logp_old_BT=self.no_grad_logp(run.policy, batch))
        if recipe.asks("logp_ref_BT"):
            require(
                run.reference is not None,
                f"recipe {recipe.name} has a KL term, but the run keeps no reference: start(..., keep_reference=True)",
            )
            batch = batch.replace(logp_ref_BT=self.no_grad_logp(run.reference, batch))
        if self.plan is not None:
            self.prepare_critic()
            with torch.no_grad():
                pieces = [run.critic.values(piece) for piece in self.pieces(batch)]
            values_BT = torch.cat([widen(v, batch.tokens_BT.shape[1]) for v, _ in pieces])
            end_B = torch.cat([end for _, end in pieces])
            cut_off_B = ~batch.finished_B if self.plan.bootstrap else torch.zeros_like(batch.finished_B)
            batch = batch.replace(values_BT=values_BT, bootstrap_B=end_B.where(cut_off_B, 0.0))
        return batch

    def advantages(self, batch: Batch) -> Batch:
        recipe = self.recipe
        penalty_BT = None
        if recipe.kl_in_reward is not None:
            penalty_BT = recipe.kl_coef * call(
                recipe.kl_in_reward, {**self.fields(batch), "logp_BT": batch.logp_old_BT}
            )
            self.check_slot("kl_in_reward", recipe.kl_in_reward, penalty_BT, batch.mask_BT.shape)
            penalty_BT = penalty_BT.where(batch.mask_BT, 0.0)
        per_token = recipe.asks("rewards_BT", "advantage")
        rewarded = batch
        if penalty_BT is not None and per_token:
            rewarded = batch.replace(rewards_BT=batch.rewards_BT - penalty_BT)
        advantages = call(recipe.advantage, self.fields(rewarded))
        require(
            isinstance(advantages, Tensor)
            and advantages.shape in (batch.prompt_B.shape, batch.mask_BT.shape),
            f"advantage={name_of(recipe.advantage)} must return one number a row {tuple(batch.prompt_B.shape)} or one "
            f"a token {tuple(batch.mask_BT.shape)}, not {_describe(advantages)}",
        )
        if advantages.dim() == 1:
            advantages = advantages[:, None].expand(batch.mask_BT.shape)
        advantages_BT = advantages.detach().to(batch.logp_rollout_BT.dtype).where(batch.mask_BT, 0.0)
        if penalty_BT is not None and not per_token:
            # After the group's normalisation: in the naive order a dead group is divided by the deviation of KL noise
            # and gets advantages of size 1 from nothing.
            advantages_BT = advantages_BT - reward_to_go(penalty_BT, batch.mask_BT)
        self.check_finite("advantages_BT", advantages_BT)
        returns_BT = None
        if self.plan is not None:
            target_BT = gae(
                rewarded.rewards_BT,
                batch.values_BT,
                batch.mask_BT,
                batch.finished_B,
                batch.bootstrap_B,
                gamma=self.plan.gamma,
                lam=self.plan.lam_target,
            )
            returns_BT = (target_BT + batch.values_BT).where(batch.mask_BT, 0.0)
        batch = batch.replace(advantages_BT=advantages_BT, returns_BT=returns_BT)
        self.describe(batch)
        if recipe.keep is not None:
            kept_B = call(recipe.keep, self.fields(batch))
            self.check_slot("keep", recipe.keep, kept_B, batch.prompt_B.shape)
            require(
                kept_B.dtype == torch.bool,
                f"keep={name_of(recipe.keep)} must return bools, not {kept_B.dtype}",
            )
            require(bool(kept_B.any()), f"keep={name_of(recipe.keep)} kept no row of step {self.run.version}")
            batch = batch.rows(torch.nonzero(kept_B).squeeze(1))
            require(
                len(batch.prompts) >= recipe.minibatches,
                f"keep={name_of(recipe.keep)} left {len(batch.prompts)} prompts for {recipe.minibatches} minibatches",
            )
        return batch

    def update_critic(self, batch: Batch) -> None:
        run, plan = self.run, self.plan
        self.save(run.critic.parameters(), run.critic_optimizer)
        # Per token over the whole batch, once: how the critic counts tokens is not the recipe's choice.
        share = 1.0 / batch.mask_BT.sum().clamp(min=1)
        norms = []
        for _ in range(plan.updates):
            run.critic_optimizer.zero_grad(set_to_none=True)
            total = 0.0
            for piece in self.pieces(batch):
                values_BT, _ = run.critic.values(piece)
                fields = {
                    "values_BT": values_BT,
                    "returns_BT": piece.returns_BT,
                    "mask_BT": piece.mask_BT,
                    "values_old_BT": piece.values_BT,
                }
                loss_BT = call(plan.value_loss, fields)
                self.check_slot("value_loss", plan.value_loss, loss_BT, piece.mask_BT.shape)
                loss = weighted_sum(loss_BT, share.expand_as(loss_BT), piece.mask_BT)
                self.check_finite("value loss", loss)
                loss.backward()
                total += float(loss.detach())
            norms.append(self.clip(run.critic.named_parameters()))
            run.critic_optimizer.step()
        self.metrics["value/loss"] = total
        self.metrics["value/grad_norm"] = sum(norms) / len(norms)

    def update_policy(self, batch: Batch) -> None:
        run, recipe = self.run, self.recipe
        self.save(run.policy.parameters(), run.optimizer)
        require_range("run.lr", run.lr, 0, float("inf"), high_open=True)
        for group in run.optimizer.param_groups:
            group["lr"] = run.lr
        seen = _Seen()
        for _ in range(recipe.epochs):
            for minibatch in self.minibatches(batch):
                self.update_once(minibatch, seen)
        self.metrics.update(seen.metrics(run.max_grad_norm))
        moved = parameter_change(self.saved[-1].weights, run.policy.parameters())
        self.check_finite("the change of the weights", moved)
        self.metrics["optim/update_norm"] = float(moved)
        self.metrics["optim/lr"] = run.lr

    def update_once(self, minibatch: Batch, seen: "_Seen") -> None:
        """One optimiser step. The loss's weights are fixed on all rows; then rows that can't matter are left out."""
        run, recipe = self.run, self.recipe
        weights_BT = call(recipe.aggregate, {"mask_BT": minibatch.mask_BT})
        self.check_slot("aggregate", recipe.aggregate, weights_BT, minibatch.mask_BT.shape)
        live = minibatch.replace(weights_BT=weights_BT)
        if loss_ignores_zero_advantage(recipe):
            alive_B = (minibatch.advantages_BT != 0).any(1)
            if not bool(alive_B.all()):
                live = live.rows(torch.nonzero(alive_B).squeeze(1))
        run.optimizer.zero_grad(set_to_none=True)
        for piece in self.pieces(live) if len(live) else []:
            logp_BT, entropy_BT = run.policy.logp(piece)
            self.check_finite("logp_BT", logp_BT)
            fields = self.fields(piece, logp_BT=logp_BT, entropy_BT=entropy_BT)
            loss_BT, policy_BT = self.loss(fields, piece)
            loss = weighted_sum(loss_BT, piece.weights_BT, piece.mask_BT)
            self.check_finite("loss", loss)
            require(
                loss.requires_grad,
                f"policy_loss={name_of(recipe.policy_loss)} has no gradient: did you detach logp or ratio?",
            )
            seen.add(piece, fields, policy_BT, loss)
            loss.backward()
        for parameter in run.policy.parameters():
            if parameter.grad is None:  # all rows dead: still a step, with gradient 0 (momentum goes on)
                parameter.grad = torch.zeros_like(parameter)
        seen.norms.append(self.clip(run.policy.model.named_parameters()))
        seen.rows += len(minibatch)
        run.optimizer.step()
        self.counters["updates"] += 1
        self.counters["tokens_trained"] += int(live.mask_BT.sum())

    def loss(self, fields: dict[str, Any], piece: Batch) -> tuple[Tensor, Tensor]:
        """loss_BT = weight * policy_loss + kl_coef * kl, and its policy term alone."""
        recipe, shape = self.recipe, piece.mask_BT.shape
        if recipe.asks("ratio_BT"):
            fields["ratio_BT"] = call(recipe.ratio, fields)
            self.check_slot("ratio", recipe.ratio, fields["ratio_BT"], shape)
        policy_BT = call(recipe.policy_loss, fields)
        self.check_slot("policy_loss", recipe.policy_loss, policy_BT, shape)
        if recipe.weight is not None:
            weight_BT = call(recipe.weight, fields)
            self.check_slot("weight", recipe.weight, weight_BT, shape)
            policy_BT = weight_BT * policy_BT
        loss_BT = policy_BT
        if recipe.kl is not None:
            kl_BT = call(recipe.kl, fields)
            self.check_slot("kl", recipe.kl, kl_BT, shape)
            loss_BT = policy_BT + recipe.kl_coef * kl_BT
        return loss_BT, policy_BT

    # ---- helpers

    def fields(self, batch: Batch, **more: Tensor) -> dict[str, Any]:
        """What slots may ask for. With one update, logp_old is the training forward's own value, detached."""
        fields = {**batch.tensors(), **more}
        fields |= {
            "temperature": batch.temperature,
            "group_size": self.recipe.group_size,
            "length_B": batch.length_B,
        }
        fields["staleness_BT"] = self.run.version - batch.version_BT
        if batch.rewards_BT is not None:
            fields["rewards_B"] = batch.rewards_B
        if batch.logp_old_BT is None and "logp_BT" in more:
            fields["logp_old_BT"] = more["logp_BT"].detach()
        return fields

    def pieces(self, batch: Batch) -> list[Batch]:
        size = self.run.micro_batch
        if size is None or len(batch) <= size:
            return [batch]
        index = torch.arange(len(batch), device=batch.prompt_B.device)
        return [batch.rows(part) for part in index.split(size)]

    def minibatches(self, batch: Batch) -> list[Batch]:
        """Whole groups, in a new order each epoch."""
        if self.recipe.minibatches == 1:
            return [batch]
        order = torch.randperm(len(batch.prompts), generator=self.generators["minibatches"])
        return [
            batch.rows(batch.rows_of_prompts(part.tolist()))
            for part in order.tensor_split(self.recipe.minibatches)
        ]

    def no_grad_logp(self, policy: Policy, batch: Batch) -> Tensor:
        with torch.no_grad():
            logps = [policy.logp(piece)[0] for piece in self.pieces(batch)]
        return torch.cat([widen(x, batch.tokens_BT.shape[1]) for x in logps])

    def prepare_critic(self) -> None:
        """Build the critic from the policy on its first use, and follow the plan's learning rate."""
        run, plan = self.run, self.plan
        if run.critic is None:
            run.critic = Critic(run.policy, plan.frozen)
            run.critic_frozen = plan.frozen
            run.critic_optimizer = adamw(run.critic.parameters(), plan.lr)
        require(
            run.critic_frozen == plan.frozen,
            f"this run's critic froze {run.critic_frozen} and the recipe wants {plan.frozen}; start a new run",
        )
        for group in run.critic_optimizer.param_groups:
            group["lr"] = plan.lr

    def save(self, parameters: list[Tensor], optimizer: torch.optim.Optimizer) -> None:
        self.saved.append(_Saved(parameters, optimizer))

    def clip(self, named_parameters) -> float:
        """Clip the gradients to max_grad_norm and return their norm from before."""
        trained = [(name, p) for name, p in named_parameters if p.grad is not None]
        limit = self.run.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(
            [p for _, p in trained], float("inf") if limit is None else limit
        )
        if not torch.isfinite(norm):
            broken = next((name for name, p in trained if not torch.isfinite(p.grad).all()), "their norm")
            self.non_finite(f"the gradient of {broken}")
        return float(norm)

    def check_finite(self, name: str, tensor: Tensor) -> None:
        if not torch.isfinite(tensor).all():
            self.non_finite(name)

    def non_finite(self, name: str) -> None:
        raise NonFiniteError(
            f"step {self.run.version}, recipe {self.recipe.name}: {name} is not finite. The run is as it was before "
            "this step; a smaller lr, or a look at the ratios (policy/ratio_max), is where to begin"
        )

    def check_slot(self, slot: str, function: Callable, value: Any, shape: torch.Size) -> None:
        require(
            isinstance(value, Tensor) and value.shape == shape,
            f"{slot}={name_of(function)} must return a tensor of shape {tuple(shape)}, not {_describe(value)}",
        )

    def describe(self, batch: Batch) -> None:
        """The metrics of the batch as it was consumed, all rows counted."""
        rewards_B, group_size = batch.rewards_B, self.recipe.group_size
        staleness = (self.run.version - batch.version_BT)[batch.mask_BT]
        self.metrics |= {
            "reward/mean": float(rewards_B.mean()),
            "reward/std": float(rewards_B.std()) if len(rewards_B) > 1 else 0.0,
            "response/length": float(batch.length_B.float().mean()),
            "response/cut_off_frac": float((~batch.finished_B).float().mean()),
            "rollout/staleness": float(staleness.float().mean()),
            "rollout/staleness_max": int(staleness.max()),
        }
        if group_size > 1 and len(batch) % group_size == 0:
            self.metrics["group/reward_std"] = float(rewards_B.view(-1, group_size).std(1).mean())
            self.metrics["group/zero_variance_frac"] = float(
                zero_variance_fraction(rewards_B, group_size=group_size)
            )
        if self.plan is not None:
            fit = explained_variance(batch.values_BT, batch.returns_BT, batch.mask_BT)
            self.metrics["value/explained_variance"] = float(fit)

    # ---- the end

    def commit(self) -> None:
        run = self.run
        run.queue, run.counters, run.generators = self.queue, self.counters, self.generators
        run.next_ticket = self.next_ticket
        if self.critic_only:
            run.critic_only_steps += 1
        else:
            run.version += 1
        self.metrics = {"step": run.version, **self.metrics}
        if self.plan is not None:
            self.metrics["value/critic_only_steps"] = run.critic_only_steps
        self.metrics["rollout/queued"] = len(run.queue.tickets)
        self.metrics |= {f"count/{name}": value for name, value in run.counters.items()}
        run.history.append(self.metrics)

    def roll_back(self) -> None:
        for saved in self.saved:
            saved.restore()
        self.run.critic, self.run.critic_optimizer, self.run.critic_frozen = self.had_critic
        if self.fresh_prompts and hasattr(self.run.task, "forget"):
            self.run.task.forget(self.fresh_prompts)


class _Saved:
    """Weights and optimiser state from before a step."""

    def __init__(self, parameters: list[Tensor], optimizer: torch.optim.Optimizer):
        self.parameters, self.optimizer = parameters, optimizer
        self.weights = [p.detach().clone() for p in parameters]
        self.state = {p: {k: v.clone() for k, v in s.items()} for p, s in optimizer.state.items()}

    @torch.no_grad()
    def restore(self) -> None:
        for parameter, weight in zip(self.parameters, self.weights, strict=True):
            parameter.copy_(weight)
            parameter.grad = None
        self.optimizer.state.clear()
        self.optimizer.state.update(self.state)


class _Seen:
    """Collects what the updates of one step saw, on the rows that went through the training forward."""

    def __init__(self):
        self.norms: list[float] = []
        self.loss = 0.0
        self.rows = 0
        self.trained_rows = 0
        self.tokens: dict[str, list[Tensor]] = {}

    def add(self, piece: Batch, fields: dict[str, Any], policy_BT: Tensor, loss: Tensor) -> None:
        mask_BT, logp_BT = piece.mask_BT, fields["logp_BT"]
        # The slope of each token's policy term in its own log-probability: 0 is what a clip or a mask leaves.
        # Only elementwise operations lie between the two, so this costs nothing beside the model's backward.
        slope_BT = torch.zeros_like(logp_BT)
        if policy_BT.requires_grad:
            slope_BT = torch.autograd.grad(policy_BT.where(mask_BT, 0.0).sum(), logp_BT, retain_graph=True)[0]
        to_rollout_BT = rollout_ratio(logp_BT.detach(), piece.logp_rollout_BT, mask_BT)
        values = {
            "slope": slope_BT,
            "advantage": piece.advantages_BT,
            "ratio": fields.get("ratio_BT", to_rollout_BT).detach(),
            "to_rollout": to_rollout_BT,
            "kl_rollout": k3(piece.logp_rollout_BT, logp_BT.detach(), mask_BT),
            "entropy": fields["entropy_BT"],
        }
        if piece.logp_ref_BT is not None:
            values["kl_ref"] = k1(logp_BT.detach(), piece.logp_ref_BT, mask_BT)
        for name, value in values.items():
            self.tokens.setdefault(name, []).append(value[mask_BT])
        self.loss += float(loss.detach())
        self.trained_rows += len(piece)

    def metrics(self, max_grad_norm: float | None) -> dict[str, float]:
        over = [n > max_grad_norm for n in self.norms] if max_grad_norm is not None else [False]
        result = {
            "policy/loss": self.loss / len(self.norms),
            "batch/trained_frac": self.trained_rows / self.rows,
            "optim/grad_norm": sum(self.norms) / len(self.norms),
            "optim/clipped_frac": sum(over) / len(over),
        }
        if not self.tokens:
            return result
        t = {name: torch.cat(parts) for name, parts in self.tokens.items()}
        pushed = t["advantage"] != 0
        silent = pushed & (t["slope"] == 0)
        above, good = t["ratio"] > 1, t["advantage"] > 0
        share = lambda kind: float(kind.sum() / pushed.sum().clamp(min=1))  # noqa: E731
        result |= {
            "policy/entropy": float(t["entropy"].mean()),
            "policy/ratio_mean": float(t["ratio"].mean()),
            "policy/ratio_max": float(t["ratio"].max()),
            "policy/clip_frac": share(silent),
            "policy/clip_frac_high": share(silent & above),
            "policy/clip_frac_low": share(silent & ~above),
            "policy/masked_frac": share(silent & (above != good)),
            "policy/ess": float(effective_sample_size(t["to_rollout"][None], torch.ones_like(silent)[None])),
            "policy/kl_rollout": float(t["kl_rollout"].mean()),
        }
        if "kl_ref" in t:
            result["policy/kl_ref"] = float(t["kl_ref"].mean())
        return result


def train(
    policy: Policy,
    task: Task,
    recipe: Recipe,
    *,
    steps: int,
    seed: int | None = None,
    lr: float | None = None,
    arrivals: Arrivals = lag(0),
    sampler: Callable[[Policy], Policy] | None = None,
    eval_every: int | None = 20,
    run: Run | None = None,
    **start_arguments,
) -> Iterator[dict[str, Any]]:
    """Train the policy in place; yields one flat dict a step, the first for step 0 (an evaluation alone).

    Goes on until the policy has had `steps` updates, those of a `run` handed in included; batches on which only the
    critic learns come on top and carry the same `step`. Evaluates at step 0, every `eval_every` updates and at the end
    (None: never). After an interrupt, call it again with the same `run` to go on: so make the run with `start` where
    you may want to. seed (default 0), lr (default 3e-4) and other keywords go to `start`, and not beside a `run`.
    """
    require_count("steps", steps, 0)
    if run is None:
        run = start(policy, task, seed=seed or 0, lr=3e-4 if lr is None else lr, **start_arguments)
    else:
        given = [name for name, value in (("seed", seed), ("lr", lr)) if value is not None] + list(
            start_arguments
        )
        require(not given, f"{given} belong to `start`, and this run has started; set run.lr, say, instead")
    require(run.policy is policy, "`run` trains another policy than the one given; pass run.policy")
    require(run.task is task, "`run` plays another task than the one given; pass run.task")
    require(
        run.version <= steps,
        f"the run has had {run.version} updates already, more than steps={steps}; take larger steps, or a new run",
    )
    if eval_every is not None:
        require_count("eval_every", eval_every)

    def due() -> bool:
        return eval_every is not None and (run.version == steps or run.version % eval_every == 0)

    if run.version == 0 and not run.history:
        first = {"step": 0, **_evaluation(run, final=steps == 0, wanted=eval_every is not None)}
        run.history.append(first)
        yield first
    elif run.history and due() and "optim/lr" in run.history[-1] and "eval/accuracy" not in run.history[-1]:
        # Interrupted between the commit of a step and its evaluation: make up for it.
        run.history[-1] |= _evaluation(run, final=run.version == steps, wanted=True)
        yield run.history[-1]
    while run.version < steps:
        before = run.version
        metrics = step(run, recipe, arrivals=arrivals, sampler=sampler)
        metrics |= _evaluation(run, final=run.version == steps, wanted=run.version > before and due())
        yield metrics


def _evaluation(run: Run, *, final: bool, wanted: bool) -> dict[str, float]:
    if not wanted:
        return {}
    result = {"eval/accuracy": evaluate(run.policy, run.task, step=run.version)}
    if final:
        result["eval/greedy_accuracy"] = evaluate(run.policy, run.task, step=run.version, greedy=True)
    return result


def evaluate(
    policy: Policy, task: Task, *, n: int = EVAL_PROMPTS, greedy: bool = False, step: int = 0
) -> float:
    """Mean reward on n fixed held-out prompts, one answer each at temperature 1 with fixed noise (or greedy)."""
    prompts = task.prompts(n, generator=torch.Generator().manual_seed(EVAL_SEED), split="held_out", step=step)
    rewards = []
    for first in range(0, n, 500):
        part = prompts[first : first + 500]
        tickets = range(first, first + len(part))
        noise_BT = None if greedy else row_noise(EVAL_SEED, tickets, 1, task.max_turns * task.max_tokens)
        batch = rollout(policy, task, part, group_size=1, noise_BT=noise_BT)
        rewards += total_rewards(task, batch)
    return sum(rewards) / n


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done, then deliver it. Outside the main thread there is none to hold."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield
        return
    held = []
    signal.signal(signal.SIGINT, lambda *event: held.append(event))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if held and callable(previous):
            previous(*held[0])


def _describe(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
