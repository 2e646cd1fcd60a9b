# %% [markdown]
# # 01 · A policy that writes
#
# Everything that training needs is in three numbers about each token: how likely it was, whether it counts, and what
# it earned. This chapter makes all three, by hand and then on real answers.
#
# - **You need:** 00, and what softmax does. Nothing of reinforcement learning.
# - **You will be able to:** say how an answer is drawn; compute how likely it was, with the right row and the right
#   temperature; mask what doesn't count; tell a good judge from a bad one.
# - **Minutes:** 60.

# %% tags=["setup"]
import os

import torch
from tokenizers import Tokenizer, models

from grpo_lab.concepts import token_logprobs as package
from grpo_lab.engine import policy as policies
from grpo_lab.engine import recording, rollout, tasks, train, warm_start
from grpo_lab.teach import checks, explorer, loop, pictures, plots, predict, quiz, reveal

# %% tags=["plot"]
loop.loop("rollout", "reward", "score")

# %% [markdown]
# ## What does the policy read and write?
#
# Numbers. A text is cut into *tokens*, and each token has a number, its *id*. Here a token is one character; in large
# models it is a piece of a word. Besides the digits and `=` there are two tokens that are no characters: `<eos>`, the
# *end token*, by which the policy says that it is done, and `<pad>`, which fills empty places.

# %% tags=["setup"]
task = tasks.Sort(6)
policy = warm_start.warm_start(task, "S", seed=0)
_ = policy.model.double().requires_grad_(False)  # more digits, so that all machines print the same
end_id = policy.end_ids[0]
names = policy.tokenizer.convert_ids_to_tokens(range(len(policy.tokenizer)))

# %% tags=["demo"]
print("  ".join(f"{i}:{name}" for i, name in enumerate(names)))
print("315042= is", policy.encode_text("315042="), f"; the end token is {end_id}")

# %% [markdown]
# The *vocabulary* has 13 tokens. The policy is a transformer: it reads ids and returns one score for each of the 13
# tokens that could come next.
#
# ## What do its scores mean?
#
# The scores are called *logits*, z. Softmax makes probabilities π (pi) of them: raise e to each, divide by the sum.
# With three tokens and the logits 2, 1, 0: e² = 7.389, e¹ = 2.718, e⁰ = 1, together 11.107. So 0.665, 0.245, 0.090.
# The same on the real policy, after it has read `315042=`:

# %% tags=["demo"]
z_V = torch.tensor([2, 1, 0], dtype=torch.float64)
print("by hand:", "  ".join(f"{x:.3f}" for x in z_V.exp() / z_V.exp().sum()))
ids_BS = torch.tensor([policy.encode_text("315042=")])
pi_V = policy.model(input_ids=ids_BS).logits[0, -1].softmax(-1)
print("real:   ", "  ".join(f"{names[v]} {pi_V[v]:.3f}" for v in pi_V.topk(5).indices))

# %% [markdown]
# The smallest digit is 0, and the policy gives it 0.961. The other 12 tokens share 0.039. That is all a language model
# is, seen from here: a probability for each next token, given everything before. In the words of reinforcement
# learning the text so far is the *state*, the next token is the *action*, and the rule that gives actions their
# probabilities is the *policy*.
#
# ## How does one number choose a token?
#
# Draw one number u, anywhere between 0 and 1 with equal chance. Lay the probabilities end to end, 0.665 | 0.245 |
# 0.090, and see in whose stretch u falls. The ends of the stretches are 0.665, 0.910 and 1. So u = 0.70 chooses the
# second token. (The method is called *inverse CDF*: the running sum is the cumulative distribution function.)

# %% tags=["demo"]
u_B = torch.tensor([0.10, 0.70, 0.95], dtype=torch.float64)
tokens_B, _ = rollout.sample(z_V.expand(3, 3), u_B, temperature=1.0)  # what this course samples with
print("ends of the stretches:", "  ".join(f"{x:.3f}" for x in z_V.softmax(-1).cumsum(-1)))
print("u:", u_B.tolist(), "chooses token", tokens_B.tolist())
u_B = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
tokens_B, _ = rollout.sample(z_V.expand(1000, 3), u_B, temperature=1.0)
print("1,000 evenly spaced u choose them", tokens_B.bincount().tolist(), "times")

# %% [markdown]
# 665, 245 and 90 times: as often as it should be. The u are kept as the *dice* of an answer. Same policy and same dice,
# same answer; that is how 00 showed you the same prompts before and after training.
#
# ## What does temperature do?
#
# Divide all logits by a number, the *temperature*, before softmax. At temperature 0.5 the logits 2, 1, 0 become 4, 2,
# 0: their distances double, and 0.665, 0.245, 0.090 become 0.867, 0.117, 0.016. A low temperature sharpens, a high one
# flattens, 1 changes nothing.
#
# *Top-k* is another dial: only the k likeliest tokens stay. The others get probability 0, and those that stay are
# scaled up to a sum of 1.
#
# How sure a policy is, in one number, is the *entropy*: $-\sum_v \pi_v \log \pi_v$. It is 0 if one token has
# everything, and log 13 = 2.565 if all 13 are equal.

# %% tags=["demo"]
for temperature in (1.0, 0.5, 2.0):
    pi_V = (z_V / temperature).softmax(-1)
    numbers = "  ".join(f"{x:.3f}" for x in pi_V)
    print(f"temperature {temperature}: {numbers}   entropy {-(pi_V * pi_V.log()).sum():.3f}")

# %% [markdown]
# Now on a real answer. To `386051=` the policy wrote 012368; right is 013568. At `place` 3 it has written 01 and is
# about to choose. Turn the temperature up until the wrong 2 is four times as likely, then k down until it can't be
# written.

# %% tags=["setup"]
real_ids_BS = torch.tensor([policy.encode_text("386051=012368")])
real_z_TV = policy.model(input_ids=real_ids_BS).logits[0, 6:]  # of the 7 states in which it chose a token
written = [*"012368", "<eos>"]
wanted = [*"013568", "<eos>"]


# %% tags=["demo"]
def keep_top(logits_BV, k):
    """All but the k largest logits become minus infinity, so their probability is 0."""
    least_B1 = logits_BV.topk(k).values[..., -1:]
    return logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)


def next_token(temperature, k, place):
    return (keep_top(real_z_TV[place - 1 : place], k)[0] / temperature).softmax(-1)


def draw_next(fig, *, temperature, k, place):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    explorer.bars(ax, "pi", range(13), next_token(temperature, k, place).tolist(), color=pictures.BLUE)
    marks = {wanted[place - 1]: "right", written[place - 1]: "written"}
    if written[place - 1] == wanted[place - 1]:
        marks = {wanted[place - 1]: "right,\nwritten"}
    for v, name in enumerate(names):
        explorer.text(ax, name, v, 1.02, marks.get(name, ""), ha="center", fontsize=9)
    if not ax.get_xlabel():
        ax.set(
            xlim=(-0.6, 12.6),
            ylim=(0, 1.2),
            yticks=(0, 0.5, 1),
            xticks=range(13),
            xticklabels=["pad", "end", *names[2:]],
        )
        pictures.tidy(
            ax, title="What the policy may write next, to 386051=", xlabel="next token", ylabel="probability"
        )


# %% tags=["demo"]
def describe_next(*, temperature, k, place):
    pi_V = next_token(temperature, k, place)
    right, wrote = (float(pi_V[names.index(x[place - 1])]) for x in (wanted, written))
    said = f"the right one, {wanted[place - 1]}, has probability {right:.3f}"
    if written[place - 1] != wanted[place - 1]:
        said += f", the written one, {written[place - 1]}, {wrote:.3f}"
    entropy = -torch.special.xlogy(pi_V, pi_V).sum()
    so_far = "".join(written[: place - 1]) or "nothing"
    return (
        f"Written so far: {so_far}. At temperature {temperature:g}, top {k}: {said}; entropy {entropy:z.3f}."
    )


# %% tags=["widget"]
explorer.Explorer(
    draw_next,
    describe_next,
    question="What may come next, and how likely is it?",
    temperature=explorer.number(1.0, 0.2, 3.0, "divides the logits", step=0.1),
    k=explorer.whole(13, 1, 13, "tokens kept"),
    place=explorer.whole(3, 1, 7, "token of the answer"),
)

# %% [markdown]
# At temperature 1 the right 3 had probability 0.930, and the 2 that was written 0.019. Unlikely, and it happened: in a
# batch of hundreds of tokens such things do. At temperature 2 the 2 has 0.076; with k = 1 it has 0, at any temperature.
# (So has everything else but the likeliest token: with k = 1 all answers to a prompt are the same, and nothing can be
# compared.)
#
# ## How does a whole answer come about?
#
# Read everything so far, choose one token, put it at the end; again. That is the whole of `rollout`. The course's own
# (`engine/rollout.py`) does the same without reading anything twice, and stops at the end token.


# %% tags=["demo"]
def write(prompts, noise_BT, *, temperature=1.0, k=13):
    """Prompts and answers (B, 14), and the log-probability of each token when it was chosen (B, 7)."""
    ids_BS, _ = policy.encode(prompts)
    logp = []
    for noise_B in noise_BT.T:  # seven times; this loop doesn't stop at an end token
        logits_BV = keep_top(policy.model(input_ids=ids_BS).logits[:, -1], k)
        tokens_B, logp_B = rollout.sample(logits_BV, noise_B, temperature=temperature)
        ids_BS = torch.cat([ids_BS, tokens_B[:, None]], 1)
        logp.append(logp_B)
    return ids_BS, torch.stack(logp, 1)


prompts = task.prompts(24, generator=torch.Generator().manual_seed(7))
noise_BT = rollout.row_noise(7, range(24), 1, task.max_tokens)  # the dice: one number a token
slow_ids_BS, _ = write(prompts, noise_BT)
batch = rollout.rollout(policy, task, prompts, group_size=1, noise_BT=noise_BT)
assert torch.equal(slow_ids_BS[:, 7:][batch.mask_BT], batch.tokens_BT[batch.mask_BT])
for b in (0, 3, 10, 17):
    print(prompts[b].text, batch.turns[b][0], "  ids", batch.tokens_BT[b].tolist())

# %% [markdown]
# Each answer ends at its id 1. The first is right; the second is the answer that you just took apart. The third begins
# with `<pad>`, which the policy may write like any other token (it did so with probability 0.002). The fourth stopped
# after one digit. All rows of a tensor must be equally long, so zeros (`<pad>`) fill the places behind its end token.
#
# ## How likely was a whole answer?
#
# Each token's probability is given what came before, so they multiply. Products of many small numbers become 0 in a
# computer. So one keeps logarithms, which add up: *log-probabilities*, `logp`. They are never above 0. A probability of
# 1 is 0; 0.5 is −0.693; 0.019 is −3.98.

# %% tags=["demo"]
p_T = batch.logp_rollout_BT[3].exp()
print("probabilities of 0 1 2 3 6 8 and the end:", "  ".join(f"{p:.3f}" for p in p_T))
print(f"multiplied: {p_T.prod():.5f};   logs added: {batch.logp_rollout_BT[3].sum():.3f}", end="")
print(f", and exp of that: {batch.logp_rollout_BT[3].sum().exp():.5f}")
many_T = torch.full((2000,), 0.5, dtype=torch.float64)
print(f"2,000 tokens of 0.5 each, multiplied: {many_T.prod()}, logs added: {many_T.log().sum():.1f}")

# %% tags=["plot"]
plots.token_strip(
    [*batch.turns[3][0], "end"],
    batch.logp_rollout_BT[3],
    title="Log-probability of each token of a wrong answer to 386051=",
)

# %% [markdown]
# One token stands out: the 2, at −3.98. After that slip the next two are uncertain too (−0.92, −1.07), and the rest is
# what a sorted answer looks like. The judge says 0 for all seven. Which token was at fault, it doesn't say.
#
# ## Which row of logits predicts which token?
#
# Here is where people fall, in published code too. The model is fed tokens 0, 1, 2 and returns a row of logits for
# each. The row at token s has *read* token s. So it predicts token s + 1. (With many texts, `logits_BSV[:, s]` holds
# the row s of each; the check calls that column s. The table below shows the rows side by side.)
#
# | position s | 0 | 1 | 2 |
# |---|---|---|---|
# | token fed in | `?` (the prompt) | `a` | `end` |
# | π of `?`, `a`, `end` after it | 0.3, **0.5**, 0.2 | 0.1, 0.3, **0.6** | 0.1, 0.0, 0.9 |
#
# The answer `a end` has probability 0.5 · 0.6 = 0.30. The first token has no row before it, and the last row predicts a
# token that isn't there.

# %% tags=["demo"]
pi_SV = torch.tensor([[0.3, 0.5, 0.2], [0.1, 0.3, 0.6], [0.1, 0.0, 0.9]], dtype=torch.float64)
ids_S = [0, 1, 2]  # ? a end
before = [pi_SV[s - 1, ids_S[s]] for s in (1, 2)]  # the row before the token
same = [pi_SV[s, ids_S[s]] for s in (1, 2)]  # the row at the token: off by one
print(f"row before: {before[0]:.1f} * {before[1]:.1f} = {before[0] * before[1]:.2f}")
print(f"row at it:  {same[0]:.1f} * {same[1]:.1f} = {same[0] * same[1]:.2f}   (off by one)")

# %% [markdown]
# 0.27 looks as good as 0.30. Nothing crashes; shapes fit. On the real answers: take each token's log-probability from
# the row that has already read it.

# %% tags=["widget"]
bet_shift = predict.Bet(
    "01-shift",
    "24 real answers have a mean log-probability near −3.5. What is it if the row at each token scores that token?",
    choices=["near 0: that row has seen it already", "about the same", "far lower"],
)
bet_shift

# %% tags=["demo"]
ids_BS = torch.cat([batch.prompt_ids_PL, batch.tokens_BT], 1)  # 7 tokens of prompt, 7 of answer
logits_BSV = policy.model(input_ids=ids_BS).logits
off_BT = logits_BSV.log_softmax(-1).gather(-1, ids_BS[:, :, None]).squeeze(-1)[:, 7:]
right, off = ((x_BT * batch.mask_BT).sum(1).mean() for x_BT in (batch.logp_rollout_BT, off_BT))
print(f"mean log-probability of an answer: {right:.2f}; off by one: {off:.2f}")
bet_shift.reveal(
    "far lower",
    because=f"{off:.1f} against {right:.1f}. The row at a token says what comes after it. Mostly that is another, "
    "and the policy is sure of it. 'Near 0' is reasonable: the row has read the token. But it was trained to say what "
    "is next.",
)

# %% [markdown]
# ## Exercise: `token_logprobs` (10 minutes, middle)
#
# This is the only place in the course where anything is shifted. Everywhere else column t belongs to token t.
#
# **In:** `logits_BSV`, S rows of logits for each of B texts; `ids_BS`, the S tokens fed in; `temperature`. Some callers
# leave out the last row of logits: then there are S − 1, and all are needed (so take the *first* S − 1 rows; `[:, :-1]`
# would take one too few). **Out:** `logp_BS`, S − 1 columns: the log-probability of tokens 1 to S − 1, each at this
# temperature. **Worked line:** the table above gives `[log 0.5, log 0.6]` =
# `[−0.693, −0.511]`. **Done when** the check says so.
#
# *Hint: which rows do you need, which tokens, and is it before or after softmax that the temperature divides?*


# %% tags=["exercise"]
def token_logprobs(logits_BSV, ids_BS, *, temperature=1.0):
    raise NotImplementedError("yours: shift, divide, log_softmax, choose")


# %% tags=["check"]
token_logprobs = checks.check_token_logprobs(token_logprobs, otherwise=package.token_logprobs)

# %% tags=["demo"]
reveal.reveal(package.token_logprobs)

# %% [markdown]
# The package's own lines use `logsumexp` in the place of `log_softmax`: the same numbers with less memory.
#
# ## Does yours agree with the sampler?
#
# While the answer was written, the sampler noted each token's log-probability: `logp_rollout_BT`. Now the finished text
# goes through the model once, and your function reads it off. If both are right, they agree. We compare by the *ratio*,
# $\exp(\mathrm{logp} - \mathrm{logp\_rollout})$: how many times as likely the token is now as it was when it was
# written. Same weights, so it must be 1.

# %% tags=["widget"]
bet_temperature = predict.Bet(
    "01-temperature",
    "Tokens are written at temperature 0.6 and scored at 1 by mistake. How far up does the ratio of a token go?",
    choices=["it stays within 0.9 and 1.1", "up to about 1.5", "beyond 2"],
)
bet_temperature


# %% tags=["demo"]
def ratio_of(drawn, temperature):
    """pi / pi_rollout of each own token, scored by your function at this temperature."""
    ids_BS = torch.cat([drawn.prompt_ids_PL, drawn.tokens_BT], 1)
    logp_BS = token_logprobs(policy.model(input_ids=ids_BS).logits, ids_BS, temperature=temperature)
    return (logp_BS[:, 6:] - drawn.logp_rollout_BT)[drawn.mask_BT].exp()  # 6 columns belong to the prompt


drawn = {
    temperature: rollout.rollout(
        policy, task, prompts, group_size=1, noise_BT=noise_BT, temperature=temperature
    )
    for temperature in (1.0, 0.6)
}
for temperature, scored in ((1.0, 1.0), (0.6, 0.6), (0.6, 1.0)):
    ratio_N = ratio_of(drawn[temperature], scored)
    spread = f"smallest {ratio_N.min():.3f}, largest {ratio_N.max():.3f}"
    print(f"written at temperature {temperature}, scored at {scored}: {len(ratio_N)} tokens, {spread}")
    assert scored != temperature or (ratio_N - 1).abs().max() < 1e-5
bet_temperature.reveal(
    "beyond 2",
    because=f"Up to {ratio_N.max():.2f} here, before any training. Most ratios lie a little below 1, because a low "
    "temperature makes likely tokens likelier. 'Within 0.9 and 1.1' is reasonable for those. But a rare token is "
    "made far rarer by 0.6; a few such tokens were written all the same, and theirs are the large ratios.",
)

# %% [markdown]
# Scored at its own temperature each ratio is 1.000. Scored at another, it says that the policy has changed, and it
# hasn't. From chapter 03 on such a ratio decides what is learned. So the temperature belongs to the batch
# (`batch.temperature`), and scoring reads it there. Training computes in float32, with fewer digits; there the two
# agree as well:

# %% tags=["demo"]
for temperature in (1.0, 0.6):
    single = warm_start.warm_start(task, "S", seed=0)  # float32, as in training
    many = task.prompts(128, generator=torch.Generator().manual_seed(8))
    dice_BT = rollout.row_noise(8, range(128), 1, 7)
    b = rollout.rollout(single, task, many, group_size=1, noise_BT=dice_BT, temperature=temperature)
    ids_BS = torch.cat([b.prompt_ids_PL, b.tokens_BT], 1)
    logp_BS = token_logprobs(single.model(input_ids=ids_BS).logits, ids_BS, temperature=temperature)
    apart = (logp_BS[:, 6:] - b.logp_rollout_BT)[b.mask_BT].abs().max()
    print(f"temperature {temperature}: 128 answers in float32 agree within 0.00001: {bool(apart < 1e-5)}")
    assert apart < 1e-5

# %% [markdown]
# ## And if only the sampler cuts to the top k?
#
# With top-k the sampler divides by the *kept mass*, the sum of the probabilities that stay. Scoring without top-k
# doesn't. Let 0.665, 0.245, 0.090 be cut to the top two, mass 0.910: the sampler wrote the first token with
# 0.665 / 0.910 = 0.731. Scored at 0.665, the ratio is 0.910. It is the kept mass, whichever token was drawn.

# %% tags=["demo"]
pi_V, kept_V = z_V.softmax(-1), keep_top(z_V[None], 2)[0].softmax(-1)
print("by hand, top 2:", "  ".join(f"{x:.3f}" for x in pi_V[:2] / kept_V[:2]))
for k in (13, 3, 1):
    ids_BS, logp_sampler_BT = write(prompts, noise_BT, k=k)
    logp_BT = token_logprobs(policy.model(input_ids=ids_BS).logits, ids_BS)[:, 6:]
    ratio_BT = (logp_BT - logp_sampler_BT).exp()
    spread = f"smallest {ratio_BT.min():.3f}, largest {ratio_BT.max():.3f}"
    print(f"top {k:2d}: mean ratio {ratio_BT.mean():.3f}, {spread}", end="")
    print(f", of a whole answer on average {ratio_BT.prod(1).mean():.3f}")

# %% [markdown]
# With top 3 a token's ratio is 0.975 on average, and a whole answer's 0.837; with top 1 the answer's is 0.514. None is
# above 1, so these are no accidents of the dice. The other way round is worse: a token outside the top k, scored with
# top-k, has probability 0 and log-probability −∞. Score with the same top-k, or sample without, as this course does.
#
# ## Where does an answer end?
#
# At the first end token. It counts: stopping is a choice of the policy, and is learned like any other. What stands
# behind it doesn't count. The *mask* says which tokens count, True or False. By hand, for the ids 5, 1, 0, 1 where 1 is
# the end: end tokens *before* each place are 0, 0, 1, 1; so True, True, False, False.


# %% tags=["demo"]
def own_tokens(tokens_BT):
    """True up to and including the first end token."""
    is_end_BT = (tokens_BT == end_id).long()
    return is_end_BT.cumsum(1) - is_end_BT == 0


print("by hand:", own_tokens(torch.tensor([[5, 1, 0, 1]])).tolist()[0])
assert torch.equal(own_tokens(batch.tokens_BT), batch.mask_BT)
filled_BT = batch.tokens_BT.where(batch.mask_BT, end_id)  # some libraries fill with the end token
assert torch.equal(own_tokens(filled_BT), batch.mask_BT)
ids_BS = torch.cat([batch.prompt_ids_PL, batch.tokens_BT], 1)
logp_BT = token_logprobs(policy.model(input_ids=ids_BS).logits, ids_BS)[:, 6:]
print(
    f"the answer 9: {batch.mask_BT[17].sum()} own tokens, log-probability {logp_BT[17, :2].sum():.2f}", end=""
)
print(f"; with the 5 fillers counted {logp_BT[17].sum():.2f}")

# %% [markdown]
# −5.42 becomes −35.34, and nobody chose those five. If they count, training spends itself on filler: in a rectangle
# 1,000 wide an answer of 20 tokens has 980 of them. The formula looks at the *first* end, so it gives the same mask
# where a library fills with the end token itself, as many do.
#
# ## What about prompts of different lengths?
#
# All our prompts have 7 tokens. In general they don't, and a batch is a rectangle. Answers are written on the right,
# so prompts are filled on the *left*: then the last column is the last real token of each row, the one that predicts.
# The model must be told two things: not to look at the filler (`attention_mask`), and where the text begins
# (`position_ids`).

# %% tags=["demo"]
adder = policies.build_policy(tasks.Addition(2), "XS")
ids_PL, mask_PL = adder.encode(["7+5=", "47+15="])
print("left padding:", ["".join(adder.tokenizer.convert_ids_to_tokens(row)) for row in ids_PL])
plain_S = policy.encode_text("315042=")
padded_BS = torch.tensor([[policy.pad_id] * 3 + plain_S])
mask_BS = padded_BS != policy.pad_id  # a prompt holds no <pad> of its own
right_BS = torch.tensor([plain_S + [policy.pad_id] * 3])
zero = names.index("0")
for words, ids_BS, told in (
    ("no padding", torch.tensor([plain_S]), {}),
    ("3 on the left, told so", padded_BS, policies.prompt_positions(mask_BS)),
    ("3 on the left, not told", padded_BS, {}),
    ("3 on the right, last column", right_BS, {}),
):
    pi_V = policy.model(input_ids=ids_BS, **told).logits[0, -1].softmax(-1)
    print(f"{words:28s} probability of the right first digit, 0: {pi_V[zero]:.3f}")

# %% [markdown]
# Told so, the padded prompt gets what it gets alone, 0.961. Not told, 0.005, and with the filler on the right 0.002,
# since the last column then is filler and not `=`. Nothing crashes; the policy only gets worse.
#
# ## Text, or ids?
#
# The judge reads text. It is tempting to keep the text, and to encode it again for training. Two things get lost: the
# end token, which is no text; and which ids were sampled, where a text has more than one spelling. In a vocabulary with
# `1`, `2` and `12` the policy may write 1 and 2; encoded again that is one token, 12.

# %% tags=["demo"]
pieces = Tokenizer(models.BPE(vocab={"1": 0, "2": 1, "12": 2}, merges=[("1", "2")]))
sampled = [0, 1]
again = pieces.encode("".join(pieces.id_to_token(i) for i in sampled)).ids
print(f"sampled {sampled}: 2 log-probabilities; encoded again {again}: {len(again)} token")
same = sum(
    policy.encode_text(turns[0]) == tokens_T[mask_T].tolist()
    for turns, tokens_T, mask_T in zip(batch.turns, batch.tokens_BT, batch.mask_BT, strict=True)
)
print(
    f"real answers whose text encodes to the ids that were sampled: {same} of {len(batch)} (the end is missing)"
)

# %% [markdown]
# So 2 log-probabilities meet 1 token, and no answer survives. This course keeps the ids; text is for the judge only.
#
# ## Who says what is right?
#
# A *reward function* computes: here, is the answer the sorted prompt? It can be wrong only if its author is. Such a
# reward is called *verifiable*. A *reward model* is a network that was trained on people's preferences; it guesses, and
# is asked where nothing can be computed (is this poem good?).
#
# Authors do err. "Answers should have 20 characters" was once published as the reward `abs(20 - len(text))`:

# %% tags=["demo"]
for n in (20, 19, 5):
    print(f"{n:2d} characters: reward as published {abs(20 - n):2d}, as meant {-abs(20 - n):3d}")
text = batch.turns[10][0]
print(f"{text!r}: {len(text)} characters, {batch.mask_BT[10].sum()} tokens with its end")

# %% [markdown]
# The wrong sign pays 15 for 5 characters and 0 for what was wanted. And `len(text)` counts characters: 10 of them,
# where the policy chose 7 tokens. Print a few answers with their rewards before you train.
#
# ## Must rewards be 0 and 1?
#
# In 00 an answer's reward was compared with the mean of its group. So adding a number to all rewards changes nothing.
# Multiplying them does, unless one divides by how far they are spread (their standard deviation), as GRPO does.

# %% tags=["demo"]
pattern_G = torch.tensor([1, 0, 0, 1, 0, 0, 1, 0], dtype=torch.float64)  # three of eight are right
for low, high in ((0, 1), (10, 11), (-1, 1), (0, 100)):
    rewards_G = low + (high - low) * pattern_G
    minus_G = rewards_G - rewards_G.mean()
    divided_G = minus_G / rewards_G.std()
    print(f"wrong {low:2d}, right {high:3d}: minus mean {minus_G[0]:+7.3f} and {minus_G[1]:+8.3f}", end="")
    print(f"; divided too {divided_G[0]:+.3f} and {divided_G[1]:+.3f}")

# %% [markdown]
# 10 and 11 are as good as 0 and 1. The scale matters in the first pair of columns and not in the second. With only two
# rewards, what is left is which answers get more. With three or more the distances count too: with 0, 1, 100 the middle
# answer lies below the mean, with 0, 99, 100 above it.
#
# ## What does the policy learn if the judge checks half?
#
# Take a judge for sorting that looks at the answer alone: six digits, and what share of the 5 neighbouring pairs is in
# order? Sorted answers get 1, as they should. It never compares with the prompt. The warm start is trained on it, 60
# updates.

# %% tags=["widget"]
bet_half = predict.Bet(
    "01-half-a-judge",
    "The warm start sorts about 46 % right. After 60 updates on this judge, how many per cent does it sort right?",
    low=0,
    high=100,
)
bet_half

# %% tags=["setup"]
half = recording.read_recording("half_a_judge")  # made by: grpo-lab record half_a_judge
half_answers = recording.texts_of(half["answers_AT"])  # 6 answers at each of 7 looks
half_prompts = recording.texts_of(half["prompts_KT"])


# %% tags=["demo"]
def draw_half(fig, *, updates):
    n, ax = updates // 10, fig.axes[0] if fig.axes else fig.subplots()
    explorer.bars(ax, "judge", (0, 1, 2), half["proxy_SN"][:, n].tolist(), color=pictures.GREEN)
    share = half["accuracy_SN"][:, n].tolist()
    explorer.bars(ax, "right", (4, 5, 6), share, color=pictures.ORANGE, hatch="//", edgecolor="white")
    rows = [f"{p[:-1]} → {half_answers[6 * n + i]}" for i, p in enumerate(half_prompts)]
    explorer.text(ax, "rows", 7.2, 0.5, "\n".join(rows), family="monospace", fontsize=10, va="center")
    if not ax.get_ylabel():
        ax.set(
            xlim=(-0.6, 10.2),
            ylim=(0, 1.05),
            xticks=(1, 5),
            xticklabels=("this judge's reward", "sorted right"),
        )
        ax.text(8.6, 0.93, "seed 0 writes", ha="center", fontsize=10)
        pictures.tidy(
            ax, title="The reward climbs and the work is gone (3 seeds each)", ylabel="mean of 500 prompts"
        )


def describe_half(*, updates):
    n = updates // 10
    judge, right = (half[name][:, n].double().mean() for name in ("proxy_SN", "accuracy_SN"))
    return f"After {updates} updates: reward {judge:.2f}, sorted right {right:.2f}, means of 3 seeds."


# %% tags=["widget"]
explorer.Explorer(
    draw_half,
    describe_half,
    question="What does the policy write as its reward climbs?",
    updates=explorer.whole(60, 0, 60, "made so far", step=10),
)

# %% tags=["demo"]
half_right_N = half["accuracy_SN"].double().mean(0)
bet_half.reveal(
    round(100 * float(half_right_N[-1])),
    within=5,
    because=f"From {half_right_N[0]:.0%} to {half_right_N[1]:.0%} after 10 updates, {half_right_N[-1]:.0%} after 60, "
    "while the reward climbed from .90 to .97. '46, or a little more' is reasonable: a sorted answer gets the full "
    "reward. But low digits first and high ones last gets it too, for any prompt, and is easier.",
)

# %% [markdown]
# The answer to 898867 became 888888, that to 592120 became 013338. Both have no falling pair (two equal digits count
# as in order), so both get 1. That is *reward hacking*: the reward went up and what it was meant for went down. When a
# policy writes something odd, the same letter again and again say, ask what its judge pays for that. On this toy ten
# updates were enough.
#
# ## Your log-probabilities in a real training
#
# Now train with your function, by hand: no recipe, no trainer. Write 128 answers and judge them. Then raise the
# log-probability of the answers whose reward R is above the mean $\bar R$ of all 128, and lower that of the others.
# (Why $-(R - \bar R) \cdot \mathrm{logp}$ is the right loss for that is chapter 02.) The gradient reaches the weights
# through your `token_logprobs`.

# %% tags=["train"]
learner = warm_start.warm_start(task, "S", seed=0)
optimizer = train.adamw(learner.parameters(), 3e-4)
chance, mine = torch.Generator().manual_seed(1), []
for update in range(3 if os.environ.get("GRPO_LAB_FAST") else 30):
    asked = task.prompts(128, generator=chance)
    dice_BT = rollout.row_noise(1, range(128 * update, 128 * update + 128), 1, 7)
    b = rollout.rollout(learner, task, asked, group_size=1, noise_BT=dice_BT)
    rewards_B = torch.tensor([task.reward(p, turns) for p, turns in zip(asked, b.turns, strict=True)])
    ids_BS = torch.cat([b.prompt_ids_PL, b.tokens_BT], 1)
    logp_BT = token_logprobs(learner.model(input_ids=ids_BS).logits, ids_BS)[:, 6:]
    advantages_B = rewards_B - rewards_B.mean()
    loss = -(advantages_B[:, None] * logp_BT)[b.mask_BT].sum() / 128
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    optimizer.step()
    mine.append(float(rewards_B.mean()))

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained just now in float32, which differs in the last digits from machine to machine
fives = [sum(mine[i : i + 5]) / 5 for i in range(0, len(mine) - 4, 5)]
print("share of right answers in each five updates: ", "  ".join(f"{x:.2f}" for x in fives))
if not os.environ.get("GRPO_LAB_FAST"):
    assert sum(mine[-5:]) / 5 > sum(mine[:3]) / 3 + 0.05, mine

# %% [markdown]
# Ours went from 0.46 to 0.61 in 30 updates (one seed, on this toy). Tokens, log-probabilities, mask, reward: that was
# all of it.
#
# ## Bug hunt: the model that looks fine and gets nothing right (8 minutes)
#
# A colleague makes a warm start of their own: a fresh policy is shown solved examples, 60 batches of 128, and the
# loss is the mean of −logp. Their tokenizer came without a pad token, so they took the usual remedy, and the end token
# serves as one.

# %% tags=["train"]
fresh = policies.build_policy(task, "S", seed=0)
optimizer = train.adamw(fresh.parameters(), 2e-3)
chance = torch.Generator().manual_seed(3)
pad_id = fresh.end_ids[0]  # the usual remedy
for _ in range(3 if os.environ.get("GRPO_LAB_FAST") else 60):
    asked = task.prompts(128, generator=chance)
    shown = warm_start.demonstration_batch(fresh, task, asked, [[p.target] for p in asked])
    ids_BS = torch.cat([shown.prompt_ids_PL, shown.tokens_BT], 1)
    mask_BS = ids_BS != pad_id
    logp_BT = token_logprobs(fresh.model(input_ids=ids_BS).logits, ids_BS)[:, 6:]
    loss = -logp_BT[mask_BS[:, 7:]].mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(fresh.parameters(), 1.0)
    optimizer.step()

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained just now in float32, which differs in the last digits from machine to machine
held_out = task.prompts(200, generator=torch.Generator().manual_seed(1), split="held_out")
solved = warm_start.demonstration_batch(fresh, task, held_out, [[p.target] for p in held_out])
dice_BT = rollout.row_noise(1, range(200), 1, 7)
healthy = warm_start.warm_start(task, "S", seed=0)
print("                    loss   right   response/length   response/cut_off_frac")
for name, writer in (("healthy warm start", healthy), ("the colleague's", fresh)):
    counted_BT = solved.mask_BT if writer is healthy else solved.tokens_BT != pad_id  # as each counts it
    loss = -writer.logp(solved)[0].detach()[counted_BT].mean()
    b = rollout.rollout(writer, task, held_out, group_size=1, noise_BT=dice_BT)
    right = sum(task.reward(p, turns) for p, turns in zip(held_out, b.turns, strict=True)) / 200
    length, cut = b.mask_BT.sum(1).double().mean(), 1 - b.finished_B.double().mean()
    print(f"{name:18s}  {loss:4.2f}   {right:4.2f}    {length:4.2f}              {cut:4.2f}")
if not os.environ.get("GRPO_LAB_FAST"):
    assert (right < 0.1 and cut > 0.8) or (
        right > 0.3 and cut < 0.1
    )  # the second: you repaired it (exercise 3)

# %% [markdown]
# The loss is as good as that of the healthy one (ours: 0.11 and 0.11), and next to nothing is right.
# `response/length` is the mean number of tokens of an answer, its end included. `response/cut_off_frac` is the share
# of answers that reached the limit of 7 tokens without ending. (Our tokenizer does have a `<pad>`; the code plays the
# colleague's part by comparing with the end token.) Look at `b.turns[:5]` and at one row of `mask_BS`. Find the line
# before you open the fold. Would reinforcement learning from here repair it?
#
# <details><summary>What happened</summary>
#
# `mask_BS = ids_BS != pad_id` was to hide fillers. It hides *every end token*, because pad and end have one id. So
# no example ever taught to stop. The digits are learned as well as in a healthy run; the seventh token is one more
# digit, as in `0234666`, and the judge says 0. The loss can't show it: what the mask hides is not in the loss either.
#
# Reinforcement learning can hardly repair it: nearly all rewards are 0, so nearly all advantages are 0.
#
# The fix: the mask of this chapter, first end included, what comes after not: `shown.mask_BT`. In a real tokenizer,
# make the mask from lengths or from the first end token, never from `ids != pad`. (It would drop a `<pad>` that the
# policy wrote, too.)
# </details>
#
# ## You can now
#
# - draw a token from logits with one number, at any temperature and top-k;
# - compute the log-probability of each token from the right row, and test it: the ratio to the sampler's must be 1;
# - mask an answer up to and including its first end token, and pad prompts on the left;
# - say why ids are kept, what a verifiable reward is, and how a half-right judge is hacked.
#
# ## Exercises
#
# 1. *(3 min, easy)* By hand: logits 1, 0, 0 at temperature 0.5. Which probabilities? Which token does u = 0.8 choose?
# 2. *(5 min, easy)* In the cell about top-k, cut the logits (`keep_top`) before you score, too. What are the ratios
#    then?
# 3. *(10 min, middle)* Repair the colleague's mask and run the two cells again. What do the four numbers become?
# 4. *(15 min, middle)* Mend the half judge without giving away the answer: let it check that the answer has the same
#    digits as the prompt, in any order. Which answers can still cheat?
#
# <details><summary>What we got</summary>
#
# 1: logits 2, 0, 0 give 0.787, 0.107, 0.107; u = 0.8 lies in the second stretch, 0.787 to 0.893. 2: 1 for each token
# that was written. 3: right 0.49, length 6.86, cut off 0.01. The loss printed is 0.13, since the second cell still
# leaves the end out of it (`counted_BT`). 4: none gets the full reward: the same digits without a falling pair are the
# sorted prompt. Half-sorted answers are still paid, but less.
# </details>

# %% tags=["widget"]
quiz.Quiz(
    "01",
    [
        quiz.Question(
            "You feed in 12 tokens and get 12 rows of logits. Which row says how likely token 5 was?",
            ["row 4", "row 5", "row 6"],
            right="a",
            why=[
                "It has read tokens 0 to 4 and predicts the next one.",
                "It has read token 5 already, and predicts token 6.",
                "It has read token 6 too: shifted the wrong way.",
            ],
        ),
        quiz.Question(
            "Before any training your ratios lie between 0.7 and 5. Where do you look first?",
            ["at the learning rate", "at temperature and top-k on both sides", "at the reward"],
            right="b",
            why=[
                "No weight has changed yet, so it has done nothing.",
                "Same weights must give ratio 1. Something was applied on one side only.",
                "Rewards don't enter the ratio.",
            ],
        ),
        quiz.Question(
            "Answer: 7, 3, end, end, end. Which tokens count?",
            ["7 and 3", "7, 3 and the first end", "all five"],
            right="b",
            why=[
                "Then the policy never learns to stop.",
                "The first end was the policy's choice. The others are filler.",
                "Nobody chose the last two.",
            ],
        ),
        quiz.Question(
            "The reward of your run climbs and users complain. What is likely?",
            [
                "too few updates",
                "the judge rewards something that isn't what you want",
                "the temperature is too low",
            ],
            right="b",
            why=[
                "The reward did climb: it learned what it was paid for.",
                "Read answers with high rewards. In this chapter 888888 had the full reward.",
                "That changes how much answers differ, not what they are paid for.",
            ],
        ),
    ],
)

# %% [markdown]
# ## Sources
#
# - Bengio, Ducharme, Vincent and Jauvin 2003, *A Neural Probabilistic Language Model*,
#   https://www.jmlr.org/papers/v3/bengio03a.html, section 1: a text's probability as a product over its next words.
# - Sutton and Barto 2018, *Reinforcement Learning*, 2nd ed., http://incompleteideas.net/book/the-book-2nd.html,
#   chapter 3: state, action, policy.
# - Ouyang et al. 2022, *Training language models to follow instructions with human feedback*,
#   https://arxiv.org/abs/2203.02155: a reward model trained on preferences. Shao et al. 2024, *DeepSeekMath*,
#   https://arxiv.org/abs/2402.03300, section 4: GRPO, whose rewards come from a reward model there too.
# - Lambert et al. 2024, *Tulu 3*, https://arxiv.org/abs/2411.15124: the words "verifiable rewards".
# - Public issues of TRL, https://github.com/huggingface/trl: 3029 and 4159 (temperature on one side), 2771 (the sign of
#   the length reward), 6357 (end tokens lost where pad is end). That these are one family, "both sides must do the
#   same", is our reading.
# - All numbers of real answers, the training and the hunt are measured here, on this toy (recorded: `grpo-lab record
#   half_a_judge`).
#
# **Next.** 02 shows which way to push each of these log-probabilities, and why.
