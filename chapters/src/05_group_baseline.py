# %% [markdown]
# # 05 · The group baseline
#
# **The promise.** You let seven other answers to the same prompt say what to expect, in a few lines, and measure how
# good that yardstick is.
#
# - **You need:** the policy gradient (second half of 02) and the clip (03). Chapter 04 helps but isn't needed.
# - **You will be able to:** write GRPO's advantage and say why it is what it is; say when a group teaches nothing;
#   read a group size's measured noise; tell GRPO's division by the spread from Dr. GRPO and from leave-one-out.
# - **Minutes:** 60.

# %% tags=["setup"]
import math

import torch

from grpo_lab.concepts import group_advantage as package
from grpo_lab.engine import experiment, recipes, recording, tasks, train, warm_start
from grpo_lab.engine.recorded import gradient_noise
from grpo_lab.teach import checks, explorer, loop, pictures, plots, predict, quiz, reveal

# %% tags=["plot"]
loop.loop("advantage")

# %% [markdown]
# ## What can stand in for a critic?
#
# A *baseline* is the reward that you expected before you saw the answer; only the rest of the reward counts. A
# *critic* is a second network, trained to guess that number (chapter 04). There is another way to know what to expect
# of this policy on this prompt: ask it again.
#
# Take the eight answers of chapter 00. Three are right and get 1, five are wrong and get 0. Their mean is 0.375. So
# each right answer counts +0.625 and each wrong one −0.375. Nobody had to predict anything: the other answers were the
# yardstick. The eight are a *group*, and their mean is the *group baseline*.

# %% tags=["demo"]
rewards_G = torch.tensor([1, 0, 0, 1, 0, 0, 1, 0], dtype=torch.float64)  # the running example of this course
mean = rewards_G.mean()
std = rewards_G.std()  # torch divides by G - 1 = 7 under the root: "ddof 1"
print("reward         ", "  ".join(f"{r:6.0f}" for r in rewards_G))
print("minus the mean ", "  ".join(f"{r - mean:+6.3f}" for r in rewards_G))
print("over the spread", "  ".join(f"{(r - mean) / std:+6.3f}" for r in rewards_G))
print(f"mean {mean:.3f}, standard deviation {std:.3f}")

# %% [markdown]
# The third line is GRPO's *advantage*: the distance to the mean, in units of the group's own *spread* (its standard
# deviation). It adds up to 0: three times +1.208 against five times −0.725. With R for the rewards of one group
# (`rewards_G`), and a small `eps` so that nobody divides by 0 (left out above):
#
# $$A_g = \frac{R_g - \mathrm{mean}(R)}{\mathrm{std}(R) + \mathtt{eps}}$$
#
# Every token of answer g gets the same A_g. Which token was at fault, the group can't say: that is the price.

# %% tags=["widget"]
bet_rare = predict.Bet(
    "05-rare",
    "Now only one of the eight is right. What is the advantage of that one answer (three right: +1.208)?",
    low=0,
    high=4,
)
bet_rare

# %% tags=["demo"]
rare_G = torch.tensor([0, 0, 0, 0, 1, 0, 0, 0], dtype=torch.float64)
rare = (rare_G - rare_G.mean()) / rare_G.std()
bet_rare.reveal(
    round(rare.max().item(), 2),
    within=0.2,
    because="The distance to the mean grew from .625 to .875. Less easy to guess: the spread shrank from .52 to "
    f".35. So a lone right answer pulls hard, and each of the seven wrong ones pushes only with "
    f"{rare.min():.2f}. The rarer, the louder.",
)

# %% [markdown]
# ## Exercise: write it (10 minutes, easy)
#
# **In:** `rewards_B`, one reward an answer; row `p * group_size + g` is answer g of prompt p. `eps`, added to the
# standard deviation. **Out:** `advantages_B`, the same shape. **Worked line:** rewards `[1, 0, 0, 0]` in groups of 2
# give `[+0.707, −0.707, 0, 0]` (minus a hair, for eps): the second group agrees with itself and gets exactly 0.
# **Done when** the check says so.
#
# **Hints:** What does `rewards_B` look like as a table with one prompt a row, and along which axis does the mean run?
# And: eight times 0.1 has a float32 mean that isn't 0.1. What can you test, then, to give equal rewards exactly 0?


# %% tags=["exercise"]
def group_advantage(rewards_B, *, group_size, eps=1e-4):
    raise NotImplementedError("yours: the mean and the spread of each group")


# %% tags=["check"]
group_advantage = checks.check_group_advantage(group_advantage, otherwise=package.group_advantage)

# %% tags=["demo"]
reveal.reveal(package.group_advantage)

# %% [markdown]
# From here on `group_advantage` is yours if it passed, and the package's if not.
#
# ## Why not over the whole batch?
#
# The mean is over the *group*. Take two prompts, one easy (7 of 8 right), one hard (1 of 8). Over all 16 answers the
# mean is .5, and every right answer looks the same, whether it solved the hard prompt or the easy one.

# %% tags=["demo"]
easy, hard = [1, 1, 1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0]
rewards_B = torch.tensor(easy + hard, dtype=torch.float64)
for name, advantages_B in (
    ("over the group", group_advantage(rewards_B, group_size=8)),
    ("over the batch", package.batch_advantage(rewards_B)),
):
    a_PG = advantages_B.reshape(2, 8)
    print(f"{name}: a right answer counts {a_PG[0, 0]:+.2f} (easy prompt), {a_PG[1, 0]:+.2f} (hard prompt);")
    print(
        f"{'':14s}  mean over the easy prompt's answers {a_PG[0].mean():+z.2f}, the hard one's {a_PG[1].mean():+z.2f}"
    )

# %% [markdown]
# Over the group, the right answer to the hard prompt counts +2.47 and a right one to the easy prompt +0.35. Over the
# batch both count +0.97, and the easy prompt's answers are praised by +0.73 on average: for their prompt, which they
# did not write. Averaged over many batches this does little harm, since a number that doesn't depend on the answer
# leaves the average gradient alone (02). But it is a push that says nothing about the answer, and the group takes it
# out. Whether training gets better by it is another question; the runs below ask it.
#
# ## What if a group has one answer, or two?
#
# With one answer a prompt there is nothing to compare. The standard deviation has G − 1 under its root; for one number
# that makes 0/0.

# %% tags=["demo"]
one = torch.tensor([1.0], dtype=torch.float64)
squares = (one - one.mean()).square().sum()
print(
    f"G = 1: distance to its own mean {(one - one.mean()).item():.0f}, variance {(squares / (1 - 1)).item()}"
)
try:
    package.group_advantage(one, group_size=1)
except ValueError as error:
    print("ours says:", error)
pair = torch.tensor([1.0, 0.0], dtype=torch.float64)
for ddof in (1, 0):
    print(
        f"G = 2, ddof {ddof}: {((pair - pair.mean()) / pair.std(correction=ddof))[0]:+.3f} and the same below 0"
    )

# %% [markdown]
# Users of other trainers report a `nan` here, or a 0 without a word. verl 0.9.1 hands on the raw reward, TRL 1.16.0
# refuses to train, and so does ours. The *ddof* (what is subtracted from G under the root) differs between libraries,
# and so does eps. Read in their sources:
#
# | | ddof | eps |
# |---|---|---|
# | TRL 1.16.0 `GRPOTrainer`, and this course | 1 | 1e-4 |
# | TRL 1.16.0 `experimental.async_grpo` | 0 | 1e-8 |
# | verl 0.9.1 | 1 | 1e-6 |
#
# A pair gets ±0.707 with ddof 1 and ±1 with ddof 0. In a group of 8 the two differ by 7 %: one factor for every group
# of that size. The DeepSeekMath paper prints neither ddof nor eps.
#
# ## When does a group teach nothing?
#
# If all eight are right, or all wrong, every distance is 0, and this prompt moves the policy nowhere: the group is
# *dead*. Let p be the prompt's *pass rate*, the probability that an answer to it is right. G answers are all right or
# all wrong with probability p^G + (1 − p)^G.

# %% tags=["widget"]
bet_dead = predict.Bet(
    "05-dead",
    "A hard prompt, p = 0.1, groups of 8. Of 100 such groups, how many teach nothing?",
    low=0,
    high=100,
)
bet_dead

# %% tags=["demo"]
bet_dead.reveal(
    round(100 * (0.1**8 + 0.9**8)),
    within=5,
    because="0.9 to the power 8 is .43 (and 0.1 to the power 8 is next to nothing). 'One right in ten' sounds as if "
    "nearly every eight held one. Four eights in ten don't.",
)


# %% tags=["widget"]
def draw_dead(fig, *, G, p):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    chance = [math.comb(G, c) * p**c * (1 - p) ** (G - c) if c <= G else 0.0 for c in range(17)]
    live = [0.0 if c in (0, G) else chance[c] for c in range(17)]
    dead = [chance[c] if c in (0, G) else 0.0 for c in range(17)]
    explorer.bars(ax, "live", range(17), live, color=pictures.BLUE)
    explorer.bars(ax, "dead", range(17), dead, color=pictures.ORANGE, hatch="//", edgecolor="white")
    if not ax.get_xlabel():
        ax.set_ylim(0, 1)
        ax.set_xticks(range(0, 17, 2))
        title = "Hatched: all wrong, or all right"
        pictures.tidy(ax, title=title, xlabel="right answers in the group", ylabel="share of groups")


def describe_dead(*, G, p):
    dead = p**G + (1 - p) ** G if G > 1 else 1.0
    answers = "1 answer" if G == 1 else f"{G} answers"
    return f"With {answers} a prompt and a pass rate of {p:.2f}, {dead:.0%} of the groups teach nothing."


dead_groups = explorer.Explorer(
    draw_dead,
    describe_dead,
    question="How many groups teach nothing?",
    G=explorer.whole(8, 1, 16, "answers a prompt"),
    p=explorer.number(0.1, 0.0, 1.0, "pass rate", step=0.01),
)
dead_groups

# %% tags=["demo"]
for G in (2, 4, 8, 16):
    print(f"pass rate .18, G = {G:2d}: {100 * (0.18**G + 0.82**G):4.1f} % of the groups teach nothing")

# %% [markdown]
# At a pass rate of .18, 70 % of the groups of 2 are dead and 4 % of the groups of 16. Chapter 09 comes back to them.
#
# ## How good is a yardstick of G answers?
#
# Now real answers, those of chapter 00: 256 recorded answers of the warm start to each of 64 prompts. The dial G cuts
# the 256 answers of one prompt into groups; the bars show what each group would take for this prompt's pass rate. Try
# G = 2, then 64.

# %% tags=["setup"]
recorded = recording.read_recording("answers")  # made by: grpo-lab record answers
rewards_PN = recorded["rewards_PN"].double()
texts = recording.texts_of(recorded["prompts_PT"])
hardest_first = rewards_PN.mean(1).argsort(stable=True)


# %% tags=["demo"]
def group_means(G, prompt):
    """The mean reward of each group of G recorded answers to one prompt, and the pass rate of all 256."""
    rewards_N = rewards_PN[hardest_first[prompt - 1]]
    return rewards_N[: 256 // G * G].reshape(-1, G).mean(1), rewards_N.mean()


rates_P = rewards_PN.mean(1)
quarter, three_quarters = rates_P.quantile(torch.tensor([0.25, 0.75]).double())
between = rates_P.var(correction=0) / rewards_PN.var(correction=0)
print(f"pass rates of the 64 prompts: {rates_P.min():.2f} to {rates_P.max():.2f}", end=", ")
print(f"half of them between {quarter:.2f} and {three_quarters:.2f}")
print(f"of the variance of all rewards {between:.0%} lies between prompts, the rest within them")


# %% tags=["widget"]
def draw_yardstick(fig, *, G, prompt):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    means, rate = group_means(G, prompt)
    shares = torch.histc(means, bins=33, min=-1 / 64, max=1 + 1 / 64) / len(means)
    places = [i / 32 for i in range(33)]
    explorer.bars(ax, "groups", places, shares.tolist(), width=0.027, color=pictures.BLUE)
    explorer.line(ax, "rate", [rate, rate], [0, 1], color=pictures.ORANGE, linestyle="--")
    if not ax.get_xlabel():
        ax.set_ylim(0, 1)
        title = "Each group's own baseline (dashed: the pass rate of all 256 answers)"
        pictures.tidy(ax, title=title, xlabel="mean reward of the group", ylabel="share of groups")


def describe_yardstick(*, G, prompt):
    means, rate = group_means(G, prompt)
    off = (means - rate).square().mean().sqrt()
    dead = ((means == 0) | (means == 1)).double().mean()
    return (
        f"Of 256 recorded answers to {texts[hardest_first[prompt - 1]]} {rate:.0%} are right. {len(means)} "
        f"groups of {G}: "
        f"their baselines are {off:.2f} off (root mean square), and {dead:.0%} of the groups teach nothing."
    )


yardstick = explorer.Explorer(
    draw_yardstick,
    describe_yardstick,
    question="How far off is the baseline of one group, on real answers?",
    G=explorer.whole(8, 2, 64, "answers a group"),
    prompt=explorer.whole(3, 1, 64, "which prompt, hardest first"),
)
yardstick

# %% [markdown]
# Four times as many answers halve the error: it is about √(p(1 − p)/G). So are larger groups better?
#
# ## Which group size is noisy, at the same cost?
#
# A step costs what its answers cost. 128 answers can be 64 prompts × 2, or 2 prompts × 64. The first has poor
# yardsticks, the second has seen two prompts. We measure how noisy GRPO's gradient g of one batch is: its variance (of
# each component, all added up), divided by the squared length of its mean: tr Var(g) / |E g|². At 1 the noise is
# typically as long as the mean gradient itself.

# %% tags=["widget"]
bet_size = predict.Bet(
    "05-size",
    "128 answers a step, the warm start, six digits to sort. Which group size gives the noisiest gradient?",
    choices=["2", "8", "64", "it makes no difference"],
)
bet_size

# %% tags=["demo"]
measured = recording.read_recording("gradient_noise")  # made by: grpo-lab record gradient_noise
noise = gradient_noise.noise(measured, rollouts=128)
grpo = {name: noise[name][:, 2] for name in noise}  # column 2: GRPO's advantage
sizes = measured["sizes_G"].tolist()
for what, name in (("128 answers, 128/G prompts", "equal"), ("128 prompts, 128*G answers", "fixed")):
    values = zip(sizes, grpo[f"{name}_GE"], grpo[f"{name}_error_GE"], strict=True)
    print(f"{what}:", "  ".join(f"G={G}: {x:.2f} ± {error:.2f}" for G, x, error in values))
dead = [torch.cat([group_means(G, n)[0] for n in range(1, 65)]) for G in sizes]
dead = [((means == 0) | (means == 1)).double().mean() for means in dead]
print(
    "dead among the recorded groups:", "  ".join(f"G={G}: {x:.0%}" for G, x in zip(sizes, dead, strict=True))
)
bet_size.reveal(
    "64",
    because=f"{grpo['equal_GE'][5]:.1f}, against {grpo['equal_GE'][2]:.1f} at 8. A step sees only two prompts then, "
    "and what these two have in common is taken for the truth about all. Betting on 2 was reasonable: more than half "
    "of its groups are dead, and the yardstick is one other answer. But there are 64 of them.",
)

# %% tags=["plot"]
plots.lines(
    sizes,
    {
        "128 answers": (grpo["equal_GE"], grpo["equal_error_GE"]),
        "128 prompts": (grpo["fixed_GE"], grpo["fixed_error_GE"]),
    },
    title="At equal cost, the noise grows beyond groups of 8",
    xlabel="group size G",
    ylabel="tr Var(g) / |E g|²",
    log_x=True,
    ylim=(0, 10),
    reading=f"128 answers, prompts drawn anew: {grpo['equal_GE'][0]:.1f} at G = 2, {grpo['equal_GE'][2]:.1f} at 8, "
    f"{grpo['equal_GE'][5]:.1f} at 64. One fixed set of 128 prompts, G answers each: {grpo['fixed_GE'][0]:.2f}, "
    f"{grpo['fixed_GE'][2]:.2f}, {grpo['fixed_GE'][5]:.3f}. Bars: one standard error.",
)

# %% [markdown]
# On this toy, at its warm start, groups of 64 are four times as noisy as groups of 8. Between 2, 4 and 8 the
# differences lie within the errors. With the prompts fixed, noise falls with G; but there G = 64 costs 32 times what
# G = 2 costs. On a task whose prompts are nearly all hard we would expect larger groups to do better, since small
# ones are mostly dead; that isn't measured here. The sizes in papers (64 in DeepSeekMath, 16 in DeepSeek-R1 and DAPO,
# 8 as TRL's default) go with hundreds of answers a step and more.
#
# Does a baseline always help, then? No: on one batch of this task chapter 02 found *more* noise with the mean reward as
# one baseline for all than with none. The two findings don't meet: here every gradient has a group baseline and is
# measured against its own mean. That compares group sizes; a gradient without a baseline isn't among them.
#
# ## Should an answer be its own yardstick?
#
# Each answer is part of the mean it is measured against. A right answer lifts its own baseline by 1/G, and so takes
# 1/G of its own praise back. *Leave-one-out* compares it with the mean of the others only. Does it matter?
#
# Take the smallest policy: one weight θ, and an answer is right with probability p = sigmoid(θ). In θ, p has the slope
# p(1 − p), log p the slope 1 − p, and log(1 − p) the slope −p. All 2^G groups can be counted out, each with its
# probability. The *push* is the average step in θ; the true one is p(1 − p). At p = .3:


# %% tags=["demo"]
def expected_push(advantage, G, p):
    """Over all 2^G groups: the mean of A times the slope, in θ, of the answer's log-probability."""
    total = 0.0
    for outcome in range(2**G):
        rewards_B = torch.tensor([float(outcome >> g & 1) for g in range(G)], dtype=torch.float64)
        right = int(rewards_B.sum())
        slope_B = torch.where(rewards_B == 1, 1 - p, -p)  # of log p and of log(1 - p)
        total += (
            p**right * (1 - p) ** (G - right) * (advantage(rewards_B, group_size=G) * slope_B).mean().item()
        )
    return total


p = 0.3
exact = p * (1 - p)  # the slope of the pass rate itself
print(f"slope of the pass rate: {exact:.3f}")
for G in (2, 4, 8):
    own = expected_push(package.group_mean_advantage, G, p) / exact
    others = expected_push(package.leave_one_out_advantage, G, p) / exact
    print(f"G = {G}: own answer included {own:.3f} of it, left out {others:.3f} of it")

# %% [markdown]
# With its own answer in the mean the push is (G − 1)/G of the true slope: one half for pairs, 7/8 for eight.
# Leave-one-out is exact. But for any rewards the two advantages differ by one factor, G/(G − 1), the same for every
# answer. A factor works like a learning rate, and the optimiser, AdamW, divides by the size of past gradients: it
# cancels most of it.
#
# ## Exercise: leave one out (5 minutes, easy)
#
# **In, out:** as before, without `eps`. **Worked line:** rewards `[1, 0, 0]` in one group of 3 give `[1, −0.5,
# −0.5]`; a group of equal rewards gives exactly 0, as before. **Done when** the check says so. **Hint:** what is the
# sum of the others, if you know the sum of all?


# %% tags=["exercise"]
def leave_one_out_advantage(rewards_B, *, group_size):
    raise NotImplementedError("yours: each answer against the mean of the others")


# %% tags=["check"]
leave_one_out_advantage = checks.check_leave_one_out_advantage(
    leave_one_out_advantage, otherwise=package.leave_one_out_advantage
)

# %% tags=["demo"]
reveal.reveal(package.leave_one_out_advantage)

# %% [markdown]
# This one is *RLOO* (REINFORCE, an old name of the policy gradient, leave one out). Undivided, but with its own
# answer in the mean, it is the advantage of *Dr. GRPO*. People call both "relative to the average"; only one leaves
# itself out.
#
# ## Why divide by the spread, and what does it climb?
#
# With 0 and 1 as rewards the spread of a large group is √(p(1 − p)): large at p = .5, small at both ends. Dividing by
# it makes the push of hard and of easy prompts larger. The measure is the slope of the pass rate, p(1 − p), which
# leave-one-out follows: a push of 2 slopes is twice that step.

# %% tags=["widget"]
bet_push = predict.Bet(
    "05-push",
    "Groups of 8. At which pass rate p is GRPO's push the largest, counted in slopes p(1 − p)?",
    choices=["p = .5", "p = .1", "p = .001", "all alike"],
)
bet_push

# %% tags=["demo"]
rates = [0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5]
push = [expected_push(group_advantage, 8, p) / (p * (1 - p)) for p in rates]
limit = [1 / math.sqrt(p * (1 - p)) for p in rates]
for p, w, large in zip(rates, push, limit, strict=True):
    print(f"p = {p:5.3f}: groups of 8 push {w:.2f} times the slope, very large groups {large:5.2f} times")
bet_push.reveal(
    "p = .001",
    because="With very large groups the factor is 1/√(p(1 − p)) and has no end. With 8 answers it stops at "
    "(G − 1)/√G = 2.47, the advantage of a lone right answer. p = .5 was a reasonable bet: there the push itself is "
    "largest. At .001 the slope is .001, nearly all groups are dead, and 2.47 times as much is still a small step.",
)

# %% tags=["plot"]
grid = [i / 50 for i in range(1, 50)]
plots.lines(
    grid,
    {
        "GRPO, G = 8": [expected_push(package.group_advantage, 8, p) / (p * (1 - p)) for p in grid],
        "GRPO, G → ∞": [1 / math.sqrt(p * (1 - p)) for p in grid],
        "leave-one-out": [1.0 for p in grid],
    },
    title="Rare successes and rare failures get the larger push",
    xlabel="pass rate p of the prompt",
    ylabel="push, in slopes of the pass rate",
    ylim=(0, 8),
    reading=f"At p = .5 GRPO pushes {push[-1]:.2f} times the slope with 8 answers and {limit[-1]:.2f} times with very "
    f"large groups; at p = .1 it is {push[3]:.2f} and {limit[3]:.2f} times. Leave-one-out pushes with the slope.",
)

# %% [markdown]
# The slope of p times 1/√(p(1 − p)) is the slope of 2·arcsin(√p). So with very large groups GRPO climbs the mean of
# arcsin(√p) over prompts instead of the mean of p. Measured so, the way from .01 to .02 is 4 times as long as the way
# from .50 to .51. Whether one wants this is a choice. Dr. GRPO's authors call it a bias and leave the division out.

# %% tags=["demo"]
for low in (0.01, 0.5):
    gain = 2 * math.asin(math.sqrt(low + 0.01)) - 2 * math.asin(math.sqrt(low))
    print(f"from {low:.2f} to {low + 0.01:.2f}: 2 arcsin √p grows by {gain:.4f}")
for right in (1, 4):
    a = package.group_advantage(torch.tensor([1.0] * right + [0.0] * (8 - right)).double(), group_size=8)
    m = package.group_mean_advantage(torch.tensor([1.0] * right + [0.0] * (8 - right)).double(), group_size=8)
    print(
        f"{right} right of 8: squares of the advantages add up to {a.square().sum():.2f}, undivided to "
        f"{m.square().sum():.2f}"
    )

# %% [markdown]
# Seen from the other side: divided, every live group has the same weight (its squares add up to G − 1 = 7).
# Undivided, a group with 4 right (2.00) weighs more than twice as much as one with 1 right (0.88).
#
# ## Your function in the real trainer
#
# GRPO's loop is that of chapters 00 and 03; now your function has the advantage's place. No critic, no second
# optimiser.

# %% tags=["train", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
task = tasks.Sort(6)
policy = warm_start.warm_start(task, "S", seed=0)
rows = list(
    train.train(policy, task, recipes.grpo(group_advantage=group_advantage), steps=60, seed=0, lr=3e-4)
)
print("held-out accuracy:", [round(row["eval/accuracy"], 2) for row in rows if "eval/accuracy" in row])

# %% tags=["demo"]
measured_rows = [row for row in rows if "eval/accuracy" in row]
assert measured_rows[-1]["eval/accuracy"] > measured_rows[0]["eval/accuracy"] + 0.08, (
    "60 updates should gain 0.15 to 0.20"
)
live = [row["batch/trained_frac"] + row["group/zero_variance_frac"] for row in rows[1:]]
print(f"trained share + dead share, over {len(live)} batches: from {min(live):.3f} to {max(live):.3f}")

# %% [markdown]
# In each batch the share of rows (answers) that was trained and the share of dead groups add up to exactly 1: dead
# groups have advantage 0, and the trainer leaves them out. Keep that sum in mind.
#
# ## Which baseline trains best here?
#
# Three advantages over groups of 8, one over the whole batch, two other group sizes. 300 updates of 128 answers, 5
# seeds (each row has the same five warm starts), one learning rate for all, 3e-4, tuned for none. Recorded by
# `grpo-lab reproduce group_baseline`. First write down which row you expect to lose, and by how much.

# %% tags=["demo"]
folder = warm_start.DATA / "curves" / "group_baseline"
arms = {
    "grpo": "mean and spread of the group",
    "dr_grpo": "mean of the group",
    "rloo": "leave one out",
    "batch": "mean and spread of the batch",
    "size_2": "GRPO, groups of 2",
    "size_64": "GRPO, groups of 64",
}
runs = {arm: [experiment.read_curve(folder / f"{arm}-seed{seed}.csv") for seed in range(5)] for arm in arms}


def outcomes(arm):
    """The mean of the last fifth of the evaluations, for each seed."""
    finals = [[a for a in run["eval/accuracy"] if a == a][-3:] for run in runs[arm]]
    return torch.tensor(finals).double().mean(1)


for arm, what in arms.items():
    difference_S = outcomes(arm) - outcomes("grpo")
    half = plots.t_quantile(4) * difference_S.std() / math.sqrt(5)
    against = "" if arm == "grpo" else f", against the first {difference_S.mean():+.3f} ± {half:.3f}"
    tokens = runs[arm][0]["count/tokens_trained"][-1] / 1000
    print(f"{what:28s} {tokens:4.0f} thousand tokens trained, accuracy {outcomes(arm).mean():.3f}{against}")

# %% [markdown]
# The accuracy is the mean of the last three evaluations; ± is a 95 % interval of the difference, seed by seed. Groups
# of 64 lose 0.26, as the noise measured above would have it. Between the three advantages over groups of 8 we see no
# difference: both intervals hold 0. The comparison over the batch is behind in each of the five seeds, by 0.036 on
# average, but its interval ends just below 0, so take that as a hint. There was little to gain, either: only 10 % of
# the rewards' variance lay between prompts.
#
# The surprise is the group of 2: as good as 8, though by the end nearly nine in ten of its groups are dead. It trained
# on 69 thousand tokens instead of 181: dead rows cost no training.
#
# ## Bug hunt (10 minutes)
#
# Another team wrote its own group advantage. Their curve climbs about as well as yours. Still, something is off, and
# two numbers of the run say so.


# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
def their_advantage(rewards_B, *, group_size, eps=1e-4):
    rewards_GP = rewards_B.reshape(group_size, -1)
    distance_GP = rewards_GP - rewards_GP.mean(dim=0, keepdim=True)
    return (distance_GP / (rewards_GP.std(dim=0, keepdim=True) + eps)).reshape(-1)


policy = warm_start.warm_start(task, "S", seed=0)
theirs = list(
    train.train(policy, task, recipes.grpo(group_advantage=their_advantage), steps=60, seed=0, lr=3e-4)
)
print("held-out accuracy:", [round(row["eval/accuracy"], 2) for row in theirs if "eval/accuracy" in row])
for row in theirs[1:6]:
    print(
        f"step {row['step']}: dead {row['group/zero_variance_frac']:.3f}, trained {row['batch/trained_frac']:.3f}"
    )

# %% [markdown]
# Where is the fault? Which rewards would you feed to `their_advantage` to see it at once? Write down your guess, then
# open.
#
# <details><summary>The answer</summary>
#
# Dead share and trained share must add up to 1: a dead group has advantage 0 and is left out. Here they add up to
# more, so rows of dead groups got an advantage. Feed it a prompt with all answers right and one with all answers
# wrong, as the next cell does: every advantage should be 0. `reshape(group_size, -1)` puts answers of *different*
# prompts into a column. Rows are p·G + g: it must be `reshape(-1, group_size)`, and the mean along dim 1. Shapes
# agree, nothing fails, and the curve climbs: a mixed group is no bad yardstick where only 10 % of the rewards' variance
# lies between prompts.
# </details>

# %% tags=["demo"]
two_prompts_B = torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64)
print("theirs:", [f"{a:+z.2f}" for a in their_advantage(two_prompts_B, group_size=4).tolist()])
print("ours:  ", [f"{a:+z.2f}" for a in package.group_advantage(two_prompts_B, group_size=4).tolist()])

# %% [markdown]
# ## Three things that also sample many answers, and are not GRPO
#
# **pass@k** is a measurement: is at least one of k answers right? From n answers with c right, 1 − C(n − c, k)/C(n,
# k). **Majority vote** is a way to answer: take the text that comes most often. **Rejection sampling** is a way to
# train: keep the right answers and raise only them. On our eight:

# %% tags=["demo"]
n, c = 8, 3
for k in (1, 2, 4, 8):
    print(f"pass@{k} = {1 - math.comb(n - c, k) / math.comb(n, k):.3f}")
answers = ["012345", "012354", "021345", "012345", "012354", "112345", "012345", "012435"]
votes = {text: answers.count(text) for text in sorted(set(answers))}
print(
    "majority vote:", max(votes, key=votes.get), "with", max(votes.values()), "of 8: right, at 3 right of 8"
)
for p in (0.05, 0.5):
    plain = expected_push(lambda rewards_B, group_size: rewards_B, 8, p) / (p * (1 - p))
    kept = expected_push(lambda r_B, group_size: r_B * group_size / r_B.sum().clamp(min=1), 8, p) / (
        p * (1 - p)
    )
    print(
        f"p = {p:.2f}: raising the right ones, mean over all rows {plain:.2f} slopes, over the kept rows {kept:.2f}"
    )

# %% [markdown]
# The vote is right although most answers are wrong: wrong ones disagree. Rejection sampling, averaged over all rows, is
# the policy gradient without a baseline: 1 slope, the true one. Averaged over the answers it keeps, it climbs log p:
# about 1/p slopes, 2 at p = .5. (At p = .05 a group of 8 often has none to keep, so it is 6.73 and not 20.) It never
# pushes an answer down. GRPO does, and chapter 03 showed a wrong answer's token with a huge ratio.
#
# ## You can now
#
# - write GRPO's advantage, and say what changes with ddof, eps, leave-one-out and the division;
# - tell how many groups of a prompt teach nothing, and why a large group can be the noisy one at equal cost;
# - see from two metrics of a run that a group isn't a group.
#
# ## Exercises
#
# 1. *(5 min, easy)* Rewards need not be 0 and 1. What does `group_advantage` give for 0.50 and 0.51 in a pair, and
#    for 0 and 10? Is that what you want for a reward with noise in it?
# 2. *(10 min, middle)* Write an advantage that divides by √(mean·(1 − mean)) instead of the standard deviation. For
#    which rewards is it the same up to one factor? Train it with `recipes.grpo(group_advantage=...)`.
# 3. *(15 min, middle)* `rewards_PN` has 256 answers a prompt. Estimate each prompt's p from its first 8 answers, then
#    from all 256, and take the mean of p^8 + (1 − p)^8 over prompts. Why is the first so much larger?
# 4. *(20 min, hard)* Sample 64 answers to 32 prompts from the policy before and after training, and compare pass@1
#    with pass@8. Which one did training move more?
#
# <details><summary>What we got for 1 to 3</summary>
#
# 1: ±0.697 and ±0.707. A pair forgets by how much its rewards differ; noise of 0.01 is as loud as a difference of 10.
# 2: for rewards 0 and 1, up to the factor √((G − 1)/G); mind the dead groups, where you would divide by 0. 3: 0.126
# from 8 answers, 0.050 from all; 0.047 of the recorded groups of 8 are dead. The curve p^8 + (1 − p)^8 is bent upward:
# an estimate that is off to either side adds more at one end than it loses at the other.
# </details>

# %% tags=["widget"]
quiz.Quiz(
    "05",
    [
        quiz.Question(
            "All eight answers are right. What does the policy term of GRPO learn from them?",
            ["to do it again", "nothing", "to be shorter"],
            right="b",
            why=[
                "There is no 'again' without a comparison: reward minus mean is 1 − 1 = 0 for each.",
                "Each distance to the mean is 0, so each advantage is exactly 0.",
                "Nothing here looks at the length.",
            ],
        ),
        quiz.Question(
            "Your rewards are 0 and 1, and you change them to −1 and +1. What happens to GRPO's advantages (eps "
            "aside)?",
            ["nothing", "they double", "wrong answers now count, before they didn't"],
            right="a",
            why=[
                "Mean and spread follow: the shift goes with the mean, the factor with the spread.",
                "The distances double, and so does the spread they are divided by. In Dr. GRPO they would double.",
                "They counted before: −0.725 in our example, though their reward was 0.",
            ],
        ),
        quiz.Question(
            "Same 128 answers a step. Why is the gradient noisy with groups of 64, whose baseline is so good?",
            ["the spread is too small", "the step sees only two prompts", "half of the groups are dead"],
            right="b",
            why=[
                "The spread of 64 answers is estimated better than that of 8, not worse.",
                "What the two prompts have in common is taken for the truth about all prompts.",
                "That is what groups of 2 suffer from.",
            ],
        ),
        quiz.Question(
            "What does leave-one-out change, compared with the plain group mean?",
            [
                "only a factor G/(G − 1) on every advantage",
                "the sign of close answers",
                "it removes dead groups",
            ],
            right="a",
            why=[
                "R − (S − R)/(G − 1) = G/(G − 1) · (R − S/G), with S the sum. The push is then the true slope.",
                "A factor above 0 changes no sign.",
                "If all agree, the others agree too: 0 again.",
            ],
        ),
        quiz.Question(
            "GRPO with very large groups climbs the mean over prompts of …",
            ["the pass rate p", "arcsin √p", "the rank of the answer"],
            right="b",
            why=[
                "That is leave-one-out, or the group mean without the division.",
                "The slope of p divided by √(p(1 − p)) is the slope of 2 arcsin √p.",
                "No ranks are used: of rewards 0, 1 and 10 the distances count.",
            ],
        ),
    ],
)

# %% [markdown]
# ## Sources
#
# - Shao et al. 2024, *DeepSeekMath*, section 4.1.2, https://arxiv.org/abs/2402.03300: the group baseline and the
#   division by the spread; group size 64 in section 4.2. ddof and eps aren't printed there; ours are TRL 1.16.0's.
# - Kool et al. 2019, *Buy 4 REINFORCE Samples, Get a Baseline for Free!*, https://openreview.net/forum?id=r1lgTGL5DE,
#   and Ahmadian et al. 2024, *Back to Basics*, https://arxiv.org/abs/2402.14740: leave-one-out (RLOO).
# - Liu et al. 2025, *Understanding R1-Zero-Like Training*, https://arxiv.org/abs/2503.20783: Dr. GRPO, without the
#   division; that the division is a *bias* is their word.
# - Davis and Recht 2025, https://arxiv.org/abs/2510.13651: which function of the pass rate such methods climb; for GRPO
#   it is arcsin √p.
# - Chen et al. 2021, *Evaluating Large Language Models Trained on Code*, https://arxiv.org/abs/2107.03374: the
#   unbiased pass@k.
# - The noise against the group size and the table of baselines are measured here, on this toy; the pushes at G = 8 are
#   counted out. That the noise explains the loss of groups of 64 is our reading.
#
# **Next.** Chapter 06 measures how far the policy has gone from where it started, and pulls it back.
