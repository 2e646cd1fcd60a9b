# %% [markdown]
# # 02 · The policy gradient
#
# All you have is answers and their rewards. This chapter shows which way to push each probability, first with three
# answers that you can count, then with answers of many tokens.
#
# - **You need:** log-probabilities and masks (01). The second half can be read right after 00.
# - **You will be able to:** derive the estimator, write it and its per-token reward; say what a baseline buys and when
#   it costs; read a loss without being fooled by it.
# - **Minutes:** 75; about 40 for the first half, 35 for the second.

# %% tags=["setup"]
import os

import torch

from grpo_lab.concepts import policy_gradient as package
from grpo_lab.engine import policy as policies
from grpo_lab.engine import recipes, recording, rollout, tasks, train, warm_start
from grpo_lab.teach import checks, explorer, loop, pictures, plots, predict, quiz, reveal

# %% tags=["plot"]
loop.loop("loss")

# %% [markdown]
# # First half: one action
#
# ## Which way is up, if you may count everything?
#
# The smallest policy: three answers a, b, c, and three numbers z that softmax turns into probabilities π (pi). Such a
# task is called a *bandit*, after slot machines with an arm to pull. Here π = 0.5, 0.3, 0.2 and the rewards R are
# 1, 0, 2. What we want to raise is the *expected reward*:
#
# $$J = \sum_v \pi_v R_v = 0.5 \cdot 1 + 0.3 \cdot 0 + 0.2 \cdot 2 = 0.9$$
#
# With three answers the slope of J in each z can be worked out: $\pi_v (R_v - J)$. For c: 0.2 · (2 − 0.9) = 0.22. The
# cell lets autograd check that formula.

# %% tags=["demo"]
R_V = torch.tensor([1, 0, 2], dtype=torch.float64)  # the rewards of a, b, c
z_V = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log().requires_grad_()
pi_V = z_V.softmax(-1)
J = (pi_V * R_V).sum()
(exact_V,) = torch.autograd.grad(J, z_V)  # the derivative, by autograd
pi_V, J = pi_V.detach(), J.detach()
print(f"J = {J:.3f}")
print("slope by autograd ", "  ".join(f"{x:+.3f}" for x in exact_V))
print("pi * (R - J)      ", "  ".join(f"{x:+.3f}" for x in pi_V * (R_V - J)))

# %% [markdown]
# Raise c's z (+0.220), lower b's (−0.270), leave a's nearly alone (+0.050). These three numbers are the *gradient* of
# J. The likeliest answer a gets little: its reward, 1, is barely above the average 0.9.
#
# ## How can samples know that slope?
#
# A language model has more answers than can be counted, so the sum over v must become an average over samples. An
# average weighs each answer by π. But what stands in the sum is the *slope* of π, written ∇π. Four small steps, with
# the numbers of c in its own z (softmax has the slope π · (1 − π) there):
#
# 1. Only π depends on z, so the slope of J is $\sum_v R_v \nabla \pi_v$. Here ∇π = 0.2 · 0.8 = 0.16.
# 2. Multiply and divide by π: $\nabla\pi = \pi \cdot \frac{\nabla\pi}{\pi}$, that is 0.2 · (0.16 / 0.2) = 0.2 · 0.8.
# 3. The slope of log x is 1/x, so $\frac{\nabla\pi}{\pi} = \nabla \log \pi$. For c that is 0.8.
# 4. Now a π stands in front of every term, and such a sum is an average over samples, written 𝔼:
#
# $$\nabla J = \sum_v \pi_v \, R_v \nabla \log \pi_v = \mathbb{E}[R \, \nabla \log \pi]$$
#
# So: draw an answer, take the slope of *its* log-probability, multiply by *its* reward. That is an *estimate*: wrong
# each time, right on average. The method is called *REINFORCE*.
#
# In code, for all z at once: the slope of $\log \pi_v$ is $1 - \pi_v$ in its own z, and minus the other's π in each
# other z. For c: −0.5, −0.3, +0.8. Times its reward 2, that is the row of c below.

# %% tags=["demo"]
slope_VV = torch.eye(3, dtype=torch.float64) - pi_V  # row v: the slope of log pi_v in each z
estimate_VV = R_V[:, None] * slope_VV
for v, name in enumerate("abc"):
    numbers = "  ".join(f"{x:+z.2f}" for x in estimate_VV[v])
    print(f"{name} comes with probability {pi_V[v]:.1f} and says  {numbers}")
print("the average of what they say  ", "  ".join(f"{x:+.3f}" for x in pi_V @ estimate_VV))

# %% [markdown]
# No answer says +0.050, −0.270, +0.220. Their average does. Answer b has reward 0 and says nothing at all; that b
# should be lowered is known only because a and c were raised and the probabilities add up to 1.
#
# ## Exercise: `policy_gradient` (8 minutes, easy)
#
# Optimisers walk *down* a loss, so the loss is $-A \cdot \mathrm{logp}$ for each token. A, the *advantage*, is
# whatever multiplies the slope: R here, other things soon.
#
# **In:** `logp_BT`, `advantages_BT`, `mask_BT` (True on the policy's own tokens), all (B, T). **Out:** `loss_BT`, 0
# off the mask. **Worked line:** logp −1 with A = 0.5 gives 0.5; logp −2 with A = −1 gives −2. **Done when** the check
# says so.
#
# *Hint: which of the two factors is the policy's, and may a slope flow into the other? Off the mask may stand nan, and
# 0 · nan is nan, in the slope too: must you choose before you multiply, or after?*


# %% tags=["exercise"]
def policy_gradient(logp_BT, advantages_BT, mask_BT):
    raise NotImplementedError("yours: minus A times logp, on the mask")


# %% tags=["check"]
policy_gradient = checks.check_policy_gradient(policy_gradient, otherwise=package.policy_gradient)

# %% tags=["demo"]
reveal.reveal(package.policy_gradient)

# %% [markdown]
# ## How many samples does it take?
#
# The estimate of one answer is far off. The mean of n answers is closer. How much closer?

# %% tags=["widget"]
bet_samples = predict.Bet(
    "02-samples",
    "16 answers leave a typical error of 0.23. How many answers leave half of that?",
    choices=["23", "32", "64", "256"],
)
bet_samples

# %% tags=["demo"]
chance = torch.Generator().manual_seed(2)
u_KN = torch.rand(200, 256, generator=chance, dtype=torch.float64)
arms_KN = torch.searchsorted(pi_V.cumsum(0), u_KN).clamp(max=2)  # 200 batches of 256 sampled answers


def typical_error(n, b=0.0):
    """Root mean square distance of one batch's estimate from the exact gradient: of the 200 batches, and exact."""
    estimates_KV = ((R_V - b)[:, None] * slope_VV)[arms_KN[:, :n]].mean(1)
    measured = (estimates_KV - exact_V).square().sum(1).mean().sqrt()
    return measured, (noise(b) / n).sqrt()


def noise(b):
    """The variance of one answer's estimate, all three slopes added up, by counting the three answers."""
    return pi_V @ ((R_V - b).square() * slope_VV.square().sum(1)) - exact_V.square().sum()


for n in (1, 4, 16, 64, 256):
    print(f"n = {n:3d}: measured {typical_error(n)[0]:.3f}, exact {typical_error(n)[1]:.3f}")
bet_samples.reveal(
    "64",
    because="The error falls like 1/√n: four times the answers, half the error. Twice as many is the natural "
    "guess. But errors cancel only in part: their sum grows like √n, and the mean divides it by n.",
)

# %% [markdown]
# The gradient itself is 0.35 long. One answer misses it by 0.92, 256 answers by 0.06. The error squared is the
# *variance*, here also called noise: 0.92² = 0.85 for one answer. Answers are dear, so the next question is how to need
# fewer of them.
#
# ## What does a baseline change?
#
# Subtract one number b from every reward, and the estimate becomes $(R - b)\,\nabla\log\pi$. On average nothing
# changes, because the slopes of log π average to zero. For a's own slope: 0.5 · 0.5 − 0.3 · 0.5 − 0.2 · 0.5 = 0.
# (Probabilities add up to 1, and the slope of 1 is 0.) Such a b is a *baseline*. It must not depend on which answer
# was drawn.

# %% tags=["widget"]
bet_baseline = predict.Bet(
    "02-baseline",
    "b = J = 0.9, the average reward. One answer's variance without a baseline is 0.85. With it?",
    choices=["0.85, the mean has not changed", "about 0.6", "about 0.3", "0"],
)
bet_baseline

# %% tags=["demo"]
length2_V = slope_VV.square().sum(1)  # squared length of each answer's slope
best = (pi_V @ (R_V * length2_V)) / (pi_V @ length2_V)
for name, b in (("none", 0.0), ("J", J), ("best", best), ("2", 2.0), ("-9", -9.0)):
    mean_V = pi_V @ ((R_V - b)[:, None] * slope_VV)
    numbers = "  ".join(f"{x:+.3f}" for x in mean_V)
    print(f"b = {name:4s} ({b:+.3f}): mean {numbers}   variance {noise(b):7.3f}")
bet_baseline.reveal(
    "about 0.3",
    because="The mean is the same and the variance falls from 0.850 to 0.305. '0.85' is a fair guess: the mean "
    "stays, so why not the spread? But R − b is what multiplies: 1, 0, 2 become 0.1, −0.9, 1.1. A bad baseline "
    "does harm: with −9, all three answers shout 'raise me', and only their difference counts.",
)

# %% [markdown]
# The best constant is not the mean of R, but a mean in which each answer counts by the squared length of its slope:
#
# $$b^* = \frac{\mathbb{E}[R\,|\nabla\log\pi|^2]}{\mathbb{E}[|\nabla\log\pi|^2]}$$
#
# Here it is 0.939, and J = 0.9 is nearly as good: 0.305 against 0.304. Keep the formula in mind.


# %% tags=["demo"]
def draw_cloud(fig, *, n, b):
    left, right = fig.axes or fig.subplots(1, 2)
    cloud_KV = ((R_V - b)[:, None] * slope_VV)[arms_KN[:, :n]].mean(1)
    explorer.line(
        left, "cloud", cloud_KV[:, 0], cloud_KV[:, 2], color=pictures.BLUE, marker=".", ls="", alpha=0.5
    )
    explorer.line(left, "exact", exact_V[:1], exact_V[2:], color=pictures.ORANGE, marker="X", ls="", ms=11)
    sizes = [2**i for i in range(9)]
    errors = [(noise(b) / size).sqrt() for size in sizes]
    explorer.line(right, "all", sizes, errors, color=pictures.BLUE)
    explorer.line(right, "here", [n], [(noise(b) / n).sqrt()], color=pictures.ORANGE, marker="o", ls="", ms=9)
    if not left.get_xlabel():
        left.set(xlim=(-1.15, 1.15), ylim=(-0.9, 1.75))
        right.set(xlim=(0.8, 320), ylim=(0.02, 3), xscale="log", yscale="log")
        right.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        right.set_yticks([0.03, 0.1, 0.3, 1, 3], ["0.03", "0.1", "0.3", "1", "3"])
        right.minorticks_off()
        pictures.tidy(left, title="200 estimates; X: exact", xlabel="slope for a", ylabel="slope for c")
        pictures.tidy(
            right, title="Typical error", xlabel="answers n in one estimate", ylabel="root mean square"
        )
        fig.subplots_adjust(wspace=0.3)


# %% tags=["widget"]
def describe_cloud(*, n, b):
    error, length = (noise(b) / n).sqrt(), exact_V.norm()
    return (
        f"n = {n}, baseline {b:.1f}: the typical error is {error:.2f}, the gradient itself {length:.2f} long. "
        f"Without a baseline the same error takes {noise(0.0) / noise(b):.2f} times as many answers."
    )


explorer.Explorer(
    draw_cloud,
    describe_cloud,
    question="How far from the exact gradient is an estimate?",
    n=explorer.whole(16, 1, 256, "answers in one estimate"),
    b=explorer.number(0.9, 0.0, 2.0, "baseline", step=0.1),
)

# %% [markdown]
# 16 answers with the baseline 0.9 do what takes 16 · 2.79 = 45 without one. Put b on 2: now the baseline does harm.
# Put n on 1: the 200 estimates lie on three spots, one for each answer.
#
# ## Your function in the trainer: a bandit that pays 9, 9 or 10
#
# Same question on a real network, a small transformer of 17 thousand weights: 60 updates of 16 answers. The best
# answer pays 10, the other two pay 9. Without a baseline, and with the mean of the batch as one. (The trainer reads
# the names of your parameters: `rewards_B` brings one reward an answer, `rewards_BT` one a token.)

# %% tags=["train"]
task = tasks.Bandit((9.0, 9.0, 10.0))
paid = {}
for name, advantage in (
    ("no baseline", lambda rewards_B: rewards_B),
    ("mean subtracted", lambda rewards_B: rewards_B - rewards_B.mean()),
):
    recipe = recipes.reinforce(policy_loss=policy_gradient, advantage=advantage)
    small = policies.build_policy(task, "XS", seed=0)
    rows = train.train(small, task, recipe, steps=60, lr=1e-2, seed=0, eval_every=None, batch_size=16)
    paid[name] = [row["reward/mean"] for row in rows if row["step"]]

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained just now in float32, which differs in the last digits from machine to machine
for name, rewards in paid.items():
    tens = [sum(rewards[i : i + 10]) / 10 for i in range(0, len(rewards) - 9, 10)]
    print(f"{name:15s} mean reward of each ten updates: ", "  ".join(f"{x:.2f}" for x in tens))
if not os.environ.get("GRPO_LAB_FAST"):
    last = {name: sum(rewards[-10:]) / 10 for name, rewards in paid.items()}
    assert last["mean subtracted"] > 9.8 and last["no baseline"] < 9.6, last

# %% [markdown]
# With the mean subtracted the run ends at 10. Without, it ends at 9: each answer that comes up is praised with 9 or
# more, so what comes up first is made likelier, comes up more, and wins. On this toy we ran seeds 0 to 4: without a
# baseline four of five got stuck near 9, with it none. (The first rewards lie below 9 because the network can also
# write "?" or an end token, which pay 0.)
#
# ## Is the mean a good baseline for a language model?
#
# Now a real batch: 128 recorded answers of the sorting policy from 00, one to each of 128 prompts, 58 of them right.
# Take a whole answer as one action. Its log-probability has a slope in each of the 109,952 weights. We recorded the
# dot products of these slopes, answer with answer: all that lengths need. So the noise at every baseline b can be
# worked out exactly for this batch.

# %% tags=["widget"]
bet_real = predict.Bet(
    "02-real-baseline",
    "Rewards 0 and 1, mean 0.45. Which of these baselines leaves the least noise in the real gradient?",
    choices=["0, no baseline", "0.45, the mean", "1"],
)
bet_real

# %% tags=["demo"]
real = recording.read_recording("reinforce")  # made by: grpo-lab record reinforce
real_R_B, gram_BB = real["rewards_B"].double(), real["gram_BB"].double()
length2_B = gram_BB.diagonal()  # squared length of each answer's slope
right_B = real_R_B == 1


def real_noise(b):
    """Variance of (R - b) * slope over the batch's answers, all weights added up."""
    push_B = real_R_B - b
    return (push_B.square() * length2_B).mean() - push_B @ gram_BB @ push_B / len(push_B) ** 2


for b in (-9.0, 0.0, 0.05, 0.45, 1.0):
    print(f"b = {b:5.2f}: noise {real_noise(b) / real_noise(0.0):9.2f} times that without a baseline")
best_real = (real_R_B @ length2_B) / length2_B.sum()
print(f"best by the formula: {best_real:.2f}; mean reward {real_R_B.mean():.2f}")
print(f"mean squared slope: right {length2_B[right_B].mean():,.0f}, wrong {length2_B[~right_B].mean():,.0f}")
bet_real.reveal(
    "0, no baseline",
    because="The mean reward makes the noise four times larger. Betting on it was reasonable: in the bandit it "
    "was as good as the best. The formula knew: the slopes of wrong answers are long, so the best b lies near "
    "their reward, 0.",
)

# %% [markdown]
# A wrong answer here holds an unlikely token: its log-probability is −4.6 on average, a right one's −0.7. And the
# slope of log π is long where π is small: a wrong answer's squared length is 15 times a right one's. The baseline 0
# gives the wrong ones the weight 0. (It is one batch, and one wrong answer alone holds 16 % of all squared length: 4.08
# is no law.)


# %% tags=["demo"]
def draw_real(fig, *, b):
    left, right = fig.axes or fig.subplots(1, 2, width_ratios=[1.6, 1])
    grid = [i / 50 for i in range(-50, 51)]
    explorer.line(left, "noise", grid, [real_noise(x) / real_noise(0.0) for x in grid], color=pictures.BLUE)
    here = [real_noise(b) / real_noise(0.0)]
    explorer.line(left, "here", [b], here, color=pictures.ORANGE, marker="o", ls="", ms=9)
    part_B = (real_R_B - b).square() * length2_B / ((real_R_B - b).square() * length2_B).sum()
    parts = [part_B[right_B].sum(), part_B[~right_B].sum()]
    explorer.bars(right, "parts", ["58 right", "70 wrong"], parts, color=pictures.BLUE, width=0.6)
    if not left.get_xlabel():
        left.set(ylim=(0.7, 40), yscale="log")
        left.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        left.minorticks_off()
        right.set_ylim(0, 1)
        pictures.tidy(left, title="Noise (1 = no baseline)", xlabel="baseline b", ylabel="times")
        pictures.tidy(right, title="Who makes it", ylabel="share of the noise")
        fig.subplots_adjust(wspace=0.3)


# %% tags=["widget"]
def describe_real(*, b):
    part_B = (real_R_B - b).square() * length2_B
    share = part_B[~right_B].sum() / part_B.sum()
    return (
        f"Baseline {b:.2f}: a right answer is pushed by {1 - b:+.2f}, a wrong one by {-b:+z.2f}. The noise is "
        f"{real_noise(b) / real_noise(0.0):.2f} times that without a baseline; "
        f"{share:.0%} of it comes from wrong answers."
    )


explorer.Explorer(
    draw_real,
    describe_real,
    question="Which baseline suits these 128 real answers?",
    b=explorer.number(0.45, -1.0, 1.0, "baseline", step=0.05),
)

# %% [markdown]
# Noise is one thing, progress another. So here are real runs of the same task, recorded: three advantages, three
# seeds, 40 updates of 128 answers. "R + 9" has 9 added to each reward, the same as b = −9. Nothing else changes.

# %% tags=["plot"]
passed_ASN = real["reward_ASN"].double()
three = {name: passed_ASN[i] for i, name in enumerate(("no baseline", "mean subtracted", "R + 9"))}
fours = {name: passed_SN.reshape(3, 10, 4).mean(-1) for name, passed_SN in three.items()}
plots.lines(
    [2.5 + 4 * i for i in range(10)],
    {name: (four_SN.mean(0), four_SN.std(0) / 3**0.5) for name, four_SN in fours.items()},
    title="Adding 9 to every reward ruins the run; the mean is no gain here",
    xlabel="policy updates (means of four)",
    ylabel="share of right answers",
    ylim=(0, 1),
    reading="Lines: mean of 3 seeds; bars: one standard error. Last ten batches, mean (seed by seed): "
    + "; ".join(
        f"{name} {x[:, -10:].mean():.2f} ({', '.join(f'{seed:.2f}' for seed in x[:, -10:].mean(1))})"
        for name, x in three.items()
    )
    + ".",
)

# %% [markdown]
# On this toy, from this warm start, no baseline wins: 0.72 against 0.62 with the mean, and so in each of three seeds.
# That agrees with the noise. Why, then, does almost everybody subtract something? Look at R + 9: right answers are
# still worth 1 more than wrong ones, and the policy is ruined (0.03). With rewards of 0 and 1, b = 0 happens to lie
# near the best b. The mean doesn't depend on such luck: 9 more in every reward is 9 more in the mean, and R − b stays.
#
# A number for each *prompt* is a better idea than one for all: chapter 04 learns it, chapter 05 takes it from other
# answers to the same prompt. (The small print: the trainer shortens each gradient whose length, its *norm*, is
# above 1, so these runs differ in direction more than in step size. And the mean of a batch does hold the answer's own
# reward: on average that shrinks the gradient by 1/128.)
#
# ## Why is a falling loss no progress?
#
# Back to the first bandit, without sampling. Start at equal probabilities and climb the exact gradient. On the way,
# write down the average of the loss −(R − b) · log π for several b. The gradient is the same for all, and so is the
# policy at every step.

# %% tags=["demo"]
z_V, path_NV = torch.zeros(3, dtype=torch.float64), []
for _ in range(61):
    path_NV.append(z_V.log_softmax(-1))
    pi_now_V = path_NV[-1].exp()
    z_V = z_V + 0.5 * pi_now_V * (R_V - pi_now_V @ R_V)  # a step of 0.5 along the exact gradient
path_NV = torch.stack(path_NV)  # log pi at each step
J_N = path_NV.exp() @ R_V
norm_N = (path_NV.exp() * (R_V - J_N[:, None])).norm(dim=1)


def loss_path(b):
    """The average of -(R - b) * log pi at each step; b is a number, or one a step."""
    return -(path_NV.exp() * (R_V - torch.as_tensor(b).reshape(-1, 1)) * path_NV).sum(1)


print("step  J      loss b=0  loss b=J  loss b=2  gradient norm")
for i in (0, 8, 20, 40, 60):
    three_losses = "    ".join(f"{loss_path(b)[i]:+z.3f}" for b in (0.0, J_N, 2.0))
    print(f"{i:4d}  {J_N[i]:.3f}  {three_losses}    {norm_N[i]:.3f}")


# %% tags=["widget"]
def draw_losses(fig, *, b):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    explorer.line(ax, "J", range(61), J_N, color=pictures.BLUE, linewidth=2)
    explorer.line(ax, "mean", range(61), loss_path(J_N), color=pictures.ORANGE, linestyle="--", linewidth=2)
    explorer.line(ax, "dial", range(61), loss_path(b), color=pictures.BLACK, linestyle="-.", linewidth=2)
    if not ax.get_xlabel():
        fig.subplots_adjust(right=0.78)
        ax.set(xlim=(0, 60), ylim=(-2.4, 2.4))
        ax.text(61, 1.97, "J, the reward", color=pictures.BLUE, va="center")
        ax.text(61, 0.28, "loss, b of the dial", color=pictures.BLACK, va="center")
        ax.text(61, -0.32, "loss, b = J", color=pictures.ORANGE, va="center")
        pictures.tidy(ax, title="One climb, one gradient, any loss you like", xlabel="step", ylabel="value")


def describe_losses(*, b):
    first, last = loss_path(b)[0], loss_path(b)[-1]
    return (
        f"Baseline {b:.1f}: the loss goes from {first:z.2f} to {last:z.2f}, J from {J_N[0]:.2f} to {J_N[-1]:.2f} "
        "whatever the baseline."
    )


explorer.Explorer(
    draw_losses,
    describe_losses,
    question="What does the loss do while the policy gets better?",
    b=explorer.number(2.0, -1.0, 3.0, "baseline", step=0.1),
)

# %% [markdown]
# - **A loss of 0 at the start is normal.** With b = J it is 0.000 at step 0, and the gradient norm is 0.471. The
#   pushes R − b add up to 0; pushes times slopes don't.
# - **A loss that rises is normal.** With b = 2 it climbs from −1.10 towards 0 while J climbs too.
# - **A negative loss is normal.** log π is below 0, so −A · log π has the sign of A.
#
# The loss is built to have the right *slope* at one point, for samples of this very policy. After the update there are
# new samples, and it is another function. The number to plot is the reward.
#
# Your own function says the same, on eight answers of which three are right, at p = 0.5 for right and for wrong. Below
# it, three of the recorded runs (seed 0, means of five batches):

# %% tags=["demo"]
eight_B1 = torch.tensor([1, 0, 0, 1, 0, 0, 1, 0], dtype=torch.float64)[:, None]
logit = torch.zeros((), dtype=torch.float64, requires_grad=True)  # of "right": p = 0.5
logp_B1 = torch.where(eight_B1 == 1, logit, -logit).sigmoid().log()
loss_B1 = policy_gradient(logp_B1, eight_B1 - eight_B1.mean(), torch.ones(8, 1, dtype=torch.bool))
(slope,) = torch.autograd.grad(loss_B1.mean(), logit)
assert abs(loss_B1.mean()) < 1e-6 and abs(slope) > 0.1
print(f"loss {loss_B1.mean():z.3f}, and its slope is {slope:.3f}: the step raises the right answers\n")
for i, name in enumerate(three):
    passed, losses = passed_ASN[i, 0], real["loss_ASN"][i, 0].double()
    print(
        f"{name:15s} right {passed[:5].mean():.2f} → {passed[-5:].mean():.2f}"
        f"   loss {losses[:5].mean():+6.2f} → {losses[-5:].mean():+6.2f}"
    )

# %% [markdown]
# The eight: loss 0.000, slope −0.234. The runs: the best one's loss falls from 0.32 to 0.20. The next one's is negative
# and stays near −1, while it learns. The ruined one's is above 30.
#
# # Second half: many actions
#
# If you come straight from 00, this is what you need (and run the cells above once, *Run All Above Selected Cell*):
#
# - A policy gives each next token a probability π; `logp` is its logarithm. It computes π with softmax from numbers z,
#   the *logits*. J is the *expected reward*, the average over all answers, each weighed by its probability.
# - The slope of J (its gradient, ∇J) is the average over samples of *advantage A × slope of logp*, so the loss is
#   `-A * logp`. One sample's product is an *estimate*; how far it scatters about the average, squared, is its
#   *variance*.
# - A number that doesn't depend on the token drawn, a *baseline*, may be subtracted from A: the average stays.
# - Tensors called `..._BT` have a row for each answer of the batch and a column for each token. `mask_BT` is True
#   where the policy itself wrote the token; each answer closes with an *end token*, which is one of these.
#
# ## What is an action, if the answer has many tokens?
#
# An answer of two tokens, each a or b, to the prompt "?". Five words:
#
# - The **state** is what stands there so far: "?", then "?a" or "?b".
# - The **action** is the next token. The **policy** π gives its probability in this state.
# - The **episode** is one answer from the prompt to its end. Its tokens are the **trajectory**, the path taken.
# - Its probability is a *product* over tokens, so its log-probability is a *sum*.
#
# By hand, for "bb": 0.4 · 0.75 = 0.3, and −0.916 − 0.288 = −1.204 = log 0.3.

# %% tags=["demo"]
pi_SV = torch.tensor(
    [[0.6, 0.4], [0.5, 0.5], [0.25, 0.75]], dtype=torch.float64
)  # states ?, ?a, ?b; tokens a, b
tree = tasks.Tree((0.0, 1.0, 0.0, 2.0))  # what aa, ab, ba, bb pay
first_B, second_B = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])


def tree_logp(z_SV):
    """logp_BT of the four answers: token 0 in state ?, token 1 in state ?a or ?b."""
    logp_SV = z_SV.log_softmax(-1)
    return torch.stack([logp_SV[0, first_B], logp_SV[1 + first_B, second_B]], 1)


logp_BT = tree_logp(pi_SV.log())
P_B = logp_BT.sum(1).exp()  # the probability of each answer
R_B = torch.tensor(list(tree.rewards.values()), dtype=torch.float64)
for answer, (one, two), P, R in zip(tree.rewards, logp_BT.tolist(), P_B, R_B, strict=True):
    print(f"{answer}: logp {one:.3f} + {two:.3f} = {one + two:.3f}   probability {P:.2f}   reward {R:.0f}")
print(f"J = {P_B @ R_B:.2f}")

# %% [markdown]
# ## Why does one reward push every token?
#
# Take the whole answer as *one* action, with probability P and reward R. It says $R\,\nabla \log P$. And log P is a
# sum over tokens, so its slope is a sum too:
#
# $$R \, \nabla \log P = R \, \nabla \mathrm{logp}_0 + R \, \nabla \mathrm{logp}_1 + \dots$$
#
# R multiplies each term. Nobody decided that each token earned R; it falls out of the sum. A token that the policy did
# not write, the reply of a tool say, has no π of ours in it, so its term is missing: that is the mask. Now the check
# that matters: the exact slope against the average of what the four answers say. Printed are the slopes in the three
# logits of b; those of a are the same with the other sign.

# %% tags=["demo"]
own_BT = torch.ones(4, 2, dtype=torch.bool)


def tree_estimates(advantages_BT):
    """What each of the four answers says about the six logits, one row an answer."""
    rows = []
    for b in range(4):
        z_SV = pi_SV.log().requires_grad_()
        loss_BT = policy_gradient(tree_logp(z_SV), advantages_BT, own_BT)
        rows.append(-torch.autograd.grad(loss_BT[b].sum(), z_SV)[0].flatten())
    return torch.stack(rows)


def tree_slope(rewards_B):
    """The exact slope of J in the six logits."""
    z_SV = pi_SV.log().requires_grad_()
    return torch.autograd.grad((tree_logp(z_SV).sum(1).exp() * rewards_B).sum(), z_SV)[0].flatten()


average = P_B @ tree_estimates(R_B[:, None].expand(4, 2))
for name, slope_Z in (("exact slope of J", tree_slope(R_B)), ("average estimate", average)):
    print(f"{name}: for b in ?, ?a, ?b:", "  ".join(f"{x:+.3f}" for x in slope_Z[1::2]))

# %% [markdown]
# Equal: +0.240, +0.150, +0.150. The first token's +0.240 comes out although no reward was given for it: answers that
# begin with b are worth 1.5 on average, those with a 0.5, and 0.24 is 0.4 · 0.6 · (1.5 − 0.5).
#
# ## Which rewards may a token forget?
#
# Now let rewards come on the way: 2 at the first token if it is a, and at the second what the answer pays, as before.
# J is the average of their sum. Three ways to give each token its A:
#
# 1. the whole answer's reward, both added up;
# 2. *reward-to-go*: what came at this token or after it;
# 3. its own reward only.

# %% tags=["widget"]
bet_go = predict.Bet(
    "02-reward-to-go",
    "Which of the three has the exact slope of J as its average?",
    choices=["1 only", "1 and 2", "2 only", "all three"],
)
bet_go

# %% tags=["demo"]
rewards_BT = torch.stack([2.0 * (first_B == 0), R_B], 1)  # 2 for an a first; the path's own at the end
whole_BT = rewards_BT.sum(1, keepdim=True).expand(4, 2)
to_go_BT = torch.stack([rewards_BT.sum(1), rewards_BT[:, 1]], 1)
exact_Z = tree_slope(rewards_BT.sum(1))
print("exact slope of J          ", "  ".join(f"{x:+.3f}" for x in exact_Z[1::2]))
for name, A_BT in (
    ("1 whole reward", whole_BT),
    ("2 reward-to-go", to_go_BT),
    ("3 own reward only", rewards_BT),
):
    said_BZ = tree_estimates(A_BT)
    mean_Z = P_B @ said_BZ
    variance = P_B @ (said_BZ - mean_Z).square().sum(1)
    print(f"{name:18s} average", "  ".join(f"{x:+.3f}" for x in mean_Z[1::2]), f"  variance {variance:.3f}")
bet_go.reveal(
    "1 and 2",
    because="A reward that came before the token does not depend on it: a baseline. Dropping it changes no "
    "average, and here takes noise away. '2 only' is a fair guess: 1 does push tokens for what they could not "
    "cause, but on average that push is 0. What came after may well have been caused by the token: dropping that "
    "gives the first token −0.480 where the truth is −0.240.",
)

# %% [markdown]
# Reward-to-go brings the variance from 4.0 to 2.2 here. Own reward only has the least, 0.5, about the wrong average. So
# the rule has two sides. For a reward at token k: tokens *after* k can do without it, since they came too late to cause
# it. Tokens *up to* k can't, since they led there. With one reward at the end, as in sorting, all tokens come before
# it, and each gets the same R.
#
# ## Exercise: `reward_to_go` (10 minutes, middle)
#
# **In:** `rewards_BT`, each reward on the token at which it came; `mask_BT`, True on own tokens; `gamma`, a factor that
# a later reward pays for each own token it travels back. **Out:** `returns_BT`: at own tokens this token's reward plus
# gamma times the return of the *next own token*; 0 elsewhere, and a reward off the mask doesn't count.
# **Worked line:** rewards `[1, 2, 8]`, all own, gamma 0.5: the last is 8, then 2 + 0.5 · 8 = 6, then 1 + 0.5 · 6 = 4.
# **Done when** the check says so.
#
# *Hint: from which end can you fill the row so that each entry needs one addition? What do you carry over a column
# that isn't yours?*


# %% tags=["exercise"]
def reward_to_go(rewards_BT, mask_BT, *, gamma=1.0):
    raise NotImplementedError("yours: the rewards at each own token and after it")


# %% tags=["check"]
reward_to_go = checks.check_reward_to_go(reward_to_go, otherwise=package.reward_to_go)

# %% tags=["demo"]
reveal.reveal(package.reward_to_go)

# %% [markdown]
# ## What would gamma below 1 do?
#
# γ (gamma) says what a reward is worth one token earlier. This course keeps γ = 1, and here is why: one right answer
# of seven tokens, reward 1 at the end; then the tree again.

# %% tags=["demo"]
seven_BT = torch.zeros(1, 7, dtype=torch.float64)
seven_BT[0, -1] = 1.0
for gamma in (1.0, 0.9, 0.5):
    returns_BT = reward_to_go(seven_BT, torch.ones(1, 7, dtype=torch.bool), gamma=gamma)
    print(f"gamma {gamma:.1f}: ", "  ".join(f"{x:.3f}" for x in returns_BT[0]))
print(f"gamma 0.99, first token of 1,000: {0.99**999:.5f}")
half_BT = reward_to_go(rewards_BT, own_BT, gamma=0.5)
print("tree, gamma 0.5, average:  ", "  ".join(f"{x:+z.3f}" for x in (P_B @ tree_estimates(half_BT))[1::2]))

# %% [markdown]
# With γ = 0.5 the first of seven tokens hears 0.016 of the reward. In the tree the first slope becomes −0.360 where J's
# own is −0.240. γ below 1 makes late rewards count less, and so short right answers worth more. It can also cut noise.
# Where an episode may never end one needs it; an answer ends.
#
# ## Both of your functions in the trainer
#
# Sorting, from the warm start that is right about half the time: 25 updates, your `policy_gradient` and your
# `reward_to_go`. First, what your advantages look like on four sampled answers, two wrong and two right.

# %% tags=["plot"]
sort, writer = tasks.Sort(6), warm_start.warm_start(tasks.Sort(6), "S", seed=0)
prompts = sort.prompts(4, generator=torch.Generator().manual_seed(3))
batch = rollout.rollout(writer, sort, prompts, group_size=1, noise_BT=rollout.row_noise(3, range(4), 1, 7))
end_BT = torch.zeros(batch.mask_BT.shape, dtype=torch.float64)
for b, (prompt, turns) in enumerate(zip(prompts, batch.turns, strict=True)):
    end_BT[b, batch.mask_BT[b].sum() - 1] = sum(tasks.rewards_of(sort, prompt, turns))
plots.token_strip(
    [[*turns[0], "end"] for turns in batch.turns],
    reward_to_go(end_BT, batch.mask_BT),
    batch.mask_BT,
    title=f"Reward-to-go of four answers to {', '.join(prompt.text for prompt in prompts)}",
)

# %% tags=["train"]
learner = warm_start.warm_start(tasks.Sort(6), "S", seed=0)
recipe = recipes.reinforce(policy_loss=policy_gradient, advantage=reward_to_go)
rows = train.train(learner, tasks.Sort(6), recipe, steps=25, lr=3e-4, seed=0, eval_every=None)
mine = [row["reward/mean"] for row in rows if row["step"]]

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained just now in float32, which differs in the last digits from machine to machine
fives = [sum(mine[i : i + 5]) / 5 for i in range(0, len(mine) - 4, 5)]
print("share of right answers in each five updates: ", "  ".join(f"{x:.2f}" for x in fives))
if not os.environ.get("GRPO_LAB_FAST"):
    assert sum(mine[-5:]) / 5 > sum(mine[:3]) / 3 + 0.05, mine

# %% [markdown]
# Our run went from about 0.5 to about 0.7 (one seed). This is REINFORCE, whole: sample, judge, push each token by the
# rewards at it and after it.
# What is still missing on the way to GRPO: several updates on one batch (03) and a baseline for each prompt (04, 05).
#
# ## Bug hunt: the run that looks converged (8 minutes)
#
# The same sorting task once more, 40 updates, recorded. The only line that was changed is this one:
#
# ```python
# recipes.reinforce(policy_loss=policy_gradient, advantage=lambda rewards_BT: rewards_BT)
# ```
#
# The loss goes down to 0 and stays. The gradient norm goes down to 0 and stays. It looks like a run that has arrived.

# %% tags=["demo"]
print("update   loss    gradient norm   right   length")
columns = [real[f"{name}_ASN"][3, 0].double() for name in ("loss", "norm", "reward", "length")]
for i in (0, 4, 9, 14, 19, 29, 39):
    loss, norm, right, length = (float(column[i]) for column in columns)
    print(f"{i + 1:6d}  {loss:6.4f}   {norm:6.3f}          {right:4.2f}    {length:4.2f}")

# %% [markdown]
# Which column shows that something is wrong, and which one says what? Find the cause before you open the fold.
#
# <details><summary>What happened</summary>
#
# The share of right answers falls from 0.48 to 0. The length falls from 6.8 tokens to 3: answers stop too early. The
# reward lies on the *last* token, the end token. Without reward-to-go it pushes that token alone. So the policy
# learns one thing from right answers: "end". It does not learn *after what*, since the six digits before got A = 0.
# Soon it ends too early everywhere; then no answer is right, each A is 0, and loss and gradient are 0 too. This is the
# third row of the tree's table: own reward only. The gradient norm was small from the start (0.09; with reward-to-go
# it was 6), but AdamW, the optimiser, divides by the size of past gradients, so small gradients made large steps.
#
# The fix: `advantage=reward_to_go`.
# </details>
#
# ## You can now
#
# - derive $\nabla J = \mathbb{E}[R\,\nabla\log\pi]$ in four steps, and check it by counting;
# - choose a baseline, and say with a formula when the mean reward is a poor one;
# - explain a loss that is 0, negative or rising in a healthy run;
# - give each token the rewards that it could have caused.
#
# ## Exercises
#
# 1. *(5 min, easy)* Change the bandit's rewards `R_V` to 0, 0, 1 at the top and run down to the table of baselines.
#    Where is the best baseline now, and how much more noise does b = J leave?
# 2. *(10 min, middle)* Turn the sign of the advantage in the 9-9-10 bandit (mean minus reward). Which metric shows that
#    something is wrong, the loss or the reward?
# 3. *(10 min, middle)* In the tree, subtract a separate number for each *state* from reward-to-go (2.1, 0.5 and 1.5,
#    what is still to come on average from ?, ?a, ?b). Is the average still exact? What happens to the variance?
# 4. *(15 min, hard)* Run the sorting task for 300 updates with and without the mean (one to two minutes each, seed 0,
#    `eval_every=100`). Ours ended at an accuracy of 0.96 with and 0.996 without, one run each. Sorting has one right
#    answer to each prompt, so each rewarded sample is a demonstration. Would you expect the same where many answers are
#    right?
#
# <details><summary>What we got for 1 to 3</summary>
#
# 1: the best b is 0.316, J is 0.2, with a variance of 0.103 against 0.095: 9 % more. 2: the reward falls to 0 (the
# policy learns to write what pays nothing); the loss ends at 0 and says nothing. 3: the average stays −0.240, +0.150,
# +0.150, and the variance falls from 2.2 to 0.53.
# </details>

# %% tags=["widget"]
quiz.Quiz(
    "02",
    [
        quiz.Question(
            "Your run logs loss 0.000 at its first update and a gradient norm of 0.5. What do you do?",
            ["stop: nothing is learned", "nothing, and look at the reward", "raise the learning rate"],
            right="b",
            why=[
                "The value is 0, the slope is not. The step follows the slope.",
                "Advantages that add up to 0 give a loss near 0; the reward says whether it works.",
                "The gradient is there; nothing says that steps are too small.",
            ],
        ),
        quiz.Question(
            "You add 9 to every reward. What happens to the average of the estimate?",
            ["nothing", "it grows by 9", "it points elsewhere"],
            right="a",
            why=[
                "9 times the average slope of log π, which is 0. The noise is what grows.",
                "Each single estimate changes, their average doesn't.",
                "That is what a noisy run looks like, but on average it is the same arrow.",
            ],
        ),
        quiz.Question(
            "Wrong answers have far longer slopes than right ones. Rewards are 0 and 1. Where is the best baseline?",
            ["at the mean reward", "near 1", "near 0"],
            right="c",
            why=[
                "Only if all slopes were equally long.",
                "Then each wrong answer is pushed by −1, and they are the loud ones.",
                "b* weighs rewards by squared slopes; the wrong ones' reward is 0, and their weight is large.",
            ],
        ),
        quiz.Question(
            "A reward comes at token 3 of 10. Which tokens should it not push?",
            ["tokens 0 to 3", "tokens 4 to 9", "all but token 3"],
            right="b",
            why=[
                "They led there, so it must push them.",
                "They came too late to cause it: on average it says nothing about them, it only adds noise.",
                "Then tokens 0 to 2 would never learn what they led to.",
            ],
        ),
        quiz.Question(
            "The mean of 64 answers has a typical error of 0.12. How many answers for 0.03?",
            ["128", "256", "1,024"],
            right="c",
            why=[
                "Twice the answers divide the error by 1.4.",
                "Four times the answers halve it: 0.06.",
                "A quarter of the error takes 4 · 4 = 16 times as many.",
            ],
        ),
    ],
)

# %% [markdown]
# ## Sources
#
# - R. J. Williams 1992, *Simple statistical gradient-following algorithms for connectionist reinforcement learning*,
#   https://doi.org/10.1007/BF00992696: REINFORCE, and that a baseline leaves the average alone.
# - Sutton and Barto 2018, *Reinforcement Learning*, 2nd ed., http://incompleteideas.net/book/the-book-2nd.html: the
#   return (eq. 3.9), policy gradients and baselines (chapter 13).
# - Greensmith, Bartlett and Baxter 2004, *Variance Reduction Techniques for Gradient Estimates in Reinforcement
#   Learning*, https://www.jmlr.org/papers/v5/greensmith04a.html: how much a baseline can save, and that the best
#   constant weighs by the squared slope.
# - Keane and Gao 2022, *Variance Reduction for Score Functions Using Optimal Baselines*,
#   https://arxiv.org/abs/2212.13587: a value baseline usually does about as well as the best one, and can be
#   arbitrarily worse (their abstract). That our real batch is such a case, for a constant, is our reading.
# - Schulman et al. 2016, *High-Dimensional Continuous Control Using Generalized Advantage Estimation*,
#   https://arxiv.org/abs/1506.02438, section 2: the family of things that may stand in A's place.
# - That AdamW hid the small gradient in the bug hunt, and that rewarded samples act as demonstrations here, is our
#   reading. The noise of the real batch and all runs are measured here, on this toy (recorded ones: `grpo-lab record
#   reinforce`).
#
# **Next.** 03 makes several updates from one batch, and needs a ratio and a clip for it.
