"""The critic's squared error, and its clip."""

import pytest

from tests.concepts.tools import close, gradient, own, row

VALUES_BT = row(1.0, 3.0, 9.0)
RETURNS_BT = row(2.0, 0.0, 0.0)
MASK_BT = own(1, 1, 0)


def test_value_loss_by_hand(value_loss):
    assert value_loss(VALUES_BT, RETURNS_BT, MASK_BT).tolist() == [[0.5, 4.5, 0.0]]


def test_value_loss_gradient_is_the_error(value_loss):
    grad_BT = gradient(lambda v: value_loss(v, RETURNS_BT, MASK_BT), VALUES_BT)
    assert close(grad_BT, row(-1.0, 3.0, 0.0))


def test_value_loss_treats_the_return_as_a_constant(value_loss):
    returns_BT = RETURNS_BT.clone().requires_grad_()
    old_BT = VALUES_BT.clone().requires_grad_()
    value_loss(VALUES_BT.clone().requires_grad_(), returns_BT, MASK_BT, old_BT, clip=0.1).sum().backward()
    assert returns_BT.grad is None
    assert old_BT.grad is None


def test_value_loss_clip_by_hand(value_loss):
    """V_old 0, return 10, clip 1. V = 0.5: error 9.5. V = 4: the clip counts it as 1, error 9, larger than 6."""
    values_BT, returns_BT, old_BT = row(0.5, 4.0), row(10, 10), row(0, 0)
    loss_BT = value_loss(values_BT, returns_BT, own(1, 1), old_BT, clip=1.0)
    assert close(loss_BT, row(0.5 * 9.5**2, 0.5 * 9.0**2))


def test_value_loss_clip_lets_go_of_a_value_that_has_moved_far_towards_its_target(value_loss):
    grad_BT = gradient(lambda v: value_loss(v, row(10, 10), own(1, 1), row(0, 0), clip=1.0), row(0.5, 4.0))
    assert close(grad_BT, row(-9.5, 0.0))


def test_value_loss_clip_never_hides_an_error(value_loss):
    """V has run away from its target: the larger, unclipped error counts, with its whole gradient."""
    keywords = {"clip": 1.0}
    assert close(value_loss(row(-5.0), row(10), own(1), row(0), **keywords), row(0.5 * 15**2))
    grad_BT = gradient(lambda v: value_loss(v, row(10), own(1), row(0), **keywords), row(-5.0))
    assert close(grad_BT, row(-15.0))


def test_value_loss_with_a_wide_clip_is_the_loss_without(value_loss):
    loss_BT = value_loss(VALUES_BT, RETURNS_BT, MASK_BT, VALUES_BT + 1, clip=100.0)
    assert close(loss_BT, value_loss(VALUES_BT, RETURNS_BT, MASK_BT))


def test_value_loss_without_clip_does_not_read_the_old_values(value_loss):
    loss_BT = value_loss(VALUES_BT, RETURNS_BT, MASK_BT, VALUES_BT + 1)
    assert close(loss_BT, value_loss(VALUES_BT, RETURNS_BT, MASK_BT))


def test_value_loss_refuses_a_clip_without_old_values(value_loss):
    with pytest.raises(ValueError, match="clip needs values_old_BT"):
        value_loss(VALUES_BT, RETURNS_BT, MASK_BT, clip=0.2)


def test_value_loss_refuses_a_clip_of_zero(value_loss):
    with pytest.raises(ValueError, match="clip must lie in"):
        value_loss(VALUES_BT, RETURNS_BT, MASK_BT, VALUES_BT, clip=0.0)
