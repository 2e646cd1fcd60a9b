# %% [markdown]
# # 03 · The clipped objective
#
# A batch of answers is costly, an update on it is cheap. This chapter shows how to make several updates on the same
# answers, and what stops them before they go too far.
#
# - **You need:** log-probabilities and masks (chapter 01, or the second half of 02), the policy gradient and what an
#   advantage is (second half of 02).
# - **You will be able to:** weigh samples of one policy as if they came from another; write the ratio and the clip; say
#   for each token whether the clip cuts it; find out why a ratio is not 1 when it should be.
# - **Minutes:** 60, of which 20 for the two exercises and 10 for the bug hunt.

# %% tags=["setup"]
import torch

from grpo_lab.concepts import clipped_surrogate as clip_in_package
from grpo_lab.concepts import diagnostics
from grpo_lab.concepts import importance_ratio as ratio_in_package
from grpo_lab.engine import recipes, recording, rollout, tasks, train, warm_start
from grpo_lab.teach import checks, explorer, loop, pictures, plots, predict, quiz, reveal

# %% tags=["plot"]
loop.loop("loss")

# %% [markdown]
# The lit box turns log-probabilities and advantages into one number, to be made smaller.
#
# ## Can flips of one coin speak for another?
#
# You flip a fair coin. A friend asks about a bent coin, which shows heads with probability 0.8. You have no bent coin.
# Still, your flips can answer: count each head more and each tail less, because the bent coin would have shown more
# heads and fewer tails. How much more? By the **weight** $w$: the probability under the coin you ask about,
# $\pi$ (pi), divided by the probability under the coin that was flipped, $\mu$ (mu). For any $f$ that is averaged,
#
# $$\mathbb{E}_\mu[w \cdot f] = \mathbb{E}_\pi[f], \qquad w = \pi / \mu$$
#
# $\mathbb{E}_\mu$ is the average over flips of $\mu$. This is **importance sampling**. Heads: $w = 0.8 / 0.5 = 1.6$.
# Tails: $w = 0.2 / 0.5 = 0.4$.

# %% tags=["demo"]
mu_V = torch.tensor([0.5, 0.5], dtype=torch.float64)  # heads, tails: the coin that was flipped
pi_V = torch.tensor([0.8, 0.2], dtype=torch.float64)  # the coin that is asked about
f_V = torch.tensor([1.0, 0.0], dtype=torch.float64)  # what is averaged: 1 for heads
w_V = pi_V / mu_V
print(f"weights                 heads {w_V[0]:.1f}, tails {w_V[1]:.1f}")
print(f"E_mu[f]    = {(mu_V * f_V).sum():.3f}      the fair coin's own answer")
print(f"E_mu[w*f]  = {(mu_V * w_V * f_V).sum():.3f}      the fair coin's flips, weighted")
print(f"E_pi[f]    = {(pi_V * f_V).sum():.3f}      the bent coin's answer")
print(f"E_mu[w]    = {(mu_V * w_V).sum():.3f}      the weights themselves average 1, always")
w_BT = torch.tensor([[1.6] * 5 + [0.4] * 5], dtype=torch.float64)  # ten flips of the fair coin, five heads
share = diagnostics.effective_sample_size(w_BT, torch.ones_like(w_BT, dtype=torch.bool))
print(f"ess        = {share:.3f}      of ten such flips: explained below")

# %% [markdown]
# 0.800 from the wrong coin. The average is right, but it has a price: the flips no longer count equally, so fewer of
# them really count. How many? A rule of thumb, the **effective sample size**, says it as a share of the $n$ flips. It
# looks at the weights only, not at what is averaged:
#
# $$\mathrm{ess} = \frac{(\sum w)^2}{n \sum w^2}$$
#
# It is 1 when all weights are equal, and $1/n$ when one sample outweighs all others. By hand, ten flips with 5 heads:
# $\sum w = 5 \cdot 1.6 + 5 \cdot 0.4 = 10$ and $\sum w^2 = 13.6$, so ess is $100 / 136 = 0.735$. Ten flips count as
# 7.35.
#
# Now let one sample be *seven* flips in a row. Its weight is the product of the seven weights.

# %% tags=["widget"]
bet_seven = predict.Bet(
    "03-seven-flips",
    "1,000 samples of one flip count as 735. As how many do 1,000 samples of seven flips count?",
    low=0,
    high=1000,
)
bet_seven

# %% tags=["widget"]
told = "The flips don't know of each other, so their ess multiply: 0.735 to the power 7 is 0.116."
print(bet_seven.reveal(116, within=60, because=told))


def ess_of(mu, pi, flips):
    """The ess of many samples of so many flips: 1 / E_mu[w^2] for one flip, to the power of flips."""
    return (1 / (pi**2 / mu + (1 - pi) ** 2 / (1 - mu))) ** flips


def draw_ess(fig, *, mu, pi, flips):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    n_N = range(1, 31)
    explorer.line(ax, "ess", n_N, [ess_of(mu, pi, n) for n in n_N], color=pictures.BLUE)
    here = {"color": pictures.ORANGE, "marker": "o", "linestyle": "none", "markersize": 9}
    explorer.line(ax, "here", [flips], [max(ess_of(mu, pi, flips), 1e-8)], **here)
    if not ax.get_xlabel():
        pictures.tidy(ax, title="Each flip costs the same factor", xlabel="flips in one sample", ylabel="ess")
        ax.set(ylim=(1e-8, 2), yscale="log", xlim=(0, 31))


def describe_ess(*, mu, pi, flips):
    told = f"Weights: heads {pi / mu:.2f}, tails {(1 - pi) / (1 - mu):.2f}. With {flips} flip{'s' * (flips > 1)} "
    return told + f"a sample, 1,000 samples count as {1000 * ess_of(mu, pi, flips):,.1f}."


explorer.Explorer(
    draw_ess,
    describe_ess,
    question="How much do another coin's flips count?",
    mu=explorer.number(0.5, 0.1, 0.9, "heads of the flipped coin", step=0.05),
    pi=explorer.number(0.8, 0.1, 0.9, "heads of the other coin", step=0.05),
    flips=explorer.whole(7, 1, 30, "in one sample"),
)

# %% [markdown]
# An answer of seven tokens is like one sample of seven flips, and real answers have thousands of tokens. So PPO
# (proximal policy optimization, on which GRPO builds) and GRPO don't use the weight of the whole answer. They give
# each **token** its own weight and leave the tokens before it unweighted.
#
# That is an approximation. It has the right gradient as long as the two policies are equal, and it gets worse as they
# move apart (our reading of Schulman et al. 2017, section 2). Hence the second half of this chapter: don't let them
# move far apart.
#
# ## Which two policies?
#
# $\mu$ is the policy that wrote the answers, as it was before the first update on this batch: $\pi_{old}$, in code
# `logp_old`. $\pi$ is the policy being trained, `logp`. The weight of a token is called the **ratio**:
#
# $$\mathrm{ratio} = \pi / \pi_{old} = e^{\,\mathrm{logp} - \mathrm{logp\_old}}$$
#
# By hand: a token had probability 0.40 and now has 0.50. Then `logp` − `logp_old` = −0.693 + 0.916 = 0.223, and the
# ratio is $e^{0.223} = 1.25 = 0.50 / 0.40$.
#
# ### Exercise 1: `importance_ratio` (8 minutes)
#
# **In:** `logp_BT` (being trained), `logp_old_BT` (a constant), `mask_BT` (True on the policy's own tokens). All are
# (B, T): a row an answer, a column a token. **Out:** `ratio_BT`, 1 off the mask. Gradient flows to `logp_BT` only.
#
# **One row:** logp −0.693, logp_old −0.916, mask True gives 1.25; with mask False it gives 1.
#
# **Done when** the check below says so. *Hint: where the mask is False anything may stand, even numbers whose exp is
# infinite. Should you choose before exp, or after?*


# %% tags=["exercise"]
def importance_ratio(logp_BT, logp_old_BT, mask_BT):
    """exp(logp - logp_old) on the mask, 1 off it; no gradient to logp_old."""
    raise NotImplementedError("write me")


# %% tags=["check"]
importance_ratio = checks.check_importance_ratio(
    importance_ratio, otherwise=ratio_in_package.importance_ratio
)

# %% tags=["demo"]
reveal.reveal(ratio_in_package.importance_ratio)

# %% [markdown]
# ## At the first update the ratio is exactly 1. Is that a bug?
#
# At the first update of a batch nothing has moved yet: `logp` *is* `logp_old`, and each ratio is $e^0 = 1$. Some
# trainers don't even compute `logp_old` then. They write `exp(logp - logp.detach())`, which looks like `exp(x - x)`:
# always 1. What can such a loss teach?

# %% tags=["widget"]
bet_one = predict.Bet(
    "03-ratio-one",
    "The loss is -A * exp(logp - logp.detach()). What is its gradient?",
    choices=["0, because the ratio is the constant 1", "the policy gradient, -A * grad logp", "-A"],
)
bet_one

# %% tags=["demo"]
logits_V = torch.tensor([0.5, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
A = 0.625  # a right answer among eight, three of them right: 1 - 3/8
logp = logits_V.log_softmax(-1)[1]  # token 1 was sampled
ratio = (logp - logp.detach()).exp()
for name, loss in (("-A * ratio", -A * ratio), ("-A * logp ", -A * logp)):
    (slope_V,) = torch.autograd.grad(loss, logits_V, retain_graph=True)
    print(f"{name}: value {loss:z.3f}, gradient {' '.join(f'{g:z.4f}' for g in slope_V)}")
bet_one.reveal(
    "b",
    because="A value says where you are, a gradient where to go. detach() freezes only the second logp; "
    "the slope of exp at 0 is 1, so the ratio's gradient is that of logp.",
)

# %% [markdown]
# The values differ, −0.625 and 0.690; the gradients are equal to the last digit: 0.3416, −0.4178, 0.0762. So at ratio 1
# the loss `-A * ratio` is the policy gradient of chapter 02. The product ratio · A is called a **surrogate**, a
# stand-in: its value is not to be read, its gradient is to be followed. Nothing is broken.
#
# From the second update on the same batch, `logp` has moved and `logp_old` has not: then ratios differ from 1.
#
# ## And if the first ratio is *not* 1?
#
# Then something is wrong. At the first update the two log-probabilities belong to the same weights and the same
# tokens. Whatever separates them is a difference between two *programs*. Here are 24 real answers of the warm start,
# scored once as they were sampled, and four times with one thing changed.

# %% tags=["demo"]
task = tasks.Sort(6)
policy = warm_start.warm_start(task, "S", seed=0)
policy.model.double()  # float64, so that every machine prints the same
prompts = task.prompts(3, generator=torch.Generator().manual_seed(1))
noise_BT = rollout.row_noise(1, range(3), 8, 7)  # the dice
answers = rollout.rollout(policy, task, prompts, group_size=8, noise_BT=noise_BT)
noisy, rounded = policy.copy(), policy.copy()
for part in noisy.model.modules():
    if isinstance(part, torch.nn.Dropout):
        part.p = 0.1
noisy.model.train()  # the switch that somebody forgot: dropout is on
for weight in rounded.parameters():
    weight.data = weight.data.bfloat16().double()  # weights as a sampler in bfloat16 has them

# %% tags=["demo"]
with torch.no_grad(), torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    scored = {
        "the same program": policy.logp(answers)[0],
        "dropout 0.1 on": noisy.logp(answers)[0],
        "temperature 0.6": policy.logp(answers.replace(temperature=0.6))[0],
        "bfloat16 weights": rounded.logp(answers)[0],
        "off by one column": policy.logp(answers)[0].roll(1, dims=1),
    }
print("                    mean ratio   largest   outside 0.8 to 1.2    ess")
for name, logp_BT in scored.items():
    ratio_BT = importance_ratio(logp_BT, answers.logp_rollout_BT, answers.mask_BT)
    own = ratio_BT[answers.mask_BT]
    outside = ((own < 0.8) | (own > 1.2)).double().mean()
    ess = diagnostics.effective_sample_size(ratio_BT, answers.mask_BT)
    print(f"{name:18s}     {own.mean():6.3f}   {own.max():7.3f}              {outside:5.1%}   {ess:5.3f}")

# %% [markdown]
# Scored by the same program, every ratio is 1.000. Dropout puts 35.1 % of the tokens outside 0.8 to 1.2 and leaves an
# ess of 0.161. A temperature on one side only (the policy sampled at 1): 23.8 % outside. A shift by one column: 480 at
# most. Weights rounded to bfloat16 are milder, 1.022 at most. None of these runs crashes; the loss is a number like any
# other.
#
# So the ratio at step 0, before the first update, is the cheapest test there is for a training loop: **it must be 1,
# token by token, up to rounding.** Take it against what the *sampler* recorded (`logp_rollout`). Against
# `logp.detach()` it is 1 by construction and proves nothing.
#
# ## What must the objective do once the ratio has moved?
#
# The plain surrogate, $\mathrm{ratio} \cdot A$, is to be made larger. It never has enough: a token with $A = 1$ gains
# as much from going from ratio 1 to 2 as from 2 to 3, although the samples say less and less about such a policy. PPO
# adds a second product, with the ratio held inside a **band**, and takes the **smaller** of the two:
#
# $$\min\big(\mathrm{ratio} \cdot A,\; \mathrm{clip}(\mathrm{ratio},\, 1 - eps_{low},\, 1 + eps_{high}) \cdot A\big)$$
#
# Where the clipped product is the smaller, the ratio no longer matters and the gradient is 0: the token is *cut*. By
# hand, with both eps at 0.2. Two signs of $A$, two sides of the band: four quadrants. The last one is yours.
#
# | A | ratio | ratio · A | clip(ratio) · A | the smaller | cut? |
# |---|---|---|---|---|---|
# | +1 | 1.5 | 1.5 | 1.2 | **1.2** | yes: it has been raised enough |
# | +1 | 0.5 | 0.5 | 0.8 | **0.5** | no: it went the wrong way, bring it back |
# | −1 | 0.5 | −0.5 | −0.8 | **−0.8** | yes: it has been lowered enough |
# | −1 | 1.5 | −1.5 | −1.2 | ? | ? |

# %% tags=["widget"]
bet_cut = predict.Bet(
    "03-quadrant",
    "A wrong answer's token (A = -1) has become more likely: ratio 1.5. Is it cut?",
    choices=["yes, 1.5 is outside the band", "no, its gradient is kept", "half of it is kept"],
)
bet_cut

# %% [markdown]
# ### Exercise 2: `clipped_surrogate` (12 minutes)
#
# **In:** `ratio_BT`, `advantages_BT` (a constant), `eps_low`, `eps_high`, and `delta`: a cap on the ratio in the first
# product (`None`: no cap; what it is for comes below). **Out:** `loss_BT`, one number a token, to be made *smaller*, so
# with a minus in front. Gradient flows to `ratio_BT` only. No mask and no mean here: the trainer adds the tokens up
# later.
#
# **One row:** ratio 1.5, A −1, eps 0.2: the loss is 1.5. With `delta=1.4` it is 1.4. With A +1 it is −1.2.
#
# **Done when** the check says so. *Hint: does the same one line serve both signs of A?*


# %% tags=["exercise"]
def clipped_surrogate(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    """-min( min(ratio, delta) * A, clip(ratio, 1 - eps_low, 1 + eps_high) * A )"""
    raise NotImplementedError("write me")


# %% tags=["check"]
clipped_surrogate = checks.check_clipped_surrogate(
    clipped_surrogate, otherwise=clip_in_package.clipped_surrogate
)

# %% tags=["demo"]
reveal.reveal(clip_in_package.clipped_surrogate)

# %% [markdown]
# ## min or max? Ask the gradient
#
# "For A < 0 the inequality turns round, so take the max there." It sounds right, and until May 2026 it stood in one
# public repository in seven places. Let autograd judge it. `slope` is the derivative of the objective with respect to
# the ratio: $A$ where the token still learns, 0 where it is cut.


# %% tags=["demo"]
def turned_round(ratio_BT, advantages_BT, *, eps=0.2):  # the mistake: max where A < 0
    one, two = ratio_BT * advantages_BT, ratio_BT.clamp(1 - eps, 1 + eps) * advantages_BT
    return -torch.where(advantages_BT >= 0, torch.minimum(one, two), torch.maximum(one, two))


def slope(function, ratio, A):
    ratio_BT = torch.tensor([[ratio]], dtype=torch.float64, requires_grad=True)
    loss_BT = function(ratio_BT, torch.tensor([[A]], dtype=torch.float64))
    return -torch.autograd.grad(loss_BT.sum(), ratio_BT)[0].item()


print("            slope with min    slope with max where A < 0")
for A, ratio in ((1.0, 1.5), (1.0, 0.5), (-1.0, 0.5), (-1.0, 1.5)):
    ours, theirs = slope(clipped_surrogate, ratio, A), slope(turned_round, ratio, A)
    note = "" if ours == theirs else "   <- differs"
    print(f"A {A:+.0f}, ratio {ratio}:  {ours:+z.0f}                {theirs:+z.0f}{note}")
bet_cut.reveal(
    "b",
    because="The slope is -1: it is pushed back down. Being outside the band is not enough to be cut; "
    "the token must have gone the way its advantage pushes.",
)

# %% [markdown]
# With `min` the four slopes are 0, +1, 0, −1. The fourth quadrant is where people fall: $A$ is negative, so the smaller
# product is the one *further* from 0, −1.5 and not −1.2. With the turned-round version the last two slopes swap: a
# wrong answer's token that is already rarer (ratio 0.5) is pushed down for ever, and one that has grown (ratio 1.5) is
# let off. At ratio 1 both agree, so a run with one update a batch never shows the mistake.
#
# Why `min`? It takes the *worse* of the two promises. Nothing is gained by going outside the band, so the gradient is 0
# there; what was lost outside stays visible, so the way back stays open.
#
# ## A wrong answer's token with a huge ratio
#
# One quadrant has no floor: A < 0 and the ratio above the band. How large can a ratio get? A token that had probability
# 0.01 has room up to ratio 100.

# %% tags=["demo"]
A_BT = torch.tensor([[-1.0]], dtype=torch.float64)
for ratio in (1.0, 2.0, 10.0, 100.0):
    ratio_BT = torch.full((1, 1), ratio, dtype=torch.float64)
    plain, capped = clipped_surrogate(ratio_BT, A_BT), clipped_surrogate(ratio_BT, A_BT, delta=3.0)
    pushed = slope(lambda r, a: clipped_surrogate(r, a, delta=3.0), ratio, -1.0)
    print(
        f"A -1, ratio {ratio:5.0f}: loss {plain.item():5.1f}; with delta 3: loss {capped.item():3.1f}, "
        f"slope {pushed:z.0f}"
    )

# %% [markdown]
# Loss 100 from one token: it outweighs a hundred others, and the clip lets it through *by design*. Where ratios can get
# that large (an old batch, another program that samples), people add a cap: for A < 0 the loss is at most `delta` ·
# |A|, and above `delta` the slope is 0. Ye et al. (2020) call it dual clip, with the cap 3; INTELLECT-2 (2025) calls it
# two-sided clipping. GRPO as published has none.
#
# ## "My clip fraction is 0 for the whole run"
#
# The **clip fraction** is the share of tokens that the clip cuts. Below is the real trainer, one batch each. Two
# settings are often mixed up: how many answers a prompt gets (`group_size` here, `num_generations` in TRL), and how
# often one batch is gone through (`epochs` here, `num_iterations` in TRL). Which one wakes the clip?

# %% tags=["demo"]
for group_size, epochs in ((8, 1), (16, 1), (8, 2)):
    policy = warm_start.warm_start(task, "S", seed=0)
    policy.model.double()
    run = train.start(policy, task, seed=0, lr=3e-4, batch_size=32)
    row = train.step(run, recipes.grpo(group_size=group_size, epochs=epochs))
    print(
        f"group_size {group_size:2d} (num_generations), epochs {epochs} (num_iterations): "
        f"ratio at most {row['policy/ratio_max']:.2f}, clip fraction {row['policy/clip_frac']:.3f}"
    )

# %% [markdown]
# Twice the answers leave the clip fraction at 0.000; a second epoch lifts it to 0.089. With one update a batch every
# ratio is 1, 1 is inside any band, and the clip has nothing to do. That is a setting, not a fault. DeepSeekMath
# (section 4.2) ran one update a batch too; DeepSeek-R1 cut each rollout into 16 minibatches, so its clip can act.
#
# ## Eight updates on one real batch
#
# We recorded one batch: GRPO from the warm start, 16 prompts, 8 answers each, 61 of 128 right. Then eight updates on
# these same answers (AdamW, learning rate 3e-4), and after each the log-probability of every token, with the clip and,
# from the same start, without it. 835 tokens have an advantage that is not 0.

# %% tags=["widget"]
bet_far = predict.Bet(
    "03-first-update",
    "After ONE update with the clip, how many percent of the 835 tokens are outside 0.8 to 1.2?",
    low=0,
    high=100,
)
bet_far

# %% tags=["demo"]
real = recording.read_recording("several_updates")
A_BT = real["advantages_B"][:, None].expand(real["mask_BT"].shape).double()
own_BT = real["mask_BT"] & (A_BT != 0)  # tokens with something to learn
quadrants, ends = {"clip": [], "no clip": []}, {"clip": [], "no clip": []}
for name, key in (("clip", "logp_UBT"), ("no clip", "logp_unclipped_UBT")):
    for logp_BT in real[key].double():
        ratio_BT = importance_ratio(logp_BT, real[key][0].double(), own_BT)
        quadrants[name].append(
            diagnostics.quadrant_fractions(ratio_BT, A_BT, own_BT, eps_low=0.2, eps_high=0.2)
        )
        ends[name].append((ratio_BT[own_BT].min(), ratio_BT[own_BT].max()))
print("updates     A>0, above 1.2   A<0, below 0.8   both    other side   ratios")
for name, u in (("clip", 1), ("clip", 2), ("clip", 8), ("no clip", 8)):
    q = {key: float(share) for key, share in quadrants[name][u].items()}
    print(
        f"{name:7s} {u}            {q['good_above']:4.1%}            {q['bad_below']:5.1%}  "
        f"{q['good_above'] + q['bad_below']:5.1%}   {q['good_below'] + q['bad_above']:5.1%}        "
        f"{ends[name][u][0]:.2f} to {ends[name][u][1]:.1f}"
    )
bet_far.reveal(
    13.7,
    within=3,
    because="The clip can't brake the first update: during it every ratio was 1. How far that "
    "one step goes, only the learning rate and the optimizer decide.",
)

# %% [markdown]
# After one update 9.7 % are outside on the side to which their advantage pushes, and 4.0 % on the other side: 13.7 %
# together, with ratios from 0.02 to 7.2. From the second update on the clip can act. After eight, 12.2 % of the tokens
# are beyond the band on the pushed side, without the clip 14.0 %. In this batch it slows the drift and doesn't stop it.
# Is it a wall, then?
#
# ## Does the clip pull a token back?
#
# Take the 66 tokens of wrong answers that the first update threw below 0.8. During the second update their own slope
# is 0. Where are they after it?

# %% tags=["demo"]
ratio_UBT = (real["logp_UBT"] - real["logp_UBT"][:1]).double().exp()
cut_BT = own_BT & (A_BT < 0) & (ratio_UBT[1] < 0.8)
ratio_BT = ratio_UBT[1].clone().requires_grad_()
(slope_BT,) = torch.autograd.grad(clipped_surrogate(ratio_BT, A_BT).sum(), ratio_BT)
print(f"{int(cut_BT.sum())} tokens; largest slope among them {slope_BT[cut_BT].abs().max():.1f}")
for u in (2, 8):
    further, inside = ratio_UBT[u] < ratio_UBT[1], ratio_UBT[u] >= 0.8
    print(
        f"after {u}: {further[cut_BT].double().mean():.0%} even lower, {inside[cut_BT].double().mean():.0%} back "
        f"inside, lowest ratio {ratio_UBT[u][cut_BT].min():.3f}"
    )

# %% [markdown]
# After the second update 48 % of the 66 are even lower and 23 % are back inside; the rest have turned back but are
# still below 0.8. After the eighth the lowest ratio is 0.009.
#
# Slope 0 means *nobody pushes this token any more*. It does not mean that it stands still: all tokens share one set of
# weights, and the other tokens' gradients carry it along, further out or back in. (So does the optimizer, which still
# remembers the last step.) The clip is no wall and no spring. It is a hand that lets go.
#
# ## The whole clip in one picture
#
# Above: objective and slope against the ratio, for both signs of A, drawn by *your* function. Below: where the 835
# real tokens lie. What do the two eps cut, and what do they let through?

# %% tags=["widget"]
edges_N = torch.arange(0, 2.441, 0.04, dtype=torch.float64)
r_N = torch.linspace(0, 2.44, 489, dtype=torch.float64)[None].requires_grad_()


def tokens(update, sign, eps_low, eps_high):
    """Ratios of the real tokens with this sign of A; which are cut, and which are outside the band."""
    ratio_N = ratio_UBT[update][own_BT & (A_BT.sign() == sign)]
    above_N, below_N = ratio_N > 1 + eps_high + 1e-9, ratio_N < 1 - eps_low - 1e-9
    return ratio_N, above_N if sign > 0 else below_N, above_N | below_N


def draw_lines(ax, sign, eps_low, eps_high):
    value_N = -clipped_surrogate(r_N, torch.full_like(r_N, sign), eps_low=eps_low, eps_high=eps_high)
    (slope_N,) = torch.autograd.grad(value_N.sum(), r_N)
    explorer.line(ax, "objective", r_N[0].detach(), value_N[0].detach(), color=pictures.BLUE, linewidth=2)
    explorer.line(
        ax, "slope", r_N[0].detach(), slope_N[0], color=pictures.ORANGE, linestyle="--", linewidth=2
    )


def draw_tokens(ax, sign, eps_low, eps_high, update):
    ratio_N, cut_N, _ = tokens(update, sign, eps_low, eps_high)
    looks = (("cut", cut_N, pictures.ORANGE, "////"), ("kept", ~cut_N, pictures.BLUE, ""))
    for name, chosen_N, colour, hatch in looks:
        heights = torch.histogram(ratio_N[chosen_N].clamp(max=2.43), edges_N)[0]
        style = {"color": colour, "hatch": hatch, "width": 0.036, "edgecolor": "white", "linewidth": 0}
        explorer.bars(ax, name, edges_N[:-1] + 0.02, heights, **style)


def describe(*, eps_low, eps_high, update):
    parts = [tokens(update, sign, eps_low, eps_high) for sign in (1, -1)]
    high, low = (int(cut_N.sum()) for _, cut_N, _ in parts)
    kept = sum(int((outside_N & ~cut_N).sum()) for _, cut_N, outside_N in parts)
    told = f"After update {update}, band {1 - eps_low:.2f} to {1 + eps_high:.2f}: of 835 tokens {high / 835:.1%} "
    told += f"are cut above (A > 0), {low / 835:.1%} cut below (A < 0), "
    return told + f"{kept / 835:.1%} outside but kept. Hatched: cut."


# %% tags=["widget"]
def draw(fig, *, eps_low, eps_high, update):
    axes = fig.axes or list(fig.subplots(2, 2, sharex=True, height_ratios=[1.25, 1]).ravel())
    for sign, top, low in ((1.0, axes[0], axes[2]), (-1.0, axes[1], axes[3])):
        draw_lines(top, sign, eps_low, eps_high)
        draw_tokens(low, sign, eps_low, eps_high, update)
        for ax in (top, low):
            for name, bound in (("low", 1 - eps_low), ("high", 1 + eps_high)):
                explorer.line(
                    ax, name, [bound] * 2, [-3, 1000], color=pictures.GREY, linestyle=":", linewidth=1
                )
        if not low.get_xlabel():
            pictures.tidy(top, title="A > 0: right answers" if sign > 0 else "A < 0: wrong answers")
            pictures.tidy(low, xlabel="ratio (last bar: 2.4 and more)", ylabel="tokens" if sign > 0 else "")
            top.set(ylim=(-2.5, 2.5), xlim=(0, 2.45))
            low.set(yscale="log", ylim=(0.7, 700))
            top.text(0.05, -2.25, "solid: objective, dashed: slope", fontsize=9, color=pictures.GREY)
    fig.subplots_adjust(hspace=0.12, wspace=0.18, top=0.92, bottom=0.11)


explorer.Explorer(
    draw,
    describe,
    question="What do eps_low and eps_high cut?",
    height=5.0,
    eps_low=explorer.number(0.2, 0, 1, "lower side", step=0.04),
    eps_high=explorer.number(0.2, 0, 1, "upper side", step=0.04),
    update=explorer.whole(1, 1, 8, "updates done"),
)

# %% [markdown]
# At the start: 1.8 % cut above, 7.9 % below, 4.0 % outside but kept. The trainer writes the two cut shares down apart,
# as `policy/clip_frac_high` and `policy/clip_frac_low`: a single clip fraction hides which side works. Things to try:
# `eps_low` 1 (a ratio is never below 0: nothing is cut below), `eps_high` 0, `update` 8.
#
# ## Clip-higher: what does eps_high = 0.28 let through?
#
# DAPO (Yu et al. 2025, section 3.1) raises only the upper bound, from 0.2 to 0.28. Its reason is an asymmetry that a
# ratio hides: the same factor is a small step for a rare token and a large one for a common token.

# %% tags=["demo"]
for p_old in (0.01, 0.10, 0.90):
    caps = [min(1.0, p_old * (1 + eps)) for eps in (0.2, 0.28)]
    print(f"probability {p_old:.2f}: pushed up to {caps[0]:.4f} with 0.2, up to {caps[1]:.4f} with 0.28")
good_BT, p_old_BT = own_BT & (A_BT > 0), real["logp_UBT"][0].double().exp()
freed_BT = good_BT & (ratio_UBT[1] > 1.2) & (ratio_UBT[1] <= 1.28)
never = (p_old_BT[good_BT] > 1 / 1.2).double().mean()
print(f"real batch: {never:.0%} of the tokens with A > 0 can't be cut above at all (probability over 1/1.2)")
print(
    f"after one update 0.28 frees {int(freed_BT.sum())} of {int((good_BT & (ratio_UBT[1] > 1.2)).sum())} cut tokens; "
    f"their probability was {p_old_BT[freed_BT].min():.2f} to {p_old_BT[freed_BT].max():.2f}"
)

# %% [markdown]
# A token of probability 0.01 is pushed until it has gained 0.0020 in a batch, with clip-higher 0.0028; one of 0.90
# reaches 1 before any bound. So the upper bound binds what is rare, and DAPO wants rare tokens to be able to grow. In
# our batch 0.28 frees 11 of 15 cut tokens. But they were not rare, 0.71 to 0.75: on this toy right answers hold few
# rare tokens.
#
# ## Your functions in the real trainer
#
# Now both of your functions drive a real run: 8 updates on each batch (4 epochs, each in 2 halves), 10 batches. Then
# the same seed once more with the clip off (`eps_low=None, eps_high=None`).

# %% tags=["train", "nbval-ignore-output"]
# output not compared: trained in float32, and the digits depend on the machine
task = tasks.Sort(6)
mine = {"ratio": importance_ratio, "policy_loss": clipped_surrogate, "epochs": 4, "minibatches": 2}
policy = warm_start.warm_start(task, "S", seed=0)
run = train.start(policy, task, seed=0, lr=3e-4)
with_clip = list(train.train(policy, task, recipes.grpo(**mine), steps=10, eval_every=10, run=run))
for row in with_clip[1:]:
    print(
        f"batch {row['step']:2d}: right {row['reward/mean']:.2f}, cut above {row.get('policy/clip_frac_high', 0):.3f}, "
        f"cut below {row.get('policy/clip_frac_low', 0):.3f}, ess {row.get('policy/ess', 1):.2f}"
    )
other = warm_start.warm_start(task, "S", seed=0)
without = recipes.grpo(**mine, eps_low=None, eps_high=None)
no_clip = list(train.train(other, task, without, steps=10, eval_every=10, seed=0, lr=3e-4))
for name, rows in (("clip   ", with_clip), ("no clip", no_clip)):
    print(
        name, "held-out", " to ".join(f"{row['eval/accuracy']:.2f}" for row in rows if "eval/accuracy" in row)
    )

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained in float32, and the digits depend on the machine
assert max(row["policy/clip_frac"] for row in with_clip[1:]) > 0.02
assert with_clip[-1]["eval/accuracy"] > no_clip[-1]["eval/accuracy"] + 0.1
noise_BT = rollout.row_noise(2, range(16), 8, 7)
fresh = task.prompts(16, generator=torch.Generator().manual_seed(2))
batch = rollout.rollout(policy, task, fresh, group_size=8, noise_BT=noise_BT)
with torch.no_grad():  # run.reference is the warm start
    drift_BT = importance_ratio(policy.logp(batch)[0], run.reference.logp(batch)[0], batch.mask_BT)
print(
    f"against the warm start, after {run.version} batches: ratios from {drift_BT.min():.3f} to {drift_BT.max():.1f}"
)
assert drift_BT.max() > 1.5

# %% [markdown]
# On this toy the run with the clip stays at its start or climbs, and the one without falls to about half of it in 10
# batches. One seed says little, so here are three, recorded over 30 batches.

# %% tags=["plot"]
both = recording.read_recording("clip_on_off")
accuracy_ASN = both["accuracy_ASN"].double()
plots.curves(
    {"clip": accuracy_ASN[0], "no_clip": accuracy_ASN[1]},
    "right",
    steps=both["step_N"],
    xlabel="batches (8 updates each)",
    ylabel="held-out share right",
    ylim=(0, 1),
    title="Eight updates a batch: without the clip it falls first",
)

# %% [markdown]
# With the clip the three seeds go from 0.51 to 0.62 on average, without it to 0.41, by way of 0.27 after 10 batches. At
# every point after the start each seed is better off with the clip. Three seeds show *that* it helps here, not how
# much: the interval of the arm without it is ±0.24. And it is this toy, at this learning rate and with 8 updates a
# batch; with one update a batch the two arms would be the same run.
#
# Then the print above the picture: after 10 batches some tokens are many times more likely than at the warm start.
# **The clip limits a token against `logp_old`, and `logp_old` is renewed with every batch.** Ten batches, each just up
# to 1.2, already make a factor of $1.2^{10} = 6.2$, and the clip is no wall. It limits the step, not the way. What
# holds a policy near its start is another term, the KL of chapter 06.
#
# ## Bug hunt: an ess of 0.29 before anything was trained
#
# A sampler keeps what the tokens so far have computed (the *cache*) and then computes each new token alone. Ours gets
# its own, faster attention code for the second layer. `recipes.grpo()` takes the ratio against what the sampler
# recorded. Here is the first real step, with the plain sampler and with the fast one:


# %% tags=["demo"]
import torch.nn.functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface


def fast_attention(module, query, key, value, attention_mask, **more):
    if module.layer_idx != 1:  # all other layers: as they were
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **more)
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=more.get("scaling"))
    return out.transpose(1, 2), None


def fast_sampler(policy):
    copy = policy.copy()  # the same weights
    copy.model.set_attn_implementation("fast_attention")
    return copy


AttentionInterface.register("fast_attention", fast_attention)
for name, sampler in (("plain sampler", None), ("fast sampler", fast_sampler)):
    policy = warm_start.warm_start(task, "S", seed=0)
    policy.model.double()
    row = train.step(train.start(policy, task, seed=0, lr=3e-4), recipes.grpo(), sampler=sampler)
    print(
        f"{name:13s}: reward/mean {row['reward/mean']:.2f}, policy/ratio_mean {row['policy/ratio_mean']:.3f}, "
        f"policy/ratio_max {row['policy/ratio_max']:5.2f}, policy/ess {row['policy/ess']:.2f}, "
        f"policy/clip_frac {row['policy/clip_frac']:.3f}"
    )

# %% [markdown]
# One update a batch, the very same weights, fresh answers. And yet a largest ratio of 26.36, an effective sample size
# of 0.29, a clip fraction that is not 0, and 15 % right instead of 48 %.
#
# **Your turn (10 minutes).** Don't read on. Write a test that says *where* the two programs part: sample with the fast
# sampler, score with the policy, and look at the ratio column by column (column 0 is an answer's first token). What
# does the first column tell you? What is different about how all later tokens are computed?


# %% tags=["demo"]
def ratio_at_step_0(sampler):
    """The ratio of every token before any training, against what the sampler recorded."""
    policy = warm_start.warm_start(task, "S", seed=0)
    policy.model.double()
    noise_BT = rollout.row_noise(1, range(3), 8, 7)
    answers = rollout.rollout(sampler(policy), task, prompts, group_size=8, noise_BT=noise_BT)
    with torch.no_grad():
        logp_BT, _ = policy.logp(answers)
    return importance_ratio(logp_BT, answers.logp_rollout_BT, answers.mask_BT)


for t, ratio_B in enumerate(ratio_at_step_0(fast_sampler).T):
    print(f"column {t}: ratios from {ratio_B.min():.3f} to {ratio_B.max():6.3f}")

# %% [markdown]
# Column 0: 1.000 in all 24 rows. From column 1 on: ratios from 0.016 to 9.049.
#
# <details><summary>The answer</summary>
#
# Column 0 is exact: it comes from reading the prompt, seven tokens at once, with nothing in the cache. Every later
# token is computed alone, on top of the cache: 1 query, 8 or more keys. `is_causal=True` draws its triangle from the
# **top left** corner of that 1 × 8 table, so the one new token may look at key 0 and at nothing else, not even at
# itself. The sampler writes with a second layer that has forgotten the past. Training reads whole sequences, is right,
# and so disagrees. The next cell makes the triangle visible. Then it mends it, shifted by the number of cached keys,
# and asks the same test again.
#
# </details>


# %% tags=["demo"]
def weights_of(queries, keys, **how):
    """Which keys each query looks at: equal scores, and values that name their key."""
    zeros_BHTD = torch.zeros(1, 1, keys, keys, dtype=torch.float64)
    eye_BHTD = torch.eye(keys, dtype=torch.float64)[None, None]
    weights = F.scaled_dot_product_attention(zeros_BHTD[:, :, :queries], zeros_BHTD, eye_BHTD, **how)[0, 0]
    return "\n".join("   " + " ".join(f"{w:.2f}" for w in row) for row in weights)


def mended_attention(module, query, key, value, attention_mask, **more):
    queries, keys = query.shape[2], key.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(diagonal=keys - queries)  # from the bottom right
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=more.get("scaling"))
    return out.transpose(1, 2), None


def mended_sampler(policy):
    copy = policy.copy()
    copy.model.set_attn_implementation("mended_attention")
    return copy


AttentionInterface.register("mended_attention", mended_attention)
print("no cache, 4 queries, 4 keys, is_causal=True:", weights_of(4, 4, is_causal=True), sep="\n")
print("cache of 3, 1 new query, 4 keys, is_causal=True:", weights_of(1, 4, is_causal=True), sep="\n")
seen = torch.ones(1, 4, dtype=torch.bool).tril(diagonal=4 - 1)
print("the same, triangle drawn from the bottom right:", weights_of(1, 4, attn_mask=seen), sep="\n")
furthest = (ratio_at_step_0(mended_sampler) - 1).abs().max()
print(f"mended sampler, furthest from 1, all columns: {furthest:.6f}")
assert furthest < 1e-6

# %% [markdown]
# With the cache the new token puts weight 1.00 on key 0 and 0.00 on the rest; mended it is 0.25 on each of the four,
# and the ratios are 1 to six digits.
#
# We met this mistake while building the course: nothing crashed, sampling ran, and training learned nothing. We
# measured it again on this toy, one seed each: `train.train(policy, task, recipes.grpo(), steps=40, seed=0, lr=3e-4,
# sampler=fast_sampler)` took the held-out accuracy from 0.50 to 0.25; without the `sampler` it rose to 0.60. One line
# at step 0 would have caught it.
#
# ## You can now …
#
# - weigh samples of one policy for another, and say what is left of them (ess);
# - say why a ratio of 1 is right at the first update, and what can be wrong when it is not;
# - say for each of the four quadrants whether the clip cuts, and check a clip by its gradient;
# - read `clip_frac_high` and `clip_frac_low`, and say what the clip does not do: it brakes neither the first update nor
#   the whole way.
#
# ## Exercises
#
# 1. (5 minutes, easy) With $A = -2$, eps 0.2 and ratio 0.7, what are loss and slope? And at ratio 1.3? Work by hand,
#    then ask your function and `slope`.
# 2. (10 minutes, middle) From which `eps_high` on is nothing cut above in the recorded batch after update 1? Guess from
#    the widget, then compute it.
# 3. (15 minutes, middle) Repeat the run above at learning rate 1e-4, with and without the clip. Does the gap stay?
# 4. (20 minutes, hard) Write `fast_attention` so that the mistake sits in layer 0. What happens to the rewards, and why
#    does the trainer then report no ratio at all?

# %% tags=["widget"]
quiz.Quiz(
    "03",
    [
        quiz.Question(
            "One update a batch, logp_old taken just before it. What is the clip fraction?",
            ["0 always", "small but above 0", "it depends on eps"],
            right="a",
            why=[
                "Every ratio is 1, and 1 is inside every band.",
                "Only if the two passes differ in something they should share: then look for it.",
                "No eps excludes 1, not even eps = 0.",
            ],
        ),
        quiz.Question(
            "A < 0, ratio 0.6, eps 0.2. What is the slope?",
            ["A: it is still pushed down", "0: it has been lowered enough", "A * 0.6"],
            right="b",
            why=[
                "That is the turned-round clip, with max where A < 0.",
                "-0.8 is smaller than -0.6, and -0.8 does not depend on the ratio.",
                "The slope of ratio * A in the ratio is A; in logp it would be A * 0.6, if it were kept.",
            ],
        ),
        quiz.Question(
            "A token is beyond the band and cut. What happens to its probability in the next update?",
            ["it stays", "it is pulled back to the band", "it can go either way"],
            right="c",
            why=[
                "Its own slope is 0, but all tokens share the weights.",
                "The clip has no force of its own: it only stops pushing.",
                "Other tokens' gradients move it: of our 66, 48 % were even lower after update 2, 23 % were back.",
            ],
        ),
        quiz.Question(
            "ess is 0.30 at step 0 of a new run, on answers just written. What do you do first?",
            ["lower the learning rate", "compare sampler and trainer, token by token", "narrow the band"],
            right="b",
            why=[
                "Nothing has been trained yet: the learning rate had no part in it.",
                "Same weights, same tokens: only a difference between two programs can move a ratio there.",
                "That hides the symptom: the tokens would be cut, and the sampler stay broken.",
            ],
        ),
    ],
)

# %% [markdown]
# ## Sources
#
# - J. Schulman et al. 2017, *Proximal Policy Optimization Algorithms*, section 3, equations 6 and 7, figure 1,
#   https://arxiv.org/abs/1707.06347: ratio, clip, min. The four quadrants are its figure 1; "a hand that lets go" is
#   our reading.
# - Z. Shao et al. 2024, *DeepSeekMath*, equation 3 and section 4.2, https://arxiv.org/abs/2402.03300: the same clip in
#   GRPO, one update a batch.
# - DeepSeek-AI 2025, *DeepSeek-R1*, section 2.1, https://arxiv.org/abs/2501.12948: 16 minibatches a rollout.
# - The max for A < 0, and its mending: https://github.com/rasbt/reasoning-from-scratch/pull/240.
# - D. Ye et al. 2020, *Mastering Complex Control in MOBA Games*, https://arxiv.org/abs/1912.09729: dual clip. Prime
#   Intellect 2025, *INTELLECT-2*, https://arxiv.org/abs/2505.07291: the same for language models.
# - Q. Yu et al. 2025, *DAPO*, section 3.1, https://arxiv.org/abs/2503.14476: clip-higher and its reason. That the freed
#   tokens were not rare in our batch is what we measured, on this toy.
# - A. Kong 1992, Technical Report 348, University of Chicago, and A. Owen, *Monte Carlo theory, methods and examples*,
#   chapter 9, https://artowen.su.domains/mc/: effective sample size.
# - The recorded batch and the three seeds: `grpo-lab record several_updates`, `grpo-lab record clip_on_off`.
#
# **Next:** chapter 04 asks where advantages come from when a critic guesses them; chapter 05 (the short path) lets the
# other seven answers do it.
