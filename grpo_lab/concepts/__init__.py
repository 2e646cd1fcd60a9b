"""The ideas of the course: one idea a file, tensors in, tensors out.

Axes are written at the end of a name: B rows (one an answer; row p*G + g is answer g of prompt p), T answer
columns (one a token), S all columns of a sequence, V vocabulary, P prompts, G answers to one prompt, 1 an axis of
length one. `mask_BT` is always a bool tensor, True on the tokens that the policy itself wrote: its *own* tokens.
Four policies have four names: `logp` is being trained, `logp_old` is the policy at the start of this update,
`logp_rollout` is the one that sampled, `logp_ref` is the frozen reference.

A concept imports torch, `grpo_lab.guard` and, where it needs a masked mean, `grpo_lab.concepts.masked`. Never
another concept: each can be read, replaced and tested alone.
"""
