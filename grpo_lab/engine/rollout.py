"""Writing answers: all prompts at once, one prefill a prompt, then token by token on the repeated cache.

Tokens are chosen by inverse CDF from noise that belongs to the row (`row_noise`), not to the batch. So dropping rows
that have ended, sharing prefixes, or changing the order of a batch leaves every row's tokens the same, and two arms of
an experiment can share their random numbers.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from grpo_lab.engine.batch import Batch, one_of_each
from grpo_lab.engine.policy import Policy, prompt_positions
from grpo_lab.engine.tasks import Prompt, Task, rewards_of
from grpo_lab.guard import require, require_range


def row_noise(seed: int, tickets: Sequence[int], group_size: int, columns: int) -> Tensor:
    """Uniform numbers u (B, columns) in [0, 1), float64: one stream a ticket, the same whatever else is in the batch.

    A prompt's first answers get the same noise at any group size (row g takes numbers g*columns to (g+1)*columns).
    """
    streams = [np.random.Generator(np.random.Philox(key=[seed, ticket])) for ticket in tickets]
    return torch.from_numpy(np.concatenate([s.random((group_size, columns)) for s in streams]))


def sample(logits_BV: Tensor, noise_B: Tensor | None, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Tokens (B,) by inverse CDF from the noise (the most likely one where it is None), and their log-probabilities.

    The log-probability is that of the distribution sampled from, temperature included.
    """
    scaled_BV = logits_BV / temperature
    if noise_B is None:
        tokens_B = scaled_BV.argmax(-1)
    else:
        # float64: in float32 the sum over a large vocabulary is off by more than a rare token's probability.
        cdf_BV = scaled_BV.double().softmax(-1).cumsum(-1)
        # Scaled by the total, and "first entry above u": a token of probability 0 can't be chosen, nor one too many.
        target_B1 = noise_B[:, None] * cdf_BV[:, -1:]
        tokens_B = torch.searchsorted(cdf_BV, target_B1, right=True).squeeze(1)
        tokens_B = tokens_B.clamp(max=logits_BV.shape[-1] - 1)
    chosen_B = scaled_BV.gather(-1, tokens_B[:, None]).squeeze(-1)
    return tokens_B, chosen_B - scaled_BV.logsumexp(-1)


def rollout(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    *,
    group_size: int,
    noise_BT: Tensor | None,
    temperature: float = 1.0,
    version: int = 0,
    tickets: Sequence[int] | None = None,
) -> Batch:
    """group_size answers to each prompt, with the log-probability of every token under what sampled it.

    noise_BT     uniform numbers, one a token (column turn * max_tokens + place in the turn); None: greedy
    version      stamped on every token; tickets (default 0, 1, ...) name the prompts in their run's queue
    Raises: ValueError for no prompts, a group size below 1, a temperature that isn't above 0, noise of another shape.
    """
    require(group_size >= 1, f"group_size must be at least 1, not {group_size}")
    require_range("temperature", temperature, 0, float("inf"), low_open=True)
    rows = len(prompts) * group_size
    columns = task.max_turns * task.max_tokens
    if noise_BT is not None:
        require(
            tuple(noise_BT.shape) == (rows, columns),
            f"noise must be {(rows, columns)}: {len(prompts)} prompts x {group_size} answers, {task.max_turns} turns x "
            f"{task.max_tokens} tokens; got {tuple(noise_BT.shape)}",
        )
        noise_BT = noise_BT.to(policy.device)
    writer = _Writer(policy, task, prompts, group_size, noise_BT, temperature)
    limit = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    longest = writer.ids_PL.shape[1] + columns
    require(
        limit is None or longest <= limit,
        f"a prompt of {writer.ids_PL.shape[1]} tokens and an answer of up to {columns} make {longest}; the model has "
        f"positions for {limit}",
    )
    with torch.inference_mode():
        for turn in range(task.max_turns):
            writer.write_turn(turn)
            if not writer.read_replies(last=turn + 1 == task.max_turns):
                break
    return writer.batch(prompts, version, tickets if tickets is not None else range(len(prompts)))


def total_rewards(task: Task, batch: Batch) -> list[float]:
    """What the judge gave each answer of a batch, its turns added up; one number a row."""
    rows = zip(batch.prompt_B.tolist(), batch.turns, strict=True)
    return [sum(rewards_of(task, batch.prompts[p], turns)) for p, turns in rows]


class _Writer:
    """The state of one rollout. `live` are the rows still in play; rows that have said the same share one row of cache.

    Columns are shared by all rows, so a row whose turn ends early gets a hole until the others are done; replies are
    padded on the left, so that the last column is real for every live row. `batch` closes the holes.
    """

    def __init__(self, policy, task, prompts, group_size, noise_BT, temperature):
        self.policy, self.task, self.noise_BT, self.temperature = policy, task, noise_BT, temperature
        self.prompts, self.group_size = prompts, group_size
        self.ids_PL, self.mask_PL = policy.encode(prompts)
        device = policy.device
        rows = len(prompts) * group_size
        self.prompt_B = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
        self.end_ids = torch.tensor(policy.end_ids, device=device)
        self.turns = [[] for _ in range(rows)]
        self.finished_B = torch.zeros(rows, dtype=torch.bool, device=device)
        self.columns = []  # of (tokens_B, attend_B, mask_B, turn, logp_B)
        self.live = torch.arange(rows, device=device)
        self.node_B = None  # of each live row: its row of the cache
        self.vocabulary = max(len(policy.tokenizer), policy.model.config.get_text_config().vocab_size)
        self.cache = None
        self.logits_BV = None  # of the live rows: the distribution of their next token
        self.padded = not bool(self.mask_PL.all())

    def write_turn(self, turn: int) -> None:
        if self.cache is None:
            self._read_prompts()
        writing = torch.ones(len(self.live), dtype=torch.bool, device=self.live.device)  # of the live rows
        start = len(self.columns)
        for place in range(self.task.max_tokens):
            noise_B = None
            if self.noise_BT is not None:
                noise_B = self.noise_BT[self.live, turn * self.task.max_tokens + place]
            tokens_B, logp_B = sample(self.logits_BV, noise_B, temperature=self.temperature)
            self._add_column(tokens_B, writing, writing, turn, logp_B)
            if not self.task.fixed_length:
                writing = writing & ~torch.isin(tokens_B, self.end_ids)
            if place + 1 == self.task.max_tokens or not bool(writing.any()):
                break
            if self.task.max_turns == 1:
                keep = torch.nonzero(writing).squeeze(1)
                self._select(keep)
                tokens_B, writing = tokens_B[keep], writing[keep]
            self._read(tokens_B[:, None], self._attended(single=True))
        self._close_turn(start, turn)
        self.last_tokens_B = tokens_B

    def _close_turn(self, start: int, turn: int) -> None:
        """Note the text of the turn, and which rows ended it by themselves."""
        tokens_BT, mask_BT = self._stack(0, start), self._stack(2, start)
        has_end_B = (torch.isin(tokens_BT, self.end_ids) & mask_BT).any(1)
        self.ended_B = torch.ones_like(has_end_B) if self.task.fixed_length else has_end_B
        written = mask_BT.any(1)
        rows = torch.nonzero(written).squeeze(1).tolist()
        tokens, own = tokens_BT.tolist(), mask_BT.tolist()
        texts = self.policy.decode(
            [[i for i, mine in zip(tokens[b], own[b], strict=True) if mine] for b in rows]
        )
        for b, text in zip(rows, texts, strict=True):
            self.turns[b].append(text)

    def read_replies(self, *, last: bool) -> bool:
        """Ask the environment; rows that go on read its reply. Returns whether any row goes on."""
        live = self.live.tolist() if self.task.max_turns > 1 else []
        ended = self.ended_B.tolist()
        replies = {}
        for b in live:
            # A turn that was cut off at max_tokens ends its episode: there is nothing the environment could answer.
            reply = self.task.reply(self.prompts[b // self.group_size], self.turns[b]) if ended[b] else None
            if reply is not None and not last:
                replies[b] = self.policy.encode_reply(reply)
                require(
                    len(replies[b]) > 0, f"task {self.task.name} replied with an empty text; say None to end"
                )
        going = torch.zeros_like(self.finished_B)
        going[list(replies)] = True
        self.finished_B = torch.where(going, self.finished_B, self.ended_B | self.finished_B)
        if not replies:
            return False
        keep = torch.nonzero(going[self.live]).squeeze(1)
        self._select(keep)
        # The last token of the turn has not been read yet: it goes first, then the reply.
        rows = self.live.tolist()
        width = max(len(replies[b]) for b in rows)
        block_BS = torch.full((len(rows), width + 1), self.policy.pad_id, device=self.live.device)
        attend_BS = torch.zeros(len(rows), width + 1, dtype=torch.bool, device=self.live.device)
        block_BS[:, 0] = self.last_tokens_B[keep]
        attend_BS[:, 0] = self.columns[-1][1][self.live]
        for i, b in enumerate(rows):
            block_BS[i, width + 1 - len(replies[b]) :] = torch.tensor(replies[b])
            attend_BS[i, width + 1 - len(replies[b]) :] = True
        nothing = torch.zeros(len(rows), dtype=torch.bool, device=self.live.device)
        for column in range(1, width + 1):
            self._add_column(
                block_BS[:, column], attend_BS[:, column], nothing, 0, nothing.to(self.logits_BV.dtype)
            )
        self._read(block_BS, self._attended(single=False))
        return True

    def _read_prompts(self) -> None:
        self.cache = DynamicCache(config=self.policy.model.base_model.config)
        out = self.policy.model(
            input_ids=self.ids_PL, cache=self.cache, logits_to_keep=1, **prompt_positions(self.mask_PL)
        )
        self.node_B = self.prompt_B
        self.logits_BV = out.logits[self.prompt_B, -1]

    def _read(self, ids_BS: Tensor, mask_BS: Tensor | None) -> None:
        """Feed the live rows' next tokens; `mask_BS` covers prompt and answers so far (None: nothing is hidden).

        Rows that have said the same so far share one row of the cache, their node, and go through the model once.
        """
        label_B, width = self.node_B, ids_BS.shape[1]
        for column_B in [*ids_BS.T, *(mask_BS[:, -width:].T if mask_BS is not None else [])]:
            nodes, label_B = torch.unique(label_B * self.vocabulary + column_B, return_inverse=True)
        kept = one_of_each(label_B, len(nodes))
        self.cache.batch_select_indices(self.node_B[kept])
        self.node_B = label_B
        placed = {}
        if mask_BS is not None:
            positions_BS = (mask_BS[kept].cumsum(1) - 1).clamp(min=0)
            placed = {"attention_mask": mask_BS[kept], "position_ids": positions_BS[:, -width:]}
        out = self.policy.model(input_ids=ids_BS[kept], cache=self.cache, logits_to_keep=1, **placed)
        self.logits_BV = out.logits[label_B, -1]

    def _attended(self, *, single: bool) -> Tensor | None:
        """What the live rows may look at. None where nothing is padded and no row has a hole, which is faster."""
        if single and not self.padded and self.task.max_turns == 1:
            return None
        answer_BS = torch.stack([attend_B[self.live] for _, attend_B, *_ in self.columns], 1)
        return torch.cat([self.mask_PL[self.prompt_B[self.live]], answer_BS], 1)

    def _select(self, keep: Tensor) -> None:
        """Let go of the other live rows. Their part of the cache goes at the next reading, if nobody shares it."""
        self.live, self.node_B = self.live[keep], self.node_B[keep]

    def _add_column(self, tokens_B, attend_B, mask_B, turn, logp_B) -> None:
        """One column over all rows from values of the live ones."""
        rows = len(self.prompt_B)
        full = []
        for value in (tokens_B, attend_B, mask_B, logp_B):
            column = torch.zeros(rows, dtype=value.dtype, device=value.device)
            column[self.live] = value
            full.append(column)
        full[3] = full[3].where(full[2], 0.0)
        full[0] = full[0].where(full[1], 0)
        self.columns.append((full[0], full[1], full[2], turn, full[3]))

    def _stack(self, field: int, start: int = 0) -> Tensor:
        return torch.stack([column[field] for column in self.columns[start:]], 1)

    def batch(self, prompts: Sequence[Prompt], version: int, tickets: Sequence[int]) -> Batch:
        """The batch, its holes closed. Tensors are cloned: those made under inference_mode can't enter training."""
        attend_BT = self._stack(1)
        # A stable sort by "is a hole" moves real tokens to the left and keeps their order.
        order_BT = torch.sort(~attend_BT, dim=1, stable=True).indices[:, : int(attend_BT.sum(1).max())]
        turn_BT = torch.tensor([column[3] for column in self.columns], device=attend_BT.device).expand_as(
            attend_BT
        )
        tokens_BT, attend_BT, mask_BT, turn_BT, logp_BT = (
            x.gather(1, order_BT).clone()
            for x in (self._stack(0), attend_BT, self._stack(2), turn_BT, self._stack(4))
        )
        return Batch(
            prompts=tuple(prompts),
            turns=tuple(tuple(turns) for turns in self.turns),
            ticket_P=torch.tensor(list(tickets), dtype=torch.long, device=attend_BT.device),
            prompt_ids_PL=self.ids_PL.clone(),
            prompt_mask_PL=self.mask_PL.clone(),
            prompt_B=self.prompt_B.clone(),
            tokens_BT=tokens_BT,
            attend_BT=attend_BT,
            mask_BT=mask_BT,
            turn_BT=turn_BT.where(mask_BT, 0),
            logp_rollout_BT=logp_BT,
            version_BT=torch.full_like(tokens_BT, version),
            finished_B=self.finished_B.clone(),
            temperature=float(self.temperature),
        )
