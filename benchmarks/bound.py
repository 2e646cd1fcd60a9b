"""The floor under a GRPO step: its matrix products, and nothing else.

A step of a policy with H wide layers over P prompts of L tokens, G answers each, can't do without

    prompts      once for all G answers: every linear layer on P*L rows, attention over L keys
    answers      for each token but the last, every linear layer on those rows that are still being written,
                 attention over all keys so far
    training     forward and backward of the same on the groups that carry a gradient (those of zero variance don't):
                 the prompts once, then all columns of the answers in one go. The backward of a product is two products
                 of its size, so training costs three forwards
    vocabulary   where a token is predicted: the last position of each prompt, and the answers' columns

Here these products alone are run, with the sizes of a batch that was really sampled, by `torch.mm` and `torch.bmm` into
memory that was allocated before the clock started. Each layer has weights of its own, so that caches are used as in
the model. Left out is what is not a product: norms, rotations, activations, softmax, sampling, cache upkeep, the
optimiser, the judge, the metrics, Python. So this is a floor for every implementation in these number formats and
this library of products, and no target: no framework reaches it. Prompts and finished rows count as in the engine,
which shares the former and drops the latter.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PretrainedConfig

from grpo_lab.engine.batch import Batch


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The sizes of one step: prompts, their length, rows that read each answer token, and what is trained on."""

    prompts: int
    prompt_length: int
    rows: tuple[int, ...]  # rows of each decoding forward
    trained_prompts: int
    trained_rows: int
    trained_columns: int

    @classmethod
    def of(cls, batch: Batch, alive_B: Tensor) -> "Shapes":
        """From a sampled batch and the rows with a gradient. Token t is read to predict t+1; the last never is."""
        lengths_B = batch.length_B
        longest = int(lengths_B.max())
        alive = torch.nonzero(alive_B).squeeze(1)
        return cls(
            prompts=len(batch.prompts),
            prompt_length=batch.prompt_ids_PL.shape[1],
            rows=tuple(int((lengths_B > t).sum()) for t in range(1, longest)),
            trained_prompts=len(torch.unique(batch.prompt_B[alive])),
            trained_rows=len(alive),
            trained_columns=int(lengths_B[alive].max()) - 1 if len(alive) else 0,
        )


class Products:
    """The products of steps of one model. `plan` allocates for one step's sizes and returns what runs them."""

    def __init__(self, config: PretrainedConfig, device: str):
        self.device = device
        self.heads = config.num_attention_heads
        self.head_width = config.hidden_size // self.heads
        width, inner = config.hidden_size, config.intermediate_size
        keys = config.num_key_value_heads * self.head_width
        sizes = [(width, width), (width, keys), (width, keys), (width, width)]  # q, k, v, o
        sizes += [(width, inner), (width, inner), (inner, width)]  # gate, up, down
        self.layers = [[self.random(*size) for size in sizes] for _ in range(config.num_hidden_layers)]
        self.vocabulary = self.random(width, config.vocab_size)
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
        length = shapes.prompt_length
        self.body(todo, shapes.prompts, length, length, backward=False)
        self.linear(todo, self.vocabulary, shapes.prompts, backward=False)
        for t, rows in enumerate(shapes.rows):
            if rows:
                self.body(todo, rows, 1, length + t + 1, backward=False)
                self.linear(todo, self.vocabulary, rows, backward=False)
        if shapes.trained_rows:
            self.body(todo, shapes.trained_prompts, length, length, backward=True)
            self.linear(todo, self.vocabulary, shapes.trained_prompts, backward=True)
        if shapes.trained_rows and shapes.trained_columns:
            columns = shapes.trained_columns
            self.body(todo, shapes.trained_rows, columns, length + columns, backward=True)
            self.linear(todo, self.vocabulary, shapes.trained_rows * columns, backward=True)

        def run() -> None:
            for product, a, b, out in todo:
                product(a, b, out=out)

        return run

    def body(self, todo: list, rows: int, queries: int, keys: int, *, backward: bool) -> None:
        for weights in self.layers:
            for weight in weights:
                self.linear(todo, weight, rows * queries, backward=backward)
            self.attention(todo, rows * self.heads, queries, keys, backward=backward)

    def linear(self, todo: list, weight: Tensor, rows: int, *, backward: bool) -> None:
        wide, narrow = weight.shape
        x, y = self.buffer("in", rows, wide), self.buffer("out", rows, narrow)
        todo.append((torch.mm, x, weight, y))
        if backward:
            todo.append((torch.mm, y, weight.t(), self.buffer("gradient", rows, wide)))
            todo.append((torch.mm, x.t(), y, self.buffer("gradient", wide, narrow)))

    def attention(self, todo: list, rows: int, queries: int, keys: int, *, backward: bool) -> None:
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
