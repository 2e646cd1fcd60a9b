"""Which tokens still get a gradient? Four quadrants, and the two bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.concepts.tools import close, gradient, row

RATIOS_BT = row(0.3, 0.75, 1.0, 1.2, 1.5, 5.0)
GOOD_BT = row(1, 1, 1, 1, 1, 1)


def _push(clipped_surrogate, ratio_BT, advantages_BT, **bounds):
    """How hard log pi is pushed up: minus the gradient of the loss, times d ratio / d log pi = ratio."""
    return -gradient(lambda r: clipped_surrogate(r, advantages_BT, **bounds), ratio_BT) * ratio_BT


def test_clipped_surrogate_pushes_good_tokens_until_the_upper_bound(clipped_surrogate):
    push_BT = _push(clipped_surrogate, RATIOS_BT, GOOD_BT, eps_low=0.2, eps_high=0.28)
    assert close(push_BT, row(0.3, 0.75, 1.0, 1.2, 0.0, 0.0))


def test_clipped_surrogate_pushes_bad_tokens_until_the_lower_bound(clipped_surrogate):
    push_BT = _push(clipped_surrogate, RATIOS_BT, -GOOD_BT, eps_low=0.2, eps_high=0.28)
    assert close(push_BT, row(0.0, 0.0, -1.0, -1.2, -1.5, -5.0))


def test_clipped_surrogate_with_delta_lets_go_of_bad_tokens_that_ran_away(clipped_surrogate):
    bounds = {"eps_low": 0.2, "eps_high": 0.28, "delta": 4.0}
    assert close(_push(clipped_surrogate, RATIOS_BT, GOOD_BT, **bounds), row(0.3, 0.75, 1.0, 1.2, 0.0, 0.0))
    assert close(_push(clipped_surrogate, RATIOS_BT, -GOOD_BT, **bounds), row(0, 0, -1.0, -1.2, -1.5, 0.0))


def test_clipped_surrogate_values_by_hand(clipped_surrogate):
    """Loss = -min(r A, clip(r) A). A = 2: clip caps the praise. A = -2: the harsher of the two counts."""
    bounds = {"eps_low": 0.2, "eps_high": 0.28}
    assert close(clipped_surrogate(row(0.5, 1.0, 2.0), row(2, 2, 2), **bounds), -row(1.0, 2.0, 2.56))
    assert close(clipped_surrogate(row(0.5, 1.0, 2.0), row(-2, -2, -2), **bounds), row(1.6, 2.0, 4.0))
    assert close(clipped_surrogate(row(9.0), row(-2), delta=3.0), row(6.0))


def test_clipped_surrogate_has_symmetric_defaults_of_one_fifth(clipped_surrogate):
    assert close(clipped_surrogate(row(0.1, 9.0), row(-1, 1)), row(0.8, -1.2))


def test_clipped_surrogate_at_ratio_one_is_reinforce(clipped_surrogate):
    advantages_BT = row(3.0, -0.5, 0.0)
    assert close(clipped_surrogate(row(1, 1, 1), advantages_BT), -advantages_BT)
    assert close(_push(clipped_surrogate, row(1, 1, 1), advantages_BT), advantages_BT)


def test_clipped_surrogate_leaves_tokens_without_advantage_alone(clipped_surrogate):
    zeros_BT = row(0, 0, 0, 0, 0, 0)
    assert (clipped_surrogate(RATIOS_BT, zeros_BT) == 0).all()
    assert (_push(clipped_surrogate, RATIOS_BT, zeros_BT) == 0).all()


@given(ratio=st.floats(0, 50), advantage=st.floats(-5, 5), eps_low=st.floats(0, 1), eps_high=st.floats(0, 3))
def test_clipped_surrogate_never_promises_more_than_the_ratio(
    clipped_surrogate, ratio, advantage, eps_low, eps_high
):
    """PPO's point: the clipped objective is a lower bound of r A, so the loss is an upper bound of -r A."""
    loss = clipped_surrogate(row(ratio), row(advantage), eps_low=eps_low, eps_high=eps_high).item()
    assert loss >= -ratio * advantage - 1e-12
    if 1 - eps_low <= ratio <= 1 + eps_high:
        assert loss == pytest.approx(-ratio * advantage, abs=1e-12)


def test_clipped_surrogate_with_eps_low_one_has_no_lower_clip(clipped_surrogate):
    push_BT = _push(clipped_surrogate, row(1e-3), row(-1), eps_low=1.0)
    assert close(push_BT, row(-1e-3))


def test_clipped_surrogate_with_infinite_eps_high_has_no_upper_clip(clipped_surrogate):
    assert close(_push(clipped_surrogate, row(50.0), row(1), eps_high=math.inf), row(50.0))


def test_clipped_surrogate_treats_the_advantage_as_a_constant(clipped_surrogate):
    advantages_BT = row(1.0, -1.0).requires_grad_()
    clipped_surrogate(row(1.0, 1.0).requires_grad_(), advantages_BT).sum().backward()
    assert advantages_BT.grad is None


def test_clipped_surrogate_refuses_one_advantage_a_row(clipped_surrogate):
    with pytest.raises(ValueError, match=r"x_B\.unsqueeze\(1\)\.expand_as"):
        clipped_surrogate(RATIOS_BT, GOOD_BT[:, 0])


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"eps_low": -0.1}, "eps_low must lie in"),
        ({"eps_low": 1.1}, "eps_low must lie in"),
        ({"eps_high": -0.1}, "eps_high must lie in"),
        ({"eps_high": 0.28, "delta": 1.28}, "delta must lie in"),
    ],
)
def test_clipped_surrogate_refuses_bounds_out_of_order(clipped_surrogate, bounds, message):
    with pytest.raises(ValueError, match=message):
        clipped_surrogate(RATIOS_BT, GOOD_BT, **bounds)
