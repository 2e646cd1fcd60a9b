# %% [markdown]
# # 00 · The loop
#
# You train a small language model by trial and error, and watch it get better in twenty seconds.
#
# - **You need:** Python, and a rough idea of what a neural network and its gradient are. Nothing of reinforcement
#   learning.
# - **You will be able to:** name every part of the loop that trains a language model from rewards; work out by hand
#   what one answer teaches; run GRPO, stop it and go on; choose your way through this course.
# - **Minutes:** 30; the first run stands at minute 8. The exercises at the end come on top.
#
# **Do this first:** run the cells from the top, each with Shift + Enter, and read the text between them. `[*]` beside
# a cell means that it is still working; the first one takes about ten seconds. The outputs that stand here already
# are from our run; yours replace them.

# %% tags=["setup"]
import torch

from grpo_lab.concepts import group_advantage as package
from grpo_lab.engine import experiment, recipes, recording, rollout, tasks, train, warm_start
from grpo_lab.teach import checks, explorer, live, loop, pictures, plots, predict, progress, quiz, reveal

# %% tags=["plot"]
loop.loop()

# %% [markdown]
# Read it from the upper left. A *prompt* is a text to answer. The *policy* is the language model. It writes answers,
# which is called the *rollout*, token by token (a *token* is a piece of text; here, one character). A judge gives each
# answer a *reward*, a number: here 1 if it is right, 0 if not. Answers that did better than expected are made more
# likely, the others less likely, by one small change of the model's weights: an *update*. Then the changed model
# writes the next answers. That is reinforcement learning of a language model.
#
# On the arrows stands what travels; in blue, the file of this course that makes it. Leave one box for later: *score*
# asks how likely each token was. Its log-probs (log-probabilities) come in chapter 01, its values in 04.
#
# ## What does the policy write?
#
# Our task is small, so that everything runs on a laptop: sort six digits. The policy is a transformer. It was trained
# on solved examples until about half of its answers were right, and no longer: that is the *warm start*.
#
# Capital letters at the end of a name are the tensor's axes: `rewards_G` has one number for each answer of a group
# (G), `rewards_PN` a row for each prompt (P). In `_BT`, B counts answers and T tokens.

# %% tags=["setup"]
task = tasks.Sort(6)
policy = warm_start.warm_start(task, "S", seed=0)  # stored in data/, loads at once
# All that changes while we train; run.reference stays as the policy is now.
run = train.start(policy, task, seed=0, lr=3e-4)

# %% tags=["demo"]
prompt = tasks.Prompt("941671=", target="114679")
noise_BT = rollout.row_noise(50, [49], 8, task.max_tokens)  # the dice, kept, so that you see the same answers
batch = rollout.rollout(run.reference, task, [prompt], group_size=8, noise_BT=noise_BT)
answers = [turns[0] for turns in batch.turns]
rewards_G = torch.tensor([task.reward(prompt, [answer]) for answer in answers], dtype=torch.float64)
print(f"{sum(p.numel() for p in policy.parameters()):,} weights, one CPU core. The prompt: {prompt.text}")
for answer, reward in zip(answers, rewards_G, strict=True):
    print(f"  {answer}   reward {reward:.0f}")

# %% [markdown]
# Eight answers to one prompt, three right, five wrong. They differ because the policy gives each possible next
# character a probability, and then one is drawn. Nobody tells it what is wrong with the five; a reward is one number
# for a whole answer.
#
# ## What does one answer teach?
#
# A reward alone doesn't say whether an answer was better than expected. The other answers to the same prompt do. The
# mean of all eight is the yardstick, and the distance to it is called the *advantage*.

# %% tags=["demo"]
mean = rewards_G.mean()
print("answer   ", "  ".join(answers))
print("reward   ", "  ".join(f"{r:6.0f}" for r in rewards_G))
print("advantage", "  ".join(f"{r - mean:+6.3f}" for r in rewards_G))
print(f"mean reward {mean:.3f}; the advantages add up to {(rewards_G - mean).sum():z.3f}")

# %% [markdown]
# Each right answer counts +0.625 and is made more likely. Each wrong one counts −0.375 and is made less likely. The
# eight answers are a *group*, and comparing within it is the idea of *GRPO*, group relative policy optimization. (It
# also divides by how far the rewards are spread: a matter for chapter 05.)
#
# ## Does it work?
#
# Now 16 prompts with 8 answers each, then one update; and that 100 times. We measure on other prompts, which are *held
# out*: never trained on. Half of them are answered right at the start.
#
# Before each surprise you place a bet: enter a number, press *Place my bet*, go on. The answer comes below.

# %% tags=["widget"]
bet_climb = predict.Bet(
    "00-climb",
    "It starts at 50 % right. After 100 updates, how many per cent of the held-out prompts will it answer right?",
    low=0,
    high=100,
)
bet_climb

# %% [markdown]
# Run the next cell and watch, for about twenty seconds. `eval/accuracy` is the share of 2,000 held-out prompts answered
# right, measured every 20 updates. `reward/mean` is the same share among the 128 answers that the update learns from;
# it jumps about, since 128 are few. Press ■ in the toolbar whenever you like: nothing is lost, and running the cell
# again goes on.

# %% tags=["train", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
steps = max(100, run.version)  # run again after a stop, it goes on to here
watched = live.live(
    train.train(policy, task, recipes.grpo(), run=run, steps=steps),
    steps=steps,
    before=run.history,
    title="GRPO learns to sort: share of right answers",
    ylim=(0.3, 0.9),
)
watched

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
accuracy = [row["eval/accuracy"] for row in run.history if "eval/accuracy" in row]
if run.version >= 100:
    assert accuracy[-1] > accuracy[0] + 0.12, "100 updates gained 0.27 where this was written"
bet_climb.reveal(
    round(100 * accuracy[-1]),
    within=5,
    because=f"That is after {run.version} updates, with {128 * run.version:,} answers written and judged. Where this "
    "was written, 100 updates gained 27 points. Betting on 100 is reasonable if one thinks of a program that sorts. "
    "But nobody shows the policy a solution; it only finds out which of its own answers were better.",
)

# %% [markdown]
# ## What has changed in its answers?
#
# 200 held-out prompts and the same dice, before and after; ten of them are printed. `run.reference` is the copy that
# was kept at the start.


# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained in float32, so a few answers differ from one processor to the next
def answers_of(writer, prompts):
    """One answer to each prompt, always with the same dice."""
    noise_BT = rollout.row_noise(1, range(len(prompts)), 1, task.max_tokens)
    batch = rollout.rollout(writer, task, prompts, group_size=1, noise_BT=noise_BT)
    return [turns[0] for turns in batch.turns]


held_out = task.prompts(200, generator=torch.Generator().manual_seed(1), split="held_out")
before, after = answers_of(run.reference, held_out), answers_of(policy, held_out)
print(f"{'prompt':10s}{'right':10s}{'before':12s}{'after':12s}")
for prompt_p, one, two in list(zip(held_out, before, after, strict=True))[:10]:
    marks = [f"{text} {'✓' if text == prompt_p.target else '·'}" for text in (one, two)]
    print(f"{prompt_p.text:10s}{prompt_p.target:10s}{marks[0]:12s}{marks[1]:12s}")
hits = [sum(a == p.target for a, p in zip(said, held_out, strict=True)) for said in (before, after)]
print(f"right of 200: {hits[0]} before, {hits[1]} after")

# %% [markdown]
# Where this was written, 94 of 200 were right before and 152 after. Of the 106 wrong ones before, 45 were wrong in one
# digit only. They got the same 0 as the others, and still the policy found its way.
#
# ## Which number should you watch?
#
# The *loss* is the number whose gradient makes the update. In other trainings it falls while the model learns. Look at
# it here.

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
losses = [row["policy/loss"] for row in run.history if "policy/loss" in row] or [0.0]
print(f"largest |loss| in {len(losses)} updates: {max(map(abs, losses)):.7f}")
print(f"accuracy meanwhile: {accuracy[0]:.2f} → {accuracy[-1]:.2f}")
assert max(map(abs, losses)) < 1e-4

# %% [markdown]
# It is 0 in every update, up to rounding: each answer puts minus its advantage into the loss, and the advantages of a
# group add up to 0. Its gradient is not 0, and the gradient is what moves the weights. So watch the reward, not the
# loss. Chapter 02 shows why.
#
# ## How good is a yardstick of eight?
#
# Recorded answers of the warm start: 256 to each of 64 prompts. The dial G says how many of them you look at. Bars are
# their advantages. Turn G to 1, then to 16. Then set it back to 8 and try prompts 7, 16 and 21.

# %% tags=["setup"]
recorded = recording.read_recording("answers")  # made by: grpo-lab record answers
rewards_PN = recorded["rewards_PN"].double()
texts = recording.texts_of(recorded["prompts_PT"])


# %% tags=["demo"]
def draw_group(fig, *, G, prompt):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    rewards_N = rewards_PN[prompt - 1, :G]
    advantages = (rewards_N - rewards_N.mean()).tolist() + [0.0] * (16 - G)
    right = [max(a, 0.0) for a in advantages]
    wrong = [min(a, 0.0) for a in advantages]
    explorer.bars(ax, "right", range(1, 17), right, color=pictures.BLUE)
    explorer.bars(ax, "wrong", range(1, 17), wrong, color=pictures.ORANGE, hatch="//", edgecolor="white")
    for n in range(16):
        explorer.text(ax, f"reward{n}", n + 1, 1.04, f"{rewards_N[n]:.0f}" if n < G else "", ha="center")
    if not ax.get_xlabel():
        ax.axhline(0, color=pictures.GREY, linewidth=1)
        ax.set(xlim=(0.3, 16.7), ylim=(-1, 1.2), xticks=range(1, 17))
        title = "Right answers are pushed up, wrong ones (hatched) down"
        pictures.tidy(ax, title=title, xlabel="answer (its reward stands above)", ylabel="advantage")


def describe_group(*, G, prompt):
    rewards_N, every = rewards_PN[prompt - 1, :G], rewards_PN[prompt - 1].mean()
    mean, right = rewards_N.mean(), int(rewards_N.sum())
    push = f"a right answer counts {1 - mean:+.3f}, a wrong one {-mean:+.3f}"
    push = push if 0 < right < G else "all rewards are equal, every advantage is 0, nothing is learned"
    return f"Prompt {texts[prompt - 1]}: {right} of {G} right, mean {mean:.3f} (of all 256: {every:.3f}): {push}."


# %% tags=["widget"]
explorer.Explorer(
    draw_group,
    describe_group,
    question="What do the first G recorded answers to this prompt teach?",
    G=explorer.whole(8, 1, 16, "answers you look at"),
    prompt=explorer.whole(50, 1, 64, "which prompt"),
)

# %% [markdown]
# Of prompt 50 eight answers said .375, sixteen say .562 and all 256 say .672: a group is a rough yardstick. With G = 1
# an answer is its own yardstick and teaches nothing. In prompt 7 one answer of eight is right, and counts +.875. But
# where all eight are right (prompt 16) or all are wrong (prompt 21) nothing is learned, though all eight had to be
# written. Chapter 05 starts here, and so will 09.
#
# ## Exercise: write the yardstick yourself (8 minutes, easy)
#
# **In:** `rewards_B`, one reward an answer; the first `group_size` answers belong to the first prompt, the next to the
# second, and so on. **Out:** the distance of each to the mean of its own group, in the same shape; exactly 0 where a
# group's rewards are all equal. **Worked line:** rewards `[1, 0, 0, 0]` in groups of 2 give `[+0.5, −0.5, 0, 0]`.
# **Done when** the check says that it is right.
#
# Replace the `raise` line, run the cell, then the check. Start with the two lines that come to mind: in one case they
# may be off by a hair, and the check names it. (`torch.where(condition, a, b)` chooses between two values.)
#
# **If it is not right yet:** change your cell, run *it* again, then the check. After a failed check the name
# `group_mean_advantage` holds the package's function. Nothing that you wrote is overwritten. **Hint:** what does
# `rewards_B` look like with one prompt a row?


# %% tags=["exercise"]
def group_mean_advantage(rewards_B, *, group_size):
    raise NotImplementedError("yours: reshape, subtract each row's mean, shape it back")


# %% tags=["check"]
group_mean_advantage = checks.check_group_mean_advantage(
    group_mean_advantage, otherwise=package.group_mean_advantage
)

# %% tags=["demo"]
reveal.reveal(package.group_mean_advantage)

# %% [markdown]
# (`_grouped` checks the input and makes one row for each prompt.)
#
# Your function is one part of the loop, so put it in. The same run goes on for 20 updates, with it in the place of
# GRPO's own advantage. Until the check says that yours is right, the package's runs here.

# %% tags=["train", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
steps = max(120, run.version)
with_mine = recipes.grpo(group_advantage=group_mean_advantage)
watched = live.live(
    train.train(policy, task, with_mine, run=run, steps=steps),
    steps=steps,
    before=run.history,
    title="The same run goes on, with your advantage in it",
    ylim=(0.3, 0.9),
)
watched

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: trained in float32, the last digits depend on the processor
accuracy = [row["eval/accuracy"] for row in run.history if "eval/accuracy" in row]
if run.version >= 120:
    assert accuracy[-1] > accuracy[0] + 0.1, "120 updates gained 0.31 where this was written"
print("held-out accuracy, every 20 updates:", "  ".join(f"{a:.2f}" for a in accuracy))

# %% [markdown]
# ## What will break later?
#
# In large trainings, writing answers can take most of the time (over 70 %, says the paper on ROLL Flash). So answers
# are written while the weights already change, and are some updates old when they are learned from: they are *stale*.
#
# Here are stored runs on our task, slower (learning rate 1.5e-4) and longer (300 updates) than yours. `fresh` learns
# from answers just written, `stale` from answers that are 8 updates old. Nothing else differs between these two.

# %% tags=["widget"]
bet_stale = predict.Bet(
    "00-stale",
    "Both start at about 48 % right, and fresh answers lead to about 86 %. What happens with answers 8 updates old?",
    choices=[
        "about the same",
        "slower: it climbs to about 70 %",
        "nothing: it stays at about 48 %",
        "it falls far below the start",
    ],
)
bet_stale

# %% tags=["plot"]
folder = warm_start.DATA / "curves" / "foundation"  # made by: grpo-lab reproduce foundation
arms = ("fresh", "stale", "clip_stale")
stored = {arm: [experiment.read_curve(folder / f"{arm}-seed{s}.csv") for s in range(3)] for arm in arms}
plots.curves(stored, title="Answers 8 updates old ruin the run, unless a clip sees their age", ylim=(0, 1))

# %% tags=["demo"]
print("arm         start  lowest   last   (accuracy; a line a run)")
for arm, runs in stored.items():
    for one in runs:
        seen = [a for a in one["eval/accuracy"] if a == a]  # nan where it was not measured
        print(f"{arm:12s} {seen[0]:.2f}    {min(seen):.2f}   {seen[-1]:.2f}")
bet_stale.reveal(
    "it falls far below the start",
    because="From about .48 the three stale runs fell to .04, .17 and .15. They ended at .31, .19 and .42, still "
    "below their start. 'Slower' is reasonable: an old answer is as right or wrong as before. But it was written by "
    "another policy than the one it pushes. Why that is worse than slow is for chapter 11.",
)

# %% [markdown]
# The third line, `clip_stale`, has answers just as old, and ended at .80 to .85. One line of its recipe differs: it
# compares each token's probability with the one it had *when it was written*, and a *clip* stops pushing a token that
# has moved too far from there. The recipe that you ran above has this line. `fresh` and `stale` compare with the
# policy just before the update instead, which can't show how old an answer is. (On fresh answers both are the same.)
#
# Chapter 03 builds the clip, 11 will take the fall apart, 12 and 13 will try what newer papers propose. All this is on
# our toy, and with three *seeds*: runs that differ in their random numbers. They show *that* it happens, not how large
# it is. (The band in the picture says how uncertain the mean of three is.)
#
# ## How does this fit what others say?
#
# The documentation of TRL, a library that many use for GRPO, has four steps. They are boxes of the figure above:
#
# | TRL's step | boxes | files here (in `grpo_lab/`) |
# |---|---|---|
# | generating completions (their word for answers) | prompts, rollout | `engine/tasks.py`, `engine/rollout.py` |
# | computing the advantage | reward, advantage | `engine/tasks.py`, `concepts/group_advantage.py` |
# | estimating the KL divergence: how far from the start | score | `engine/policy.py`, `concepts/kl.py` |
# | computing the loss | loss | `concepts/clipped_surrogate.py`, `concepts/aggregate.py` |
#
# The third step is off by default there and here. The order of all is in `engine/train.py`, and
# `engine/recipes.py` holds PPO and GRPO, side by side on one screen.

# %% [markdown]
# ## How does a chapter work?
#
# Like this one: questions with cells that answer them, bets, dials (click the number, or use the arrow keys), exercises
# with a check, your function in the real trainer, a quiz that explains the wrong answers too. Bets and quizzes are
# scored for you only; a wrong bet makes the answer stick, too.
#
# Every chapter runs alone: in the menu, *Run*, then *Restart Kernel and Run All Cells*.
#
# What you have done so far is noted in one file on your machine, which you may delete:

# %% tags=["demo", "nbval-ignore-output"]
# output not compared: it shows what you have done so far
progress.show()

# %% [markdown]
# ## The map
#
# | | chapter | builds | breaks or repairs | minutes | there? |
# |---|---|---|---|---|---|
# | 00 | the loop | a run of GRPO | shows what will break | 30 | yes |
# | 01 | a policy that writes | tokens, log-probabilities, masks, rewards | a shift by one, a lost mask | 60 | yes |
# | 02 | policy gradient | which way to push each token | repairs its noise with a baseline | 75 | yes |
# | 03 | the clipped objective | the ratio, the clip | breaks by many updates on one batch; repairs that | 60 | yes |
# | 04 | values and GAE | a critic; credit for each token | a critic that learned nothing, or cheats | 75 | yes |
# | 05 | the group baseline | GRPO's advantage | repairs the need for a critic; a group that isn't one | 60 | yes |
# | 06 | KL | how far from the start | what pulling back costs | – | not there yet |
# | 07 | length and aggregation | how token losses become one number | answers that grow unasked | – | not there yet |
# | 08 | GRPO whole | all of it in one trainer | – | – | not there yet |
# | 09 | zero-variance groups | what all-right and all-wrong groups do | the wasted answers | – | not there yet |
# | 10 | asynchrony | writing and training at the same time | makes answers stale | – | not there yet |
# | 10b | the mismatch | – | sampler and trainer disagree | – | not there yet |
# | 11 | collapse | – | the fall that you just saw, taken apart | – | not there yet |
# | 12 | DIS | a band for each token's ratio | repairs the fall | – | not there yet |
# | 13 | a single rollout | one answer a prompt, with a critic | repairs the wait for the group | – | not there yet |
# | 14 | the pendulum | the same loop without a language model | – | – | not there yet |
# | 15 | a real language model | the same loop on one | – | – | not there yet |
#
# **The long way** is this table from top to bottom. **The short way** leaves the exercises and bug hunts out: 00, the
# second half of 02, 03, 05, 11, 12. Its first four are there, a bit under two hours; 11 and 12 are not there yet.

# %% [markdown]
# ## You can now
#
# - say what prompt, policy, reward, advantage, update and loss are, and find each in a file;
# - work out the advantages of a group by hand, and say when a group teaches nothing;
# - run GRPO, stop it, go on, and put a function of your own into it;
# - say which number to watch, and one way in which a run can fall.
#
# ## Exercises
#
# 1. *(2 min, easy)* Press ■ during a run, look at `run.version` and `run.history[-1]`, and run the cell again. (To
#    have something to stop, raise `steps` to 200 in both places.)
# 2. *(5 min, easy)* Train with 4 answers a prompt: load the warm start again, make a new run for it with
#    `train.start`, and take `recipes.grpo(group_size=4)`. How many prompts has an update then?
# 3. *(10 min, middle)* In `rewards_PN`, how many of the 64 prompts have a first group of 8 that teaches nothing? And
#    for groups of 4?
# 4. *(15 min, middle)* Write a task of your own: a class like `tasks.Sort` with a `name` of its own, whose target is
#    the digits reversed. Make a warm start that is right 2 to 5 % of the time (`target=(0.02, 0.05)`; it takes half a
#    minute). Does GRPO still climb from there?
#
# <details><summary>What we got for 2 to 4</summary>
#
# 2: 32 prompts, since an update has 128 answers; 100 updates led from .50 to .78, one run. 3: 4 of 64 groups of 8 (two
# all right, two all wrong), 12 of 64 groups of 4. 4: yes, on this toy, from .05 to .56 in 100 updates, one run; it
# needs some right answer now and then.
# </details>

# %% tags=["widget"]
quiz.Quiz(
    "00",
    [
        quiz.Question(
            "How does the policy learn that an answer was wrong?",
            [
                "it is shown the right answer",
                "from one number, compared with its other answers",
                "it is told which digit was wrong",
            ],
            right="b",
            why=[
                "That would be learning from examples, as in the warm start. Here it sees no solution.",
                "Reward 0 against the mean of the group gives a negative advantage, and that is all it is told.",
                "The reward is for the answer as a whole. Chapter 04 tries to find the token that was at fault.",
            ],
        ),
        quiz.Question(
            "Six of eight answers are right. What does each wrong one count?",
            ["−0.75", "−0.25", "0"],
            right="a",
            why=[
                "The mean is 6/8 = .75, and 0 − .75 = −.75. Being wrong counts more where being right is usual.",
                "That is 1 − .75 with the wrong sign: what a right one counts is +.25.",
                "It would be 0 only if all eight had the same reward.",
            ],
        ),
        quiz.Question(
            "Your run's loss is 0 from the first update on. What do you do?",
            ["stop: it learns nothing", "look at the reward", "raise the learning rate"],
            right="b",
            why=[
                "The loss was 0 in the run above too, and the accuracy climbed.",
                "The advantages of a group add up to 0, and so does the loss. Its gradient need not be 0.",
                "Nothing says yet that it learns slowly.",
            ],
        ),
        quiz.Question(
            "A check said that your function is wrong. You change the cell. What next?",
            ["run the check", "run your own cell, then the check", "restart the kernel"],
            right="b",
            why=[
                "The name still holds the package's function; the check notices and asks for your own cell first.",
                "Running your cell gives the name back to your function.",
                "That works as well, but is not needed.",
            ],
        ),
    ],
)

# %% [markdown]
# ## Sources
#
# - Z. Shao et al., 2024, *DeepSeekMath*, section 4.1, <https://arxiv.org/abs/2402.03300>: GRPO. The paper's: several
#   answers a prompt, rewards compared within the group and divided by their spread. Ours: the task, the 109,952
#   weights, no KL term.
# - H. Lu et al., 2025, *ROLL Flash*, section 1, <https://arxiv.org/abs/2510.11345>: writing answers takes over 70 % of
#   the training time. The paper cites others for it; we didn't measure it.
# - TRL, *GRPO Trainer*, <https://huggingface.co/docs/trl/main/grpo_trainer>: the four steps, and the KL term off by
#   default (`beta=0.0`). Matching them with files is our reading.
# - Measured here: every number in this chapter; the stored curves by `grpo-lab reproduce foundation`.
#
# **Next:** 01, where you open the policy and see how it writes, token by token. On the short way: the second half
# of 02.
