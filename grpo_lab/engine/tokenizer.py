"""The toys' tokenizer: one character, one token.

It is a real `transformers` tokenizer (so `generate`, TRL and `from_pretrained` take it), built from an
alphabet instead of a corpus. `<pad>` and `<eos>` are two different tokens: where they are one, a mask made by
`ids != pad` also hides the end token, and the model never learns to stop.
"""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from grpo_lab.guard import require

PAD, END = "<pad>", "<eos>"


def toy_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are `<pad>`, `<eos>` and the characters of `alphabet`, in that order.

    Raises: ValueError for an empty alphabet or one that repeats a character.
    """
    require(
        len(alphabet) > 0, "the alphabet is empty; give the characters that the task uses, e.g. '0123456789='"
    )
    repeated = sorted({c for c in alphabet if alphabet.count(c) > 1})
    require(not repeated, f"the alphabet repeats {repeated}; each character is one token and may stand once")
    vocabulary = {token: i for i, token in enumerate([PAD, END, *alphabet])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
