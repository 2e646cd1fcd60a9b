"""The floor under a GRPO step: its matrix products, and nothing else.

A step of a policy over P prompts of L tokens, G answers each, has these:

    prompts      once for all G answers: every linear layer on P*L rows, attention over L keys
    answers      for each token but the last, every linear layer on the rows that read it (those which have ended
                 don't), attention over all keys so far
    training     forward and backward of the same, on the groups that carry a gradient (those of zero variance don't):
                 the prompts once, then all columns of the answers in one go. The backward of a product is two products
                 of its size, so training costs three forwards
    vocabulary   where a token is predicted: the last position of each prompt, and the answers' columns

Here these products alone are run, with the sizes of a batch that was really sampled, by `torch.mm` and `torch.bmm` into
memory that was allocated before the clock starts. Each layer has weights of its own, so that caches are used as in
the model. Left out is what is not a product: norms, rotations, activations, softmax, sampling, cache upkeep, the
optimiser, the judge, the metrics, Python. So it is a floor in this number format and library, and no target.

There are two of them. `Shapes.rows` shares the prompt among its answers, as above. `Shapes.prefixes` goes further:
where answers to one prompt begin alike, they are one row until they part (their states are the same numbers), so that
each distinct prefix is counted once, in sampling and in training. An engine that does so does less than the first
floor counts, and only the second is a floor for it.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from grpo_lab.engine.batch import Batch

Attention = tuple[int, int, int]  # sequences, queries and keys of each


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The sizes of one step. `decoded` are the rows of each decoding forward."""

    prompts: int
    length: int
    decoded: tuple[int, ...]
    trained_linear: tuple[int, ...]  # rows of each training forward's linear layers
    trained_attention: tuple[Attention, ...]
    trained_vocabulary: int

    @classmethod
    def rows(cls, batch: Batch, alive_B: Tensor) -> "Shapes":
        """From a sampled batch and which of its rows have a gradient. A token is read to predict the next one."""
        lengths_B = batch.length_B
        alive = torch.nonzero(alive_B).squeeze(1)
        prompts, length = len(torch.unique(batch.prompt_B[alive])), batch.prompt_ids_PL.shape[1]
        columns = int(lengths_B[alive].max()) - 1 if len(alive) else 0
        return cls(
            prompts=len(batch.prompts),
            length=length,
            decoded=tuple(int((lengths_B > t).sum()) for t in range(1, int(lengths_B.max()))),
            trained_linear=(prompts * length, len(alive) * columns),
            trained_attention=((prompts, length, length), (len(alive), columns, length + columns)),
            trained_vocabulary=prompts + len(alive) * columns,
        )

    @classmethod
    def prefixes(cls, batch: Batch, alive_B: Tensor) -> "Shapes":
        """The same where each distinct prefix of the answers to a prompt is read once."""
        length = batch.prompt_ids_PL.shape[1]
        read: dict[tuple[int, int], set] = {}  # (column, prompt) -> prefixes that end there
        trained: dict[int, int] = {}  # prompt -> prefixes
        rows = zip(
            batch.prompt_B.tolist(),
            batch.tokens_BT.tolist(),
            batch.length_B.tolist(),
            alive_B.tolist(),
            strict=True,
        )
        for prompt, tokens, own, alive in rows:
            for t in range(1, own):
                known = read.setdefault((t, prompt), set())
                if alive and tuple(tokens[:t]) not in known:
                    trained[prompt] = trained.get(prompt, 0) + 1
                known.add(tuple(tokens[:t]))
        columns = max((t for t, _ in read), default=0)
        return cls(
            prompts=len(batch.prompts),
            length=length,
            decoded=tuple(
                sum(len(known) for (at, _), known in read.items() if at == t) for t in range(1, columns + 1)
            ),
            trained_linear=(len(trained) * length + sum(trained.values()),),
            trained_attention=tuple((1, length + count, length + count) for count in trained.values()),
            trained_vocabulary=len(trained) + sum(trained.values()),
        )


def linear_sizes(block: nn.Module) -> list[tuple[int, int]]:
    """(in, out) of every linear layer of a block; GPT-2's `Conv1D` is one that stores its weight the other way."""
    sizes = []
    for module in block.modules():
        if isinstance(module, nn.Linear):
            sizes.append((module.in_features, module.out_features))
        elif isinstance(module, Conv1D):
            sizes.append((module.nx, module.nf))
    return sizes


class Products:
    """The products of steps of one model. `plan` allocates for one step's sizes and returns what runs them."""

    def __init__(self, model: PreTrainedModel):
        config = model.config
        self.device = model.device
        self.heads = config.num_attention_heads
        self.head_width = config.hidden_size // self.heads
        blocks = next(child for child in model.base_model.children() if isinstance(child, nn.ModuleList))
        self.layers = [[self.random(*size) for size in linear_sizes(block)] for block in blocks]
        self.vocabulary = self.random(config.hidden_size, config.vocab_size)
        self.memory: dict[tuple, Tensor] = {}

    def random(self, *size: int) -> Tensor:
        return torch.randn(size, device=self.device) * 0.02

    def buffer(self, use: str, *size: int) -> Tensor:
        """Memory for one use and size; layers take turns with it, as an allocator would let them."""
        key = (use, *size)
        if key not in self.memory:
            self.memory[key] = self.random(*size)
        return self.memory[key]

    def plan(self, shapes: Shapes) -> Callable[[], None]:
        todo: list[tuple[Callable, Tensor, Tensor, Tensor]] = []
        self.forward(todo, shapes.prompts * shapes.length, [(shapes.prompts, shapes.length, shapes.length)])
        self.linear(todo, self.vocabulary, shapes.prompts)
        for t, rows in enumerate(shapes.decoded):
            self.forward(todo, rows, [(rows, 1, shapes.length + t + 1)])
            self.linear(todo, self.vocabulary, rows)
        if len(shapes.trained_linear) == len(shapes.trained_attention):
            for rows, attention in zip(shapes.trained_linear, shapes.trained_attention, strict=True):
                self.forward(todo, rows, [attention], backward=True)
        else:  # one forward in which every prompt has its own width
            self.forward(todo, shapes.trained_linear[0], list(shapes.trained_attention), backward=True)
        self.linear(todo, self.vocabulary, shapes.trained_vocabulary, backward=True)

        def run() -> None:
            for product, a, b, out in todo:
                product(a, b, out=out)

        return run

    def forward(self, todo: list, rows: int, attentions: list[Attention], *, backward: bool = False) -> None:
        for weights in self.layers:
            for weight in weights:
                self.linear(todo, weight, rows, backward=backward)
            for sequences, queries, keys in attentions:
                self.attention(todo, sequences * self.heads, queries, keys, backward=backward)

    def linear(self, todo: list, weight: Tensor, rows: int, *, backward: bool = False) -> None:
        if rows == 0:
            return
        wide, narrow = weight.shape
        x, y = self.buffer("in", rows, wide), self.buffer("out", rows, narrow)
        todo.append((torch.mm, x, weight, y))
        if backward:
            todo.append((torch.mm, y, weight.t(), self.buffer("gradient", rows, wide)))
            todo.append((torch.mm, x.t(), y, self.buffer("gradient", wide, narrow)))

    def attention(self, todo: list, rows: int, queries: int, keys: int, *, backward: bool) -> None:
        if rows * queries == 0:
            return
        q, k = self.buffer("q", rows, queries, self.head_width), self.buffer("k", rows, keys, self.head_width)
        scores, answer = (
            self.buffer("scores", rows, queries, keys),
            self.buffer("o", rows, queries, self.head_width),
        )
        todo.append((torch.bmm, q, k.transpose(1, 2), scores))
        todo.append((torch.bmm, scores, k, answer))
        if backward:
            gradient_q, gradient_k = self.buffer("gq", *q.shape), self.buffer("gk", *k.shape)
            todo.append((torch.bmm, scores, k, gradient_q))
            todo.append((torch.bmm, scores.transpose(1, 2), q, gradient_k))
            todo.append((torch.bmm, answer, k.transpose(1, 2), scores))
            todo.append((torch.bmm, scores.transpose(1, 2), answer, gradient_k))
