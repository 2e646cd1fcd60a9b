"""Sums, means and spreads over the kept entries only."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.concepts.tools import close, gradient, own, row

X_BT = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]], dtype=torch.float64)
KEEP_BT = torch.tensor([[True, True, False], [True, False, False]])  # keeps 1, 2 and 4
# In float32 the mean of eight times 0.1 is not 0.1. Which of these hit a rounding error depends on the machine's
# order of summation; some always do.
EQUAL = [torch.full((2, columns), value) for value in (0.1, 0.7) for columns in (4, 6, 12)]
NONE_BT = torch.zeros(2, 3, dtype=torch.bool)


def test_masked_sum_by_hand(masked_sum):
    assert masked_sum(X_BT, KEEP_BT).item() == 7
    assert masked_sum(X_BT, KEEP_BT, dim=1).tolist() == [3, 4]
    assert masked_sum(X_BT, KEEP_BT, dim=0).tolist() == [5, 2, 0]


def test_masked_mean_by_hand(masked_mean):
    assert masked_mean(X_BT, KEEP_BT).item() == pytest.approx(7 / 3)
    assert masked_mean(X_BT, KEEP_BT, dim=1).tolist() == [1.5, 4]
    assert masked_mean(X_BT, KEEP_BT, dim=0).tolist() == [2.5, 2, 0]


def test_masked_var_by_hand(masked_var):
    # 1, 2, 4 lie -4/3, -1/3 and 5/3 from their mean 7/3: 42/9 in all.
    assert masked_var(X_BT, KEEP_BT).item() == pytest.approx(42 / 27)
    assert masked_var(X_BT, KEEP_BT, ddof=1).item() == pytest.approx(42 / 18)


def test_masked_whiten_by_hand(masked_whiten):
    # 1 and 3: mean 2, standard deviation 1. With eps 1 the distance 1 is divided by 1 + 1.
    white_BT = masked_whiten(row(1, 3, 99), own(1, 1, 0), eps=1.0)
    assert white_BT.tolist() == [[-0.5, 0.5, 0]]


def test_masked_whiten_gives_mean_zero_and_standard_deviation_one(masked_whiten):
    white_BT = masked_whiten(X_BT, KEEP_BT)
    kept = white_BT[KEEP_BT]
    assert kept.mean().item() == pytest.approx(0, abs=1e-12)
    assert kept.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert (white_BT[~KEEP_BT] == 0).all()


@given(shift=st.floats(-100, 100), scale=st.floats(0.1, 100))
def test_masked_whiten_forgets_shift_and_scale(masked_whiten, shift, scale):
    white_BT = masked_whiten(X_BT, KEEP_BT, eps=0.0)
    assert close(masked_whiten(scale * X_BT + shift, KEEP_BT, eps=0.0), white_BT, 1e-8)


@given(shift=st.floats(-100, 100), scale=st.floats(-10, 10))
def test_masked_var_forgets_shift_and_squares_scale(masked_var, shift, scale):
    var = masked_var(X_BT, KEEP_BT)
    assert masked_var(scale * X_BT + shift, KEEP_BT).item() == pytest.approx(scale**2 * var.item(), abs=1e-9)


def test_masked_sum_of_nothing_is_zero(masked_sum):
    assert masked_sum(X_BT, NONE_BT).item() == 0


def test_masked_mean_of_nothing_is_zero_with_gradient_zero(masked_mean):
    assert masked_mean(X_BT, NONE_BT).item() == 0
    assert masked_mean(X_BT, KEEP_BT & (X_BT < 4), dim=1).tolist() == [1.5, 0]
    assert (gradient(lambda x: masked_mean(x, NONE_BT), X_BT) == 0).all()


def test_masked_var_of_one_value_is_zero(masked_var):
    assert masked_var(X_BT, NONE_BT).item() == 0
    assert masked_var(row(5, 9), own(1, 0)).item() == 0
    assert masked_var(row(5, 9), own(1, 0), ddof=1).item() == 0


def test_masked_whiten_of_nothing_is_zero_with_gradient_zero(masked_whiten):
    assert (masked_whiten(X_BT, NONE_BT) == 0).all()
    assert (gradient(lambda x: masked_whiten(x, NONE_BT), X_BT) == 0).all()


def test_masked_var_of_equal_entries_is_exactly_zero_in_float32(masked_var):
    for equal_BT in EQUAL:
        assert masked_var(equal_BT, torch.ones_like(equal_BT).bool()).item() == 0.0


def test_masked_whiten_of_equal_entries_is_exactly_zero_in_float32(masked_whiten):
    for equal_BT in EQUAL:
        all_BT = torch.ones_like(equal_BT).bool()
        assert (masked_whiten(equal_BT, all_BT) == 0).all()
        assert (gradient(lambda x, all_BT=all_BT: masked_whiten(x, all_BT)[0, 0], equal_BT) == 0).all()


def test_masked_sum_passes_gradient_to_kept_entries_only(masked_sum):
    assert close(gradient(lambda x: masked_sum(x, KEEP_BT), X_BT), KEEP_BT.double())


def test_masked_mean_shares_its_gradient_equally(masked_mean):
    assert close(gradient(lambda x: masked_mean(x, KEEP_BT), X_BT), KEEP_BT.double() / 3)


def test_masked_var_gradient_is_twice_the_distance_over_n(masked_var):
    expected_BT = torch.where(KEEP_BT, 2 * (X_BT - 7 / 3) / 3, 0)
    assert close(gradient(lambda x: masked_var(x, KEEP_BT), X_BT), expected_BT)


def test_masked_whiten_gradient_agrees_with_finite_differences(masked_whiten):
    x_BT = X_BT.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: masked_whiten(x, KEEP_BT), x_BT)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_masked_sum_leaves_garbage_under_the_mask(masked_sum, garbage):
    assert masked_sum(torch.where(KEEP_BT, X_BT, garbage), KEEP_BT).item() == 7


def test_masked_var_refuses_a_negative_ddof(masked_var):
    with pytest.raises(ValueError, match="ddof must be at least 0"):
        masked_var(X_BT, KEEP_BT, ddof=-1)


def test_masked_whiten_refuses_a_negative_eps(masked_whiten):
    with pytest.raises(ValueError, match="eps must lie in"):
        masked_whiten(X_BT, KEEP_BT, eps=-1e-8)
