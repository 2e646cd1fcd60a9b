"""The policy and its critic: causal language models of `transformers`, fed in two forwards.

The G answers of a prompt share their prefix. So the prompts go through once, their key-value cache is repeated for
the answers, and the answers go through on top of it. This is exact: logits and gradients are those of one forward over
every row in full (a test holds it to that). Models run in eval mode, training included: dropout would make the ratio
of a policy to itself differ from 1.
"""

import contextlib
import copy
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GPT2Config, PreTrainedModel
from transformers.utils import logging

from grpo_lab.concepts.diagnostics import entropy
from grpo_lab.concepts.token_logprobs import token_logprobs
from grpo_lab.engine.batch import Batch, widen
from grpo_lab.engine.tasks import Prompt, Task
from grpo_lab.engine.tokenizer import toy_tokenizer
from grpo_lab.guard import require


@dataclasses.dataclass(frozen=True)
class Preset:
    """Layers, width and heads of a GPT-2: learned positions, layer norm, GELU of 4 times the width.

    Llama's blocks learn these toys no better and take a third longer; and GPT-2's compute in float64 from end to end
    where that is asked for, so that tests can compare gradients to the last digits.
    """

    layers: int
    width: int
    heads: int


# About 18 thousand, 0.1, 0.8 and 3.2 million parameters.
POSITIONS = 128  # most tokens of a prompt and its answer
PRESETS = {"XS": Preset(1, 32, 2), "S": Preset(2, 64, 4), "M": Preset(4, 128, 4), "L": Preset(4, 256, 8)}


class Policy:
    """A causal language model with its tokenizer and the tokens that end a turn.

    Only this class knows chat templates and left padding: tasks speak text, concepts speak tensors.
    """

    def __init__(self, model: PreTrainedModel, tokenizer, end_ids: Iterable[int] | None = None):
        self.model = model.eval()
        self.tokenizer = tokenizer
        if end_ids is None:
            # A chat model may end its turn with another token than its tokenizer's: generation_config lists them all.
            stated = model.generation_config.eos_token_id
            end_ids = stated if isinstance(stated, list) else [stated]
            end_ids = [tokenizer.eos_token_id if i is None else i for i in end_ids]
        self.end_ids = tuple(sorted(set(end_ids)))
        require(
            None not in self.end_ids, "the tokenizer has no end token; give end_ids, or the policy can't stop"
        )
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end_ids[0]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def to(self, device: torch.device | str) -> "Policy":
        self.model.to(device)
        return self

    def copy(self) -> "Policy":
        """The same weights in new memory, with the same tokenizer."""
        return Policy(copy.deepcopy(self.model), self.tokenizer, self.end_ids)

    def encode(self, prompts: Sequence[Prompt | str]) -> tuple[Tensor, Tensor]:
        """Token ids and mask (P, L) of the prompts, padded on the left, through the chat template where there is one.

        Raises: ValueError for an empty list, an empty prompt, or a character that the toy alphabet lacks.
        """
        texts = [p if isinstance(p, str) else p.text for p in prompts]
        require(len(texts) > 0, "there is no prompt to encode")
        empty = [i for i, text in enumerate(texts) if not text]
        require(
            not empty,
            f"prompt {empty[:1]} is empty: the first token would have no state to be predicted from",
        )
        rows = self._prompt_ids(texts)
        width = max(len(row) for row in rows)
        ids_PL = torch.tensor([[self.pad_id] * (width - len(row)) + row for row in rows])
        length_P = torch.tensor([len(row) for row in rows])
        mask_PL = torch.arange(width) >= width - length_P[:, None]
        return ids_PL.to(self.device), mask_PL.to(self.device)

    def _prompt_ids(self, texts: list[str]) -> list[list[int]]:
        if self.tokenizer.chat_template is None:
            return self.encode_texts(texts)
        messages = [[{"role": "user", "content": text}] for text in texts]
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def encode_texts(self, texts: list[str]) -> list[list[int]]:
        """The ids of plain texts, with nothing added: what an environment's reply becomes, and a demonstration."""
        try:
            return self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        except Exception as error:  # the `tokenizers` library raises bare Exception for an unknown character
            known = set(self.tokenizer.get_vocab())
            text = next((text for text in texts if not set(text) <= known), texts[0])
            raise ValueError(
                f"{text!r} has {sorted(set(text) - known)}, which this policy's alphabet lacks; build the policy from "
                "the task it plays"
            ) from error

    def encode_text(self, text: str) -> list[int]:
        """`encode_texts` of one."""
        return self.encode_texts([text])[0]

    def encode_reply(self, text: str) -> list[int]:
        """The ids of what the environment says between two turns."""
        require(
            self.tokenizer.chat_template is None,
            "episodes of several turns through a chat template aren't supported; use a task with max_turns = 1",
        )
        return self.encode_text(text)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids, without end tokens. Whatever else was sampled stays for the judge to see."""
        kept = [tuple(token for token in row if token not in self.end_ids) for row in rows]
        different = list(dict.fromkeys(kept))  # a group often says the same thing twice, and decoding is slow
        text_of = dict(
            zip(different, self.tokenizer.batch_decode([list(row) for row in different]), strict=True)
        )
        return [text_of[row] for row in kept]

    def logp(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The one training forward: log-probability (with gradient) and entropy (without) of each token.

        Both (B, T), both at the batch's temperature, both 0 where a column is no token of the policy's own.
        """
        part, index_B = batch.distinct()
        first, rest = answer_forwards(self.model, part, logits_to_keep=1)
        pieces = [
            (
                first.logits[part.prompt_B],
                torch.cat([part.prompt_ids_PL[part.prompt_B, -1:], part.tokens_BT[:, :1]], 1),
            )
        ]
        if rest is not None:
            pieces.append((rest.logits, part.tokens_BT))
        logp_RT = torch.cat([token_logprobs(x, ids, temperature=batch.temperature) for x, ids in pieces], 1)
        with torch.no_grad():
            entropy_RT = torch.cat([entropy(x, temperature=batch.temperature) for x, _ in pieces], 1)
        # What stands in other columns is real for observations and meaningless for padding: neither is ours.
        return tuple(_on_rows(x_RT, index_B, batch.mask_BT) for x_RT in (logp_RT, entropy_RT))

    def gradient(self, value: Tensor) -> Tensor:
        """The gradient of one number in all weights, as one row (W,); 0 where a weight has no part in it.

        The graph stays, so that several numbers of one forward can be asked for.
        """
        weights = self.parameters()
        grads = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
        parts = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, grads, strict=True)]
        return torch.cat([part.reshape(-1) for part in parts])

    def save(self, folder: Path | str, note: dict | None = None) -> None:
        """Write weights (safetensors), config and tokenizer; `note` goes into `grpo_lab.json` beside them."""
        with _no_bars():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        content = {"end_ids": list(self.end_ids), **(note or {})}
        (Path(folder) / "grpo_lab.json").write_text(json.dumps(content, indent=1) + "\n")


class Critic:
    """The same body as a policy's, with a head of width 1 in place of the vocabulary's: one value a state."""

    def __init__(self, policy: Policy, frozen: Sequence[str] = ()):
        self.body = copy.deepcopy(policy.model.base_model).eval()
        width = policy.model.config.get_text_config().hidden_size
        reference = next(self.body.parameters())
        # Zeros: the first values are 0 whatever the body says, and (with skip_init) no random number is drawn.
        self.head = nn.utils.skip_init(nn.Linear, width, 1, device=reference.device, dtype=reference.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        for name, parameter in self.body.named_parameters():
            parameter.requires_grad_(not any(part in name for part in frozen))
        names = [name for name, _ in self.body.named_parameters()]
        for part in frozen:
            require(
                any(part in name for name in names),
                f"frozen={part!r} is part of no parameter's name; they are {', '.join(names[:6])} ...",
            )

    def parameters(self) -> list[nn.Parameter]:
        """What is trained: everything but the frozen modules."""
        return [p for _, p in self.named_parameters() if p.requires_grad]

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [*self.body.named_parameters(prefix="body"), *self.head.named_parameters(prefix="head")]

    def values(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """values (B, T), of the state that predicts each token and has not seen it, and the value (B,) of the state
        after the last token of each row. Gradient flows. Values are 0 where a column is not the policy's own."""
        part, index_B = batch.distinct()
        first, rest = answer_forwards(self.body, part, through_end=True)
        hidden_RSD = torch.cat([first.last_hidden_state[part.prompt_B, -1:], rest.last_hidden_state], 1)
        values_RS = self.head(hidden_RSD).squeeze(-1)
        end_R = values_RS.gather(1, part.attend_BT.sum(1, keepdim=True)).squeeze(1)
        return _on_rows(values_RS[:, :-1], index_B, batch.mask_BT), end_R[index_B]


def _on_rows(x_RT: Tensor, index_B: Tensor, mask_BT: Tensor) -> Tensor:
    """From the distinct rows back to all rows of the batch; 0 off the mask."""
    return widen(x_RT, mask_BT.shape[1]).index_select(0, index_B).where(mask_BT, 0.0)


def answer_forwards(model: nn.Module, batch: Batch, *, through_end: bool = False, **prompt_arguments):
    """Two forwards: the P prompts in full, then the B answers on top of the repeated cache of their prompts.

    The last position of the first predicts token 0; position t of the second predicts token t+1 (and the last of
    all is asked for only with `through_end`). Returns both outputs; the second is None where answers have one token.
    """
    body = getattr(model, "base_model", model)
    padded = not bool(batch.prompt_mask_PL.all())
    inputs_BT = batch.tokens_BT if through_end else batch.tokens_BT[:, :-1]
    cache = DynamicCache(config=body.config)
    first = model(
        input_ids=batch.prompt_ids_PL,
        cache=cache,
        **prompt_positions(batch.prompt_mask_PL),
        **prompt_arguments,
    )
    if inputs_BT.shape[1] == 0:
        return first, None
    cache.batch_select_indices(batch.prompt_B)
    placed = {}
    if padded:
        # Answers are filled from the left, so under the causal mask only the prompts' padding needs hiding.
        real_BT = torch.ones_like(inputs_BT, dtype=torch.bool)
        mask_BS = torch.cat([batch.prompt_mask_PL[batch.prompt_B], real_BT], 1)
        positions_BS = mask_BS.cumsum(1) - 1
        placed = {"attention_mask": mask_BS, "position_ids": positions_BS[:, batch.prompt_ids_PL.shape[1] :]}
    return first, model(input_ids=inputs_BT, cache=cache, **placed)


def prompt_positions(mask_PL: Tensor) -> dict[str, Tensor]:
    """attention_mask and position_ids of left-padded prompts; none where nothing is padded (defaults are right)."""
    if bool(mask_PL.all()):
        return {}
    return {"attention_mask": mask_PL, "position_ids": (mask_PL.cumsum(1) - 1).clamp(min=0)}


def build_policy(task: Task, preset: str = "S", *, seed: int = 0) -> Policy:
    """A small GPT-2 with random weights over the task's alphabet; the caller's random numbers are left untouched.

    Raises: ValueError for a preset that doesn't exist.
    """
    require(preset in PRESETS, f"there is no preset {preset!r}; the presets are {', '.join(PRESETS)}")
    shape = PRESETS[preset]
    tokenizer = toy_tokenizer(task.alphabet)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_positions=POSITIONS,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        pad_token_id=None,  # known to the tokenizer; named here, every unmasked forward would be warned about
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return Policy(model, tokenizer)


@contextlib.contextmanager
def _no_bars():
    """A bar for each small file read or written is noise. The caller's own setting is put back."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_policy(source: Path | str, **arguments) -> Policy:
    """A policy from a folder that `save` wrote, or any `from_pretrained` folder or hub id.

    `arguments` go to `AutoModelForCausalLM.from_pretrained` (gguf_file=..., dtype=...; weights are float32 if unsaid).
    Raises: FileNotFoundError, or ValueError for a file that can't be read, both with what to do.
    """
    folder = Path(source)
    is_path = folder.exists() or folder.is_absolute() or str(source).startswith(".")
    if is_path and (not folder.is_dir() or not any(folder.iterdir())):
        raise FileNotFoundError(
            f"there are no weights in {folder}; warm starts are made again by `grpo-lab warm-start`"
        )
    tokenizer_arguments = {k: v for k, v in arguments.items() if k in ("gguf_file", "revision")}
    try:
        with _no_bars():
            tokenizer = AutoTokenizer.from_pretrained(source, **tokenizer_arguments)
            model, found = AutoModelForCausalLM.from_pretrained(
                source, output_loading_info=True, **{"dtype": torch.float32, **arguments}
            )
        require(not found["missing_keys"], f"the weights lack {sorted(found['missing_keys'])[:3]}")
        stated = folder / "grpo_lab.json"
        end_ids = json.loads(stated.read_text())["end_ids"] if stated.is_file() else None
    except Exception as error:  # safetensors, tokenizers, json and the hub each raise their own
        reason = " ".join(str(error).split())  # on one line
        raise ValueError(
            f"the policy in {source} can't be read ({type(error).__name__}: {reason}); if it is a warm start, delete "
            "the folder and it is made again; a hub id must be on this machine, or the network must be there"
        ) from error
    return Policy(model, tokenizer, end_ids)
