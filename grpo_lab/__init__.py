"""GRPO Lab: how a language model learns from a reward, one small function an idea.

`concepts` holds the ideas, `engine` carries them through a real training run, `teach` shows them. Import from
the module where a thing lives (`from grpo_lab.concepts.gae import gae`): nothing is re-exported here, because a
function that shares its module's name would hide the module.
"""

__version__ = "0.1.0"
