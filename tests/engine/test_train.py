"""The step: right numbers, exact shortcuts, and a transaction whatever stops it."""

import dataclasses
import functools
import os
import signal
import threading

import pytest
import torch

from grpo_lab.concepts.aggregate import constant_mean, sequence_mean, token_mean
from grpo_lab.concepts.clipped_surrogate import clipped_surrogate
from grpo_lab.concepts.group_advantage import batch_advantage, group_mean_advantage
from grpo_lab.concepts.importance_ratio import rollout_ratio, sequence_rollout_ratio
from grpo_lab.concepts.kl import corrected_k3, k1, k2, k3
from grpo_lab.concepts.policy_gradient import policy_gradient
from grpo_lab.engine import train as train_module
from grpo_lab.engine.metrics import GLOSSARY
from grpo_lab.engine.recipes import CriticPlan, Recipe, grpo, grpo_recomputed, ppo, reinforce
from grpo_lab.engine.staleness import lag
from grpo_lab.engine.tasks import Bandit, Sort, Tree
from grpo_lab.engine.train import NonFiniteError, start, step, train
from tests.engine.helpers import small_policy


class Digits(Sort):
    """Sort, with a reward for each answer from its text alone: in a random policy many groups differ, some are dead."""

    def reward(self, prompt, turns):
        return float(sum(map(int, filter(str.isdigit, turns[-1]))) % 3 == 0)


def small_run(task=None, *, seed=0, lr=1e-3, batch_size=16, dtype=torch.float64, spread=3.0, **arguments):
    task = task or Digits(3)
    policy = small_policy("llama", task, dtype=dtype, spread=spread, layers=1)
    return start(policy, task, seed=seed, lr=lr, batch_size=batch_size, device="cpu", **arguments)


def weights(run) -> list[torch.Tensor]:
    return [p.detach().clone() for p in run.policy.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def close(a, b, atol=1e-12) -> bool:
    return all(torch.allclose(x, y, atol=atol, rtol=0) for x, y in zip(a, b, strict=True))


def gradients(run) -> list[torch.Tensor]:
    """Those of the last update, as clipped."""
    return [p.grad.clone() for p in run.policy.parameters()]


def close_to_1e6_of_the_largest(a, b) -> bool:
    """transformers' RMS norm computes in float32 even in a float64 model, so sums in another order differ by that."""
    largest = max(float(x.abs().max()) for x in a)
    return largest > 1e-4 and all(
        float((x - y).abs().max()) < 1e-6 * largest for x, y in zip(a, b, strict=True)
    )


def after_steps(recipe, n=3, *, arrivals=None, **arguments):
    run = small_run(**arguments)
    for _ in range(n):
        step(run, recipe, arrivals=arrivals or lag(0))
    return run


def untimed(metrics: dict) -> dict:
    return {k: v for k, v in metrics.items() if not k.startswith("time/")}


# ---- the numbers


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_ratio_to_the_sampler_is_one_at_step_zero_in_the_real_loop(temperature):
    metrics = step(small_run(temperature=temperature), grpo())
    assert metrics["policy/ratio_mean"] == pytest.approx(1, abs=1e-12)
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=1e-12)
    assert metrics["policy/ess"] == pytest.approx(1, abs=1e-12)


def test_without_the_temperature_on_the_training_side_the_ratio_would_not_be_one():
    """The test above can fail: score at another temperature than was sampled at, and it does."""
    run = small_run(temperature=0.6)
    step(run, grpo(), arrivals=lag(1))  # leaves a batch in the queue
    run.queue.launches = [b.replace(temperature=1.0) for b in run.queue.launches]
    run.temperature = 1.0
    assert step(run, grpo(), arrivals=lag(1))["policy/ratio_max"] > 1.5


def test_loss_is_zero_and_its_gradient_is_not_at_ratio_one():
    """Questions 1, 2, 7: advantages of a group sum to 0, so the loss says 0 while the policy is being pushed."""
    metrics = step(small_run(), grpo(group_advantage=group_mean_advantage))
    assert abs(metrics["policy/loss"]) < 1e-6 and metrics["optim/grad_norm"] > 1e-2


def test_the_first_gradient_is_that_of_reinforce_with_the_groups_advantage():
    """At ratio 1 the clipped objective's gradient is A grad log pi: one update of grpo is one of REINFORCE."""
    clipped = after_steps(grpo(), 1)
    plain = after_steps(
        grpo(
            policy_loss=lambda logp_BT, advantages_BT, mask_BT: policy_gradient(
                logp_BT, advantages_BT, mask_BT
            ),
            eps_low=None,
            eps_high=None,
        ),
        1,
    )
    assert close(weights(clipped), weights(plain))


def test_reward_stands_on_the_last_own_token_and_its_mean_is_reported():
    run = small_run()
    draft = train_module._Draft(run, grpo())
    batch = draft.judge(draft.take(lag(0), None, need=2))
    for b in range(len(batch)):
        own = torch.nonzero(batch.mask_BT[b]).squeeze(1)
        wanted = run.task.reward(batch.prompts[int(batch.prompt_B[b])], batch.turns[b])
        assert float(batch.rewards_BT[b, own[-1]]) == wanted and float(
            batch.rewards_BT[b].abs().sum()
        ) == abs(wanted)


def test_bandit_policy_climbs_to_the_best_arm():
    run = small_run(Bandit((0.0, 0.2, 1.0)), lr=3e-2, batch_size=64, spread=0.1)
    for _ in range(40):
        metrics = step(run, grpo())
    assert metrics["reward/mean"] > 0.95


@pytest.mark.parametrize(
    "recipe",
    [
        reinforce(),
        grpo(),
        grpo(group_advantage=batch_advantage),
        ppo(epochs=2, minibatches=1, critic=CriticPlan(lr=1e-2, warmup=2)),
    ],
)
def test_every_recipe_learns_the_tree(recipe):
    run = small_run(Tree((0.0, 0.0, 0.0, 1.0)), lr=2e-2, batch_size=64, spread=0.1)
    while run.version < 40:
        metrics = step(run, recipe)
    assert metrics["reward/mean"] > 0.9


# ---- exact shortcuts


@pytest.mark.parametrize("aggregate", [sequence_mean, token_mean, functools.partial(constant_mean, length=4)])
def test_leaving_dead_groups_out_of_the_forward_changes_nothing(aggregate, monkeypatch):
    """The denominators were counted before, so the gradient is the same, whatever the aggregation."""
    recipe = grpo(aggregate=aggregate, group_size=2)
    fast = after_steps(recipe, 1)
    assert fast.history[0]["batch/trained_frac"] < 0.8  # some rows were left out
    monkeypatch.setattr(train_module, "loss_ignores_zero_advantage", lambda recipe: False)
    slow = after_steps(recipe, 1)
    assert slow.history[0]["batch/trained_frac"] == 1
    assert close_to_1e6_of_the_largest(gradients(fast), gradients(slow))


def test_counting_after_dropping_would_change_the_update(monkeypatch):
    """The test above can fail: a token mean over the rows that are left is another gradient."""
    recipe = grpo(aggregate=token_mean, group_size=2)
    right = after_steps(recipe, 1, max_grad_norm=None)
    rows = train_module.Batch.rows

    def recount(self, index):
        part = rows(self, index)
        return part.replace(weights_BT=token_mean(part.mask_BT)) if part.weights_BT is not None else part

    monkeypatch.setattr(train_module.Batch, "rows", recount)
    wrong = after_steps(recipe, 1, max_grad_norm=None)
    assert wrong.history[0]["optim/grad_norm"] > 1.2 * right.history[0]["optim/grad_norm"]


def test_an_all_dead_batch_takes_its_optimiser_step_with_gradient_zero():
    class Constant(Sort):
        def reward(self, prompt, turns):
            return 0.1

    run = small_run(Digits(3))
    step(run, grpo())
    run.task = Constant(3)
    before, moments = weights(run), [s["exp_avg"].clone() for s in run.optimizer.state.values()]
    metrics = step(run, grpo())
    assert metrics["group/zero_variance_frac"] == 1 and metrics["batch/trained_frac"] == 0
    assert metrics["optim/grad_norm"] == 0 and metrics["count/updates"] == 2
    after = [s["exp_avg"] for s in run.optimizer.state.values()]
    assert all(
        torch.allclose(b, 0.9 * a) for a, b in zip(moments, after, strict=True)
    )  # momentum decayed: a real step
    assert not same(before, weights(run))


def test_a_dead_group_is_still_pulled_by_a_kl_term_in_the_loss():
    class Constant(Sort):
        def reward(self, prompt, turns):
            return 1.0

    run = small_run(Constant(3))
    with torch.no_grad():  # the reference is elsewhere
        run.reference.parameters()[-1].add_(
            0.1
            * torch.randn(
                run.reference.parameters()[-1].shape,
                generator=torch.Generator().manual_seed(0),
                dtype=torch.float64,
            )
        )
    metrics = step(run, grpo(kl=k2, kl_coef=0.1))
    assert metrics["group/zero_variance_frac"] == 1 and metrics["batch/trained_frac"] == 1
    assert metrics["optim/grad_norm"] > 1e-4 and metrics["policy/clip_frac"] == 0


@pytest.mark.parametrize(
    "recipe", [grpo(), grpo(aggregate=token_mean), ppo(epochs=1, minibatches=1, critic=CriticPlan(warmup=0))]
)
@pytest.mark.parametrize("micro_batch", [1, 5])
def test_the_batch_in_pieces_is_the_batch_whole(recipe, micro_batch):
    whole, pieces = after_steps(recipe, 1), after_steps(recipe, 1, micro_batch=micro_batch)
    assert close_to_1e6_of_the_largest(gradients(whole), gradients(pieces))


def test_minibatches_are_whole_groups_and_together_the_batch():
    run = small_run(batch_size=32)
    draft = train_module._Draft(run, grpo(minibatches=3))
    batch = draft.judge(draft.take(lag(0), None, need=4))
    parts = draft.minibatches(batch)
    assert sorted(len(p) for p in parts) == [8, 8, 16]
    tickets = [t for part in parts for t in part.ticket_P.tolist()]
    assert sorted(tickets) == [0, 1, 2, 3]
    for part in parts:
        assert part.prompt_B.bincount().tolist() == [8] * len(part.prompts)


def test_clipping_gradients_is_off_when_asked():
    run = small_run(max_grad_norm=None)
    metrics = step(run, grpo())
    assert metrics["optim/clipped_frac"] == 0
    run = small_run(max_grad_norm=1e-3)
    assert step(run, grpo())["optim/clipped_frac"] == 1


# ---- staleness


def test_lag_is_reported_and_the_ratio_sees_it_only_against_the_sampler():
    fresh = after_steps(grpo(), 6, lr=1e-2)
    stale = after_steps(grpo(), 6, arrivals=lag(3), lr=1e-2)
    blind = after_steps(grpo_recomputed(), 6, arrivals=lag(3), lr=1e-2)
    assert [m["rollout/staleness"] for m in stale.history] == [0, 1, 2, 3, 3, 3]
    assert all(m["rollout/queued"] == 3 * 2 for m in stale.history)
    assert all(m["policy/ratio_max"] == pytest.approx(1, abs=1e-9) for m in fresh.history)
    assert stale.history[-1]["policy/ratio_max"] > 1.01
    assert blind.history[-1]["policy/ratio_max"] == 1 and blind.history[-1]["policy/clip_frac"] == 0
    assert blind.history[-1]["policy/ess"] < 0.999  # the samples are stale all the same


def test_every_token_keeps_the_logp_of_the_version_stamped_on_it():
    run = small_run(lr=1e-2)
    snapshots = {}
    for _ in range(6):
        snapshots[run.version] = run.policy.copy()
        step(run, grpo(), arrivals=lag(3))
    versions = set()
    for launch in run.queue.launches:
        (version,) = set(launch.version_BT[launch.mask_BT].tolist())
        with torch.no_grad():
            logp_BT = snapshots[version].logp(launch)[0]
            now_BT = run.policy.logp(launch)[0]
        assert float((logp_BT - launch.logp_rollout_BT).abs().max()) < 1e-5
        assert float((now_BT - launch.logp_rollout_BT).abs().max()) > 1e-3  # and the weights did move since
        versions.add(version)
    assert len(versions) == 3


def test_arms_with_another_lag_see_the_same_prompts_and_the_same_noise():
    fresh, stale = small_run(lr=0.0), small_run(lr=0.0)
    seen = {"fresh": [], "stale": []}
    for name, run, k in (("fresh", fresh, 0), ("stale", stale, 3)):
        for _ in range(4):
            draft = train_module._Draft(run, grpo())
            batch = draft.take(lag(k), None, need=2)
            seen[name].append((batch.prompts, batch.turns))
            draft.metrics = {}
            draft.commit()
    assert seen["fresh"] == seen["stale"]


def test_the_queue_of_another_group_size_is_refused_with_a_way_out():
    run = small_run()
    step(run, grpo(group_size=4), arrivals=lag(1))
    with pytest.raises(ValueError, match="queue holds groups of 4 and the recipe wants 8"):
        step(run, grpo(group_size=8), arrivals=lag(1))


# ---- KL


def test_k3_in_the_loss_pulls_back_to_the_reference():
    free, held = (after_steps(r, 12, lr=1e-2) for r in (grpo(), grpo(kl=k3, kl_coef=2.0)))
    with torch.no_grad():
        free_distance, held_distance = (
            sum(
                float((p - q).square().sum())
                for p, q in zip(r.policy.parameters(), r.reference.parameters(), strict=True)
            )
            for r in (free, held)
        )
    assert held.history[-1]["policy/kl_ref"] < 0.1 and held_distance < free_distance


def test_kl_in_the_reward_is_subtracted_after_the_groups_normalisation():
    """A dead group gets advantages of the size of the KL, not of size 1 from dividing KL noise by its own deviation."""

    class Constant(Sort):
        def reward(self, prompt, turns):
            return 1.0

    run = small_run(Constant(3))
    with torch.no_grad():
        run.reference.parameters()[-1].mul_(1.001)
    recipe = grpo(kl_in_reward=k1, kl_coef=0.1)
    draft = train_module._Draft(run, recipe)
    batch = draft.advantages(draft.score(draft.judge(draft.take(lag(0), None, need=2))))
    largest = float(batch.advantages_BT.abs().max())
    assert 0 < largest < 0.01
    penalty_BT = 0.1 * (batch.logp_old_BT - batch.logp_ref_BT)
    to_go_BT = penalty_BT.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(batch.advantages_BT, -to_go_BT.where(batch.mask_BT, 0.0))


def test_kl_in_the_reward_of_a_critics_recipe_stands_in_its_token_rewards():
    run = small_run()
    with torch.no_grad():
        run.reference.parameters()[-1].mul_(1.01)
    recipe = ppo(kl_in_reward=k1, kl_coef=0.5, whiten=False, critic=CriticPlan(lam=1.0))
    draft = train_module._Draft(run, recipe)
    batch = draft.advantages(draft.score(draft.judge(draft.take(lag(0), None, need=16))))
    rewards_BT = batch.rewards_BT - 0.5 * (batch.logp_old_BT - batch.logp_ref_BT)
    to_go_BT = rewards_BT.where(batch.mask_BT, 0.0).flip(1).cumsum(1).flip(1)
    # the critic is new and says 0, and lambda is 1: the advantage is the return
    torch.testing.assert_close(batch.advantages_BT, to_go_BT.where(batch.mask_BT, 0.0))


# ---- the critic


def test_warm_up_trains_only_the_critic_and_does_not_count_as_a_policy_update():
    run = small_run()
    before = weights(run)
    recipe = ppo(critic=CriticPlan(lr=1e-2, updates=2, warmup=3))
    rows = list(train(run.policy, run.task, recipe, steps=2, run=run, eval_every=None))
    assert [r["step"] for r in rows] == [0, 0, 0, 0, 1, 2]
    assert [r.get("value/critic_only_steps") for r in rows] == [None, 1, 2, 3, 3, 3]
    assert ["optim/grad_norm" in r for r in rows] == [False] * 4 + [True] * 2
    run2 = small_run()
    for _ in range(3):
        step(run2, recipe)
    assert same(before, weights(run2)) and any(p.abs().max() > 0 for p in run2.critic.head.parameters())


def test_the_critic_learns_what_the_states_are_worth():
    run = small_run(Tree((0.0, 0.0, 1.0, 1.0)), lr=0.0, batch_size=64, spread=0.1)
    recipe = ppo(critic=CriticPlan(lr=1e-2, updates=2, warmup=60))
    fits = [step(run, recipe)["value/explained_variance"] for _ in range(60)]
    assert fits[0] == pytest.approx(0, abs=1e-6) and sum(fits[-10:]) / 10 > 0.05
    with torch.no_grad():
        draft = train_module._Draft(run, recipe)
        batch = draft.take(lag(0), None, need=64)
        values_BT, _ = run.critic.values(batch)
    a, b = (run.policy.encode_text(c)[0] for c in "ab")
    after_a, after_b = (float(values_BT[batch.tokens_BT[:, 0] == t, 1].mean()) for t in (a, b))
    assert abs(after_a - 0.0) < 0.15  # no way to a reward from here
    assert abs(after_b - 2 / 5) < 0.15  # two of the five tokens (a, b, of a, b, ?, <pad>, <eos>) are paid


def test_a_cut_off_answer_goes_on_only_where_the_plan_says_so():
    run = small_run()
    batches = {}
    for bootstrap in (False, True):
        recipe = ppo(critic=CriticPlan(bootstrap=bootstrap))
        draft = train_module._Draft(run, recipe)
        draft.prepare_critic()
        with torch.no_grad():
            run.critic.head.bias.fill_(0.5)
        batches[bootstrap] = draft.score(draft.judge(draft.take(lag(0), None, need=16)))
    cut = ~batches[True].finished_B
    assert bool(cut.any()) and bool((~cut).any())
    assert not batches[False].bootstrap_B.any()
    assert batches[True].bootstrap_B.detach().tolist() == [0.5 if c else 0.0 for c in cut.tolist()]


# ---- a step is a transaction


def fingerprint(run) -> dict:
    def moments(optimizer):
        return [s[key].clone() for s in optimizer.state.values() for key in sorted(s)]

    return {
        "weights": weights(run),
        "optimizer": moments(run.optimizer),
        "critic": [p.detach().clone() for p in run.critic.parameters()] if run.critic else [],
        "critic_optimizer": moments(run.critic_optimizer) if run.critic else [],
        "generators": [run.generators[name].get_state() for name in sorted(run.generators)],
        "plain": [
            run.version, run.critic_only_steps, run.next_ticket, dict(run.counters), run.queue.tickets,
            len(run.history),
        ],
    }  # fmt: skip


def unchanged(a: dict, b: dict) -> bool:
    return a["plain"] == b["plain"] and all(same(a[k], b[k]) for k in a if k != "plain")


class Stop(Exception):
    pass


@pytest.mark.parametrize("call", [1, 2, 3, 6, 10])  # 2 of the critic, then 8 of the policy
@pytest.mark.parametrize("kind", [Stop, KeyboardInterrupt])
def test_an_exception_at_the_kth_optimiser_call_leaves_the_run_as_it_was_and_it_goes_on(
    call, kind, monkeypatch
):
    recipe = ppo(epochs=2, minibatches=4, critic=CriticPlan(updates=2))
    straight = after_steps(recipe, 3, arrivals=lag(1))
    run = after_steps(recipe, 1, arrivals=lag(1))
    before = fingerprint(run)
    calls = []
    real = torch.optim.AdamW.step

    def failing(self, *arguments, **keywords):
        calls.append(1)
        if len(calls) == call:
            raise kind("here")
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(torch.optim.AdamW, "step", failing)
    with pytest.raises(kind):
        step(run, recipe, arrivals=lag(1))
    assert unchanged(before, fingerprint(run))
    for _ in range(2):
        step(run, recipe, arrivals=lag(1))
    assert same(weights(run), weights(straight))
    assert [untimed(m) for m in run.history] == [untimed(m) for m in straight.history]


def test_an_interrupt_during_the_commit_waits_until_it_is_done(monkeypatch):
    run = small_run()
    real = train_module._Draft.commit

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C, just as the commit begins
        real(self)

    monkeypatch.setattr(train_module._Draft, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(run, grpo())
    assert run.version == 1 and len(run.history) == 1 and run.counters["updates"] == 1
    monkeypatch.undo()
    step(run, grpo())
    assert same(weights(run), weights(after_steps(grpo(), 2)))


def test_the_interrupt_handler_is_put_back_and_other_threads_can_train():
    mine = signal.getsignal(signal.SIGINT)
    run, errors = small_run(), []

    def other():
        try:
            step(run, grpo())
        except Exception as error:  # reported below
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    step(run, grpo())
    assert not errors and run.version == 2 and signal.getsignal(signal.SIGINT) is mine


def test_an_interrupted_train_goes_on_with_its_run():
    straight = after_steps(grpo(), 4)
    run = small_run()
    rows = train(run.policy, run.task, grpo(), steps=4, run=run, eval_every=None)
    for _ in range(3):
        next(rows)
    rows.close()  # the learner stopped the loop
    list(train(run.policy, run.task, grpo(), steps=4, run=run, eval_every=None))
    assert run.version == 4 and same(weights(run), weights(straight))


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        (grpo(group_advantage=lambda rewards_B: rewards_B * float("nan")), "advantages_BT"),
        (
            grpo(policy_loss=lambda ratio_BT, advantages_BT: ratio_BT / 0.0, eps_low=None, eps_high=None),
            "loss",
        ),
        (
            grpo(
                policy_loss=lambda ratio_BT, advantages_BT: (ratio_BT - ratio_BT.detach()).abs().sqrt(),
                eps_low=None,
                eps_high=None,
            ),
            "the gradient of model",
        ),
    ],
)
def test_what_is_not_finite_is_named_with_step_and_recipe_and_the_run_is_kept(recipe, named):
    run = after_steps(grpo(), 2)
    before = fingerprint(run)
    with pytest.raises(NonFiniteError, match=rf"step 2, recipe grpo: {named}.* is not finite"):
        step(run, recipe)
    assert unchanged(before, fingerprint(run))
    step(run, grpo())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_named_with_its_answer(value):
    class Broken(Sort):
        def reward(self, prompt, turns):
            return value

    with pytest.raises(NonFiniteError, match=rf"task sort3 gave reward {value} to '.*' for '\d+='"):
        step(small_run(Broken(3)), grpo())


def test_rewards_of_the_wrong_number_are_named():
    class Broken(Sort):
        def reward(self, prompt, turns):
            return [1.0, 2.0]

    with pytest.raises(ValueError, match="gave 2 rewards for the 1 turns"):
        step(small_run(Broken(3)), grpo())


def scalar_loss(ratio_BT, advantages_BT):
    return (ratio_BT * advantages_BT).mean()


def loss_without_gradient(ratio_BT, advantages_BT):
    return -ratio_BT.detach() * advantages_BT


def one_number_a_group(rewards_B, group_size):
    return rewards_B.view(-1, group_size).mean(1)


UNCLIPPED = {"eps_low": None, "eps_high": None}


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (grpo(group_size=5), "batch of 16 answers can't be cut into groups of 5.* a batch_size .*20 say"),
        (grpo(minibatches=3), "3 minibatches need at least as many prompts, and a batch has 2"),
        (
            grpo(policy_loss=scalar_loss, **UNCLIPPED),
            r"scalar_loss must return a tensor of shape \(16, .*not shape \(\)",
        ),
        (grpo(policy_loss=loss_without_gradient, **UNCLIPPED), "has no gradient: did you detach"),
        (
            grpo(group_advantage=one_number_a_group),
            r"one_number_a_group must return one number a row \(16,\)",
        ),
        (grpo(aggregate=lambda mask_BT: mask_BT.sum(1)), "aggregate=<lambda> must return a tensor of shape"),
        (grpo(keep=lambda rewards_B: rewards_B > 5), "keep=<lambda> kept no row"),
    ],
)
def test_recipes_that_do_not_fit_say_so_and_leave_the_run_alone(recipe, message):
    run = small_run()
    before = fingerprint(run)
    with pytest.raises(ValueError, match=message):
        step(run, recipe)
    assert unchanged(before, fingerprint(run))


def test_a_kl_term_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="keeps no reference: start"):
        step(small_run(keep_reference=False), grpo(kl=k3, kl_coef=0.1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr must lie in"),
        ({"temperature": 0.0}, "temperature must lie in"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must lie in"),
        ({"micro_batch": 0}, "micro_batch must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused_at_the_start(arguments, message):
    with pytest.raises(ValueError, match=message):
        small_run(**arguments)


# ---- slots


def test_a_learners_own_functions_are_the_ones_that_run():
    calls = []

    def mine(rewards_B, group_size):
        calls.append((len(rewards_B), group_size))
        return rewards_B - rewards_B.mean()

    def my_loss(ratio_BT, advantages_BT, *, eps_low, eps_high):
        calls.append((eps_low, eps_high))
        return clipped_surrogate(ratio_BT, advantages_BT, eps_low=eps_low, eps_high=eps_high)

    step(small_run(), grpo(group_advantage=mine, policy_loss=my_loss, eps_low=0.1, eps_high=0.3))
    assert (16, 8) in calls and (0.1, 0.3) in calls


def test_clip_fraction_is_read_from_the_gradient_of_whatever_loss_runs():
    """A one-sided clip silences only A > 0 above and A < 0 below; a two-sided mask silences the other sides too."""

    def two_sided(ratio_BT, advantages_BT):
        inside = (ratio_BT > 0.98) & (ratio_BT < 1.02)
        return torch.where(inside, -ratio_BT * advantages_BT, 0 * ratio_BT)

    masked = grpo(policy_loss=two_sided, eps_low=None, eps_high=None)
    clipped = grpo(eps_low=0.02, eps_high=0.02)
    last = {
        r: after_steps(recipe, 5, arrivals=lag(2), lr=1e-2).history[-1]
        for r, recipe in (("m", masked), ("c", clipped))
    }
    assert last["c"]["policy/masked_frac"] == 0 < last["c"]["policy/clip_frac"]
    assert last["c"]["policy/clip_frac_high"] + last["c"]["policy/clip_frac_low"] == pytest.approx(
        last["c"]["policy/clip_frac"]
    )
    assert last["m"]["policy/masked_frac"] > 0


def test_kept_rows_are_gone_from_every_denominator():
    keep_first = lambda rewards_B: torch.arange(len(rewards_B)) < 8  # noqa: E731
    kept = step(small_run(), grpo(keep=keep_first, group_advantage=group_mean_advantage))
    half = step(small_run(batch_size=8), grpo(group_advantage=group_mean_advantage))
    assert kept["optim/grad_norm"] == pytest.approx(half["optim/grad_norm"], rel=1e-9)


@pytest.mark.parametrize(
    "recipe",
    [
        grpo(),
        grpo(ratio=sequence_rollout_ratio, eps_low=3e-4, eps_high=4e-4),
        grpo(kl=corrected_k3, kl_coef=0.1),
        grpo(weight=lambda ratio_BT: ratio_BT.detach().clamp(max=2.0)),
        grpo(epochs=2, minibatches=2, ratio=rollout_ratio, delta=4.0),
        grpo_recomputed(epochs=2),
        ppo(critic=CriticPlan(warmup=1)),
        reinforce(),
    ],
)
def test_every_reported_number_is_in_the_glossary(recipe):
    run = small_run()
    for row in train(run.policy, run.task, recipe, steps=1, run=run, eval_every=None):
        assert set(row) <= set(GLOSSARY)
        assert all(isinstance(v, (int, float)) for v in row.values())


def test_training_leaves_the_global_random_numbers_alone():
    state = torch.get_rng_state()
    after_steps(ppo(critic=CriticPlan(warmup=0)), 1)
    assert torch.equal(state, torch.get_rng_state())


def test_same_seed_same_run_and_another_seed_another():
    a, b, c = after_steps(grpo(), 2), after_steps(grpo(), 2), after_steps(grpo(), 2, seed=1)
    assert same(weights(a), weights(b)) and not same(weights(a), weights(c))


def test_recipes_are_frozen_values():
    with pytest.raises(dataclasses.FrozenInstanceError):
        grpo().group_size = 4
    assert isinstance(grpo(), Recipe)


def test_evaluation_asks_held_out_prompts_at_fixed_noise(monkeypatch):
    monkeypatch.setattr(train_module, "EVAL_PROMPTS", 50)
    run = small_run()
    first = train_module.evaluate(run.policy, run.task, n=50)
    assert first == train_module.evaluate(run.policy, run.task, n=50)
    asked = []
    real = run.task.prompts
    run.task.prompts = lambda n, **k: asked.append(k["split"]) or real(n, **k)
    list(train(run.policy, run.task, grpo(), steps=2, run=run, eval_every=1))
    assert asked == ["held_out", "train", "held_out", "train", "held_out", "held_out"]


# ---- what was once silently wrong


class Pays(Sort):
    """Every answer is paid the same."""

    def reward(self, prompt, turns):
        return 1.0


def extra_field(ratio_BT, advantages_BT, tokens_BT=None, logp_BT=None):
    loss_BT = -ratio_BT * advantages_BT
    return loss_BT if tokens_BT is None else loss_BT + 0.5 * logp_BT


def paid_for_nothing(ratio_BT, advantages_BT, logp_BT):
    return -ratio_BT * advantages_BT + 0.5 * logp_BT


@pytest.mark.parametrize("loss", [extra_field, paid_for_nothing])
def test_a_loss_that_pulls_without_an_advantage_keeps_its_dead_rows(loss):
    metrics = step(small_run(Pays(3)), grpo(policy_loss=loss, **UNCLIPPED))
    assert metrics["batch/trained_frac"] == 1 and metrics["optim/grad_norm"] > 1e-3


def test_a_weight_that_pulls_and_a_loss_that_mixes_rows_keep_their_dead_rows():
    def constant(ratio_BT, advantages_BT):
        return -ratio_BT.detach() * advantages_BT + 1.0

    def mixing(ratio_BT, advantages_BT):
        return -ratio_BT * (advantages_BT - advantages_BT.mean())

    weighted = grpo(policy_loss=constant, weight=lambda logp_BT: logp_BT.exp(), **UNCLIPPED)
    assert step(small_run(Pays(3)), weighted)["optim/grad_norm"] > 1e-3
    metrics = step(small_run(), grpo(policy_loss=mixing, group_size=2, **UNCLIPPED))
    assert metrics["group/zero_variance_frac"] > 0 and metrics["batch/trained_frac"] == 1


def test_bounds_of_none_are_off_and_not_the_defaults():
    loss = grpo(eps_low=None, eps_high=None).policy_loss
    ratio_BT, advantages_BT = torch.tensor([[2.0, 0.1]]), torch.tensor([[1.0, -1.0]])
    torch.testing.assert_close(
        loss(ratio_BT=ratio_BT, advantages_BT=advantages_BT), torch.tensor([[-2.0, 0.1]])
    )


def test_keeping_single_rows_leaves_advantages_and_metrics_those_of_whole_groups():
    dropped = lambda rewards_B: torch.arange(len(rewards_B)) % 8 != 0  # noqa: E731
    whole, part = step(small_run(), grpo()), step(small_run(), grpo(keep=dropped))
    for name in ("reward/mean", "group/zero_variance_frac", "group/reward_std"):
        assert whole[name] == part[name]
    with pytest.raises(ValueError, match="keep=<lambda> left 1 prompts for 2 minibatches"):
        step(small_run(), grpo(minibatches=2, keep=lambda prompt_B: prompt_B == 0))


def test_weights_that_are_not_finite_never_count_as_a_step():
    run = small_run()
    before = fingerprint(run)
    run.lr = 1e308
    with pytest.raises(NonFiniteError, match="the change of the weights|is not finite"):
        step(run, grpo())
    run.lr = 1e-3
    assert unchanged(before, fingerprint(run))
    with torch.no_grad():
        run.policy.parameters()[0].fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="logp_rollout_BT is not finite"):
        step(run, grpo())


def test_a_run_goes_on_only_as_what_it_is():
    run = after_steps(grpo(), 2)
    with pytest.raises(ValueError, match=r"\['lr', 'batch_size'\] belong to `start`"):
        next(train(run.policy, run.task, grpo(), steps=3, run=run, lr=9.0, batch_size=8))
    with pytest.raises(ValueError, match="plays another task"):
        next(train(run.policy, Digits(3), grpo(), steps=3, run=run))
    with pytest.raises(ValueError, match="has had 2 updates already"):
        next(train(run.policy, run.task, grpo(), steps=1, run=run))


@pytest.mark.parametrize("reward", [None, "1", [1.0, "x"], 1j])
def test_a_reward_that_is_no_number_is_named_in_training_and_in_evaluation(reward):
    class Broken(Sort):
        def reward(self, prompt, turns):
            return reward

    run = small_run(Broken(3))
    with pytest.raises(ValueError, match="task sort3 gave . rewards for the 1 turns of"):
        step(run, grpo())
    with pytest.raises(ValueError, match="task sort3 gave . rewards for the 1 turns of"):
        train_module.evaluate(run.policy, run.task, n=2)


def test_what_is_no_recipe_and_no_arrivals_says_what_was_wanted():
    with pytest.raises(ValueError, match=r"takes a Recipe.*call it: grpo\(\)"):
        step(small_run(), grpo)
    with pytest.raises(ValueError, match=r"such as lag\(4\), not 4"):
        step(small_run(), grpo(), arrivals=4)


def test_a_frozen_part_that_no_parameter_has_is_refused():
    with pytest.raises(ValueError, match="frozen='mixer' is part of no parameter's name"):
        step(small_run(), ppo(critic=CriticPlan(frozen=("mixer",))))
    with pytest.raises(ValueError, match="frozen is a tuple of parts"):
        CriticPlan(frozen="attn")
    assert CriticPlan(frozen=["attn"]).frozen == ("attn",)


def test_a_prompt_that_is_too_long_for_the_model_is_refused():
    run = small_run(Sort(30))
    run.policy.model.config.max_position_embeddings = 40
    with pytest.raises(
        ValueError, match="31 tokens and an answer of up to 31 make 62; the model has positions for 40"
    ):
        step(run, grpo())
