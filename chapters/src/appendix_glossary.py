# %% [markdown]
# # Appendix · Glossary
#
# **The promise.** Each word of this course in one or two plain sentences: where it is built, what it is called in the
# code, and what it is called in Chinese.
#
# - **You need:** nothing. Come here from a chapter and go back.
# - **Minutes:** none to read through; one to look something up.

# %% tags=["setup"]
from grpo_lab.engine import metrics
from grpo_lab.teach import terms

# %% [markdown]
# ## Four policies, four names
#
# Most confusion about a ratio is about which policy stands below the line. The course never says "old" alone.
#
# | name | log-probability under ... | made | used for (chapter) |
# |---|---|---|---|
# | `logp` | the policy being trained, now | each forward; alone has a gradient | above every ratio's line (01) |
# | `logp_old` | the trainer at the start of this update | once a batch | how far did *this update* go? (03, 10) |
# | `logp_rollout` | what sampled the token, when it did | while it is written | staleness, mismatch (03, 10b, 12) |
# | `logp_ref` | the frozen reference | only if a recipe asks for it | KL: how far from the start? (06) |
#
# With one update a batch `logp_old` equals `logp` in value, so their ratio is 1 whatever the age of the sample.

# %% [markdown]
# ## Letters behind a name
#
# The suffix of a tensor names its axes, one letter an axis: `rewards_PG` has a row a prompt and a column an answer.
#
# | letter | axis |
# |---|---|
# | B | answers in the batch, row p·G + g: answer g to prompt p |
# | P, G | prompts; answers to one prompt (the group) |
# | L, T | tokens of the prompt; tokens after it |
# | V, D | the vocabulary; the width of the network |

# %% [markdown]
# ## The terms
#
# Below each sentence stand the chapter that builds the thing and its name in the code, without `grpo_lab.`; a name in
# brackets is an argument, and a name with a slash is a metric of the list at the end. A chapter links to a row like
# this: [advantage](appendix_glossary.ipynb#advantage). JupyterLab opens the glossary at its top the first time, and
# goes to the row from then on.
#
# The last column gives what texts from Taiwan (above) and from the mainland (below) say. Usage varies: in brackets
# stands a form that is also common, and where both keep the English word, the column says so (保留英文). Beware of
# machine translations: some say 政策 for policy and 劇集 for episode, which nobody in the field says. Off-policy isn't
# offline: learning from a fixed data set is another subject.

# %% tags=["demo"]
terms.table()

# %% [markdown]
# ## Looking something up
#
# `find` searches all columns. It takes Chinese, too.

# %% tags=["demo"]
terms.find("ratio")

# %% tags=["demo"]
terms.find("變異數")

# %% [markdown]
# ## The metrics
#
# What a training step reports, with formula, [unit] and what is healthy. The healthy ranges are those of this course's
# toy tasks; they are where to start looking, not laws.

# %% tags=["demo"]
print(metrics.glossary())
