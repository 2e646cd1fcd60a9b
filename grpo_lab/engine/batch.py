"""The one thing that travels: a batch of answers, with what is known about each token.

    prompts -> rollout -> task.reward -> score -> recipe.advantage -> loss -> optimizer -> dict -> curves

Rows are answers, row p*G + g is answer g to prompt p. Columns are the T tokens after the left-padded prompt; column t
is token t of that region, its log-probability is `logp[:, t]`, and `values[:, t]` is the value of the state before it.
Fields stand in the order in which they come into being; a later one is None until then.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_lab.engine.tasks import Prompt
from grpo_lab.guard import require


@dataclasses.dataclass(frozen=True)
class Batch:
    prompts: tuple[Prompt, ...]  # P
    turns: tuple[tuple[str, ...], ...]  # B: what the policy wrote, turn by turn, without end tokens
    ticket_P: (
        Tensor  # int64: serial number of the prompt in its run; keys its noise and its place in the queue
    )
    prompt_ids_PL: Tensor  # int64, left-padded unique prompts
    prompt_mask_PL: Tensor  # bool, False on padding
    prompt_B: Tensor  # int64: row -> prompt
    tokens_BT: Tensor  # int64
    attend_BT: (
        Tensor  # bool: real tokens, observations included; each row is filled from the left without holes
    )
    mask_BT: Tensor  # bool: the policy's own tokens, up to and including each turn's end token
    turn_BT: Tensor  # int64: which turn an own token belongs to
    logp_rollout_BT: Tensor  # float: log-probability under what sampled the token
    version_BT: Tensor  # int64: policy updates done when the token was sampled
    finished_B: Tensor  # bool: ended by itself (terminal), not cut off
    temperature: float
    rewards_BT: Tensor | None = None  # float: on the token that earned it
    logp_old_BT: Tensor | None = None
    logp_ref_BT: Tensor | None = None
    values_BT: Tensor | None = None
    bootstrap_B: Tensor | None = None  # value of the state after the last token, where the row was cut off
    advantages_BT: Tensor | None = None
    returns_BT: Tensor | None = None
    weights_BT: Tensor | None = None  # each token's share in the loss, fixed on the whole minibatch

    def __len__(self) -> int:
        return len(self.prompt_B)

    @property
    def rewards_B(self) -> Tensor:
        return self.rewards_BT.sum(1)

    @property
    def length_B(self) -> Tensor:
        """Own tokens a row."""
        return self.mask_BT.sum(1)

    def tensors(self) -> dict[str, Tensor]:
        """The tensor fields that exist so far, by name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def to(self, device: torch.device | str) -> "Batch":
        return self.replace(**{name: value.to(device) for name, value in self.tensors().items()})

    def replace(self, **fields) -> "Batch":
        return dataclasses.replace(self, **fields)

    def rows(self, index: Tensor) -> "Batch":
        """The rows of `index` (int64), with the prompts they need, and no columns that are padding for all of them."""
        kept_P, prompt_B = torch.unique(self.prompt_B[index], return_inverse=True)
        columns = int(self.attend_BT[index].sum(1).max()) if len(index) else 0
        prompt_mask_PL = self.prompt_mask_PL[kept_P]
        unused = int((~prompt_mask_PL.any(0)).sum()) if len(kept_P) else 0
        fields = {}
        for name, value in self.tensors().items():
            if name.endswith("_BT"):
                fields[name] = value[index, :columns]
            elif name.endswith("_PL"):
                fields[name] = value[kept_P, unused:]
            elif name.endswith("_P"):
                fields[name] = value[kept_P]
            else:
                fields[name] = value[index]
        fields["prompt_B"] = prompt_B
        return self.replace(
            prompts=tuple(self.prompts[p] for p in kept_P.tolist()),
            turns=tuple(self.turns[b] for b in index.tolist()),
            **fields,
        )

    def distinct(self) -> tuple["Batch", Tensor]:
        """The rows that differ (same prompt and same tokens: same row), and for each row its place among them.

        A policy that is sure of itself writes the same answer twice; what it computes need not be computed twice.
        """
        tokens_BT = self.tokens_BT.where(self.attend_BT, -1)  # a sampled padding token is not padding
        keys, index_B = torch.unique(
            torch.cat([self.prompt_B[:, None], tokens_BT], 1), dim=0, return_inverse=True
        )
        if len(keys) == len(self):
            return self, torch.arange(len(self), device=index_B.device)
        return self.rows(one_of_each(index_B, len(keys))), index_B

    def rows_of_prompts(self, prompts: Sequence[int]) -> Tensor:
        """Indices of the rows that answer these prompts, prompt by prompt in the order given."""
        return torch.cat([torch.nonzero(self.prompt_B == p).squeeze(1) for p in prompts])


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch out of several: prompts padded on the left, answers on the right. Raises ValueError where they differ
    in temperature or in the fields they have."""
    require(len(batches) > 0, "there is no batch to concatenate")
    first = batches[0]
    if len(batches) == 1:
        return first
    require(
        len({b.temperature for b in batches}) == 1,
        f"rows sampled at different temperatures can't share a batch: {sorted({b.temperature for b in batches})}",
    )
    names = [set(b.tensors()) for b in batches]
    require(
        all(n == names[0] for n in names),
        "batches with different fields can't be one batch; score them together",
    )
    fields = {}
    shift = 0
    for name in first.tensors():
        parts = [getattr(b, name) for b in batches]
        if name == "prompt_B":
            parts = []
            for batch in batches:
                parts.append(batch.prompt_B + shift)
                shift += len(batch.prompts)
        elif name.endswith(("_BT", "_PL")):
            width = max(part.shape[1] for part in parts)
            parts = [widen(part, width, left=name.endswith("_PL")) for part in parts]
        fields[name] = torch.cat(parts)
    return first.replace(
        prompts=tuple(p for b in batches for p in b.prompts),
        turns=tuple(t for b in batches for t in b.turns),
        **fields,
    )


def widen(x_BT: Tensor, width: int, *, left: bool = False) -> Tensor:
    """x with columns of 0 added on the right (or left) until it has `width` of them; gradient flows."""
    missing = width - x_BT.shape[1]
    return torch.nn.functional.pad(x_BT, (missing, 0) if left else (0, missing))


def one_of_each(index_B: Tensor, count: int) -> Tensor:
    """For each of the labels 0 .. count - 1 in index_B, a position that has it."""
    here_B = torch.arange(len(index_B), device=index_B.device)
    return torch.empty(count, dtype=torch.long, device=index_B.device).scatter_(0, index_B, here_B)
