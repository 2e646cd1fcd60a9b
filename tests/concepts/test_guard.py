"""Each message says what was wanted, what came, and how to mend it."""

import math
import re

import pytest
import torch

from grpo_lab import guard


def _message(error, function, *args, **keywords):
    with pytest.raises(error) as caught:
        function(*args, **keywords)
    return str(caught.value)


def test_require_passes_the_message_on():
    guard.require(True, "unused")
    assert _message(ValueError, guard.require, False, "say this") == "say this"


def test_require_tensor_and_float():
    guard.require_float("x", torch.zeros(1))
    assert (
        _message(TypeError, guard.require_float, "x", 3)
        == "x must be a torch tensor, got int. Try torch.tensor(x)."
    )
    assert "got None. Has it been computed" in _message(TypeError, guard.require_float, "x", None)
    wanted = "x must hold floating-point numbers, got torch.int64. Try x.float()."
    assert _message(TypeError, guard.require_float, "x", torch.tensor([1])) == wanted


def test_require_mask():
    guard.require_mask("mask_BT", torch.ones(2, 3, dtype=torch.bool))
    message = _message(TypeError, guard.require_mask, "mask_BT", torch.ones(2, 3))
    assert (
        message == "mask_BT must be a bool tensor (True = own token), got torch.float32. Try mask_BT.bool()."
    )
    message = _message(ValueError, guard.require_mask, "mask_BT", torch.ones(3, dtype=torch.bool))
    assert "must have 2 axes (rows, answer columns), got 1: shape (3,)" in message


def test_require_shape():
    guard.require_shape("x", torch.zeros(2, 3), (2, None), "rows, columns")
    message = _message(ValueError, guard.require_shape, "x", torch.zeros(2, 3), (2, 4), "rows, columns")
    assert "x must have shape (2, 4) (rows, columns), got (2, 3): axis 1 is 3, not 4" in message
    message = _message(ValueError, guard.require_shape, "x", torch.zeros(2), (2, None), "rows, columns")
    assert "x must have 2 axes (rows, columns), got 1: shape (2,)" in message
    assert "unsqueeze" in message


@pytest.mark.parametrize(
    ("other", "hint"),
    [
        ((2,), "One value a row?"),
        ((3, 2), "transposed"),
        ((2, 4), "one column apart: only token_logprobs shifts"),
        ((2, 1), "x_B1.expand_as(mask_BT)"),
        ((5, 3), "from the same rows"),
    ],
)
def test_require_same_shape_names_the_likely_cause(other, hint):
    message = _message(ValueError, guard.require_same_shape, a_BT=torch.zeros(2, 3), b=torch.zeros(*other))
    assert f"a_BT (2, 3), b {other}" in message
    assert hint in message


def test_require_same_shape_does_not_allow_broadcasting():
    guard.require_same_shape(a=torch.zeros(2, 3), b=torch.zeros(2, 3))
    _message(ValueError, guard.require_same_shape, a=torch.zeros(2, 3), b=torch.zeros(2, 1))
    _message(TypeError, guard.require_same_shape, a=torch.zeros(1), b=3.0)


def test_require_range_closed_and_open():
    guard.require_range("x", 0, 0, 1)
    guard.require_range("x", 1.0, 0, 1)
    guard.require_range("x", 5, 0, math.inf, low_open=True)
    assert _message(ValueError, guard.require_range, "x", 2, 0, 1).startswith("x must lie in [0, 1], got 2.")
    assert "(0, 1)" in _message(ValueError, guard.require_range, "x", 0, 0, 1, low_open=True, high_open=True)
    assert "(0, 1)" in _message(ValueError, guard.require_range, "x", 1, 0, 1, low_open=True, high_open=True)
    assert "got nan" in _message(ValueError, guard.require_range, "x", math.nan, 0, 1)


@pytest.mark.parametrize("value", [torch.tensor(0.5), "0.5", None, True])
def test_require_range_wants_a_plain_number(value):
    message = _message(TypeError, guard.require_range, "x", value, 0, 1)
    assert re.match("x must be a Python number, got (Tensor|str|NoneType|bool)", message)


def test_require_count():
    guard.require_count("n", 1)
    guard.require_count("n", 0, least=0)
    assert "n must be at least 1, got 0" in _message(ValueError, guard.require_count, "n", 0)
    for value in (2.0, True, "2"):
        assert "n must be a whole number" in _message(TypeError, guard.require_count, "n", value)


def test_require_groups():
    guard.require_groups("r", torch.zeros(6), 3)
    assert "6 rows" in _message(ValueError, guard.require_groups, "r", torch.zeros(6), 4)
    assert "0 rows" in _message(ValueError, guard.require_groups, "r", torch.zeros(0), 4)
    assert "one reward a row" in _message(ValueError, guard.require_groups, "r", torch.zeros(2, 3), 3)
    assert "at least 2 here, got 1" in _message(
        ValueError, guard.require_groups, "r", torch.zeros(6), 1, least=2
    )
