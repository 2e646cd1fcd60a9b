"""One character, one token: text comes back as it was, and padding is not the end."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_lab.engine.tokenizer import END, PAD, toy_tokenizer

# Spaces, line ends, a letter with its accent apart, wide and combined forms, an emoji: what normalisers like to touch.
TRICKY = "aA \t\n\re\u0301\u00e9\u2460\ufb01\u3164\U0001f6420=.<>-"


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_tokens_stand_in_the_order_of_the_alphabet_after_pad_and_end():
    tokenizer = toy_tokenizer("01=")
    assert tokenizer.get_vocab() == {PAD: 0, END: 1, "0": 2, "1": 3, "=": 4}
    assert len(tokenizer) == 5
    assert ids_of(tokenizer, "10=0") == [3, 2, 4, 2]


def test_padding_and_end_are_two_tokens():
    tokenizer = toy_tokenizer("01=")
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    assert tokenizer.padding_side == "left"


def test_nothing_is_added_to_a_text_and_no_text_is_no_token():
    tokenizer = toy_tokenizer("01=")
    assert tokenizer("01")["input_ids"] == [2, 3]
    assert ids_of(tokenizer, "") == []
    assert tokenizer.decode([]) == ""


@given(text=st.text(alphabet=TRICKY, max_size=30))
def test_every_character_is_one_token_and_comes_back_as_it_was(text):
    tokenizer = toy_tokenizer(TRICKY)
    ids = ids_of(tokenizer, text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.batch_decode([[0, 0, *ids, 1], ids], skip_special_tokens=True) == [text, text]


def test_the_tricky_alphabet_would_show_a_normaliser():
    assert unicodedata.normalize("NFC", TRICKY) != TRICKY != unicodedata.normalize("NFKC", TRICKY)


@given(alphabet=st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_any_characters_can_be_an_alphabet_as_long_as_each_stands_once(alphabet):
    if len(set(alphabet)) < len(alphabet):
        with pytest.raises(ValueError, match="the alphabet repeats"):
            toy_tokenizer(alphabet)
    else:
        tokenizer = toy_tokenizer(alphabet)
        assert tokenizer.decode(ids_of(tokenizer, alphabet[::-1])) == alphabet[::-1]


def test_end_and_padding_are_shown_unless_they_are_skipped():
    tokenizer = toy_tokenizer("01=")
    assert tokenizer.decode([0, 2, 3, 1]) == f"{PAD}01{END}"
    assert tokenizer.decode([0, 2, 3, 1], skip_special_tokens=True) == "01"


def test_a_batch_is_padded_on_the_left():
    tokenizer = toy_tokenizer("01=")
    batch = tokenizer(["0", "101"], padding=True)
    assert batch["input_ids"] == [[0, 0, 2], [3, 2, 3]]
    assert batch["attention_mask"] == [[0, 0, 1], [1, 1, 1]]


def test_it_comes_back_from_disk(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = toy_tokenizer(TRICKY)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert ids_of(loaded, TRICKY) == ids_of(tokenizer, TRICKY)
    assert loaded.decode(ids_of(loaded, TRICKY)) == TRICKY
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.padding_side) == (0, 1, "left")


def test_an_empty_alphabet_is_refused():
    with pytest.raises(ValueError, match="the alphabet is empty; give the characters"):
        toy_tokenizer("")


def test_a_repeated_character_is_named():
    with pytest.raises(ValueError, match=r"the alphabet repeats \['1', '='\]"):
        toy_tokenizer("01=1=")
