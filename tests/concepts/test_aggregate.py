"""How much does each token weigh? Two answers, of one and of three tokens."""

import math

import pytest
import torch

from tests.concepts.tools import close, gradient, random_logits

MASK_BT = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]]).bool()
EMPTY_BT = torch.zeros(2, 4, dtype=torch.bool)
WITH_EMPTY_ROW_BT = torch.cat([MASK_BT, EMPTY_BT])  # four rows, two of them without own tokens


def _weights(*rows):
    return torch.tensor(rows)


def _padding_changes_nothing(weights_of):
    """More columns of padding, the same weights: an average over all T columns would shrink."""
    wide_BT = torch.nn.functional.pad(MASK_BT, (2, 5))
    assert close(weights_of(wide_BT)[:, 2:6], weights_of(MASK_BT))
    assert (weights_of(wide_BT)[:, :2] == 0).all()


def _nothing_weighs_nothing(weights_of):
    weights_BT = weights_of(EMPTY_BT)
    assert weights_BT.dtype == torch.float32
    assert (weights_BT == 0).all()


def test_sequence_mean_by_hand(sequence_mean):
    third = 1 / 6
    expected_BT = _weights([0.5, 0, 0, 0], [third, third, third, 0])
    assert close(sequence_mean(MASK_BT), expected_BT, 1e-7)


def test_sequence_mean_counts_rows_without_own_tokens(sequence_mean):
    assert close(sequence_mean(WITH_EMPTY_ROW_BT)[:2], sequence_mean(MASK_BT) / 2, 1e-7)
    assert sequence_mean(WITH_EMPTY_ROW_BT).sum().item() == pytest.approx(0.5)


def test_sequence_mean_gives_each_answer_the_same_weight(sequence_mean):
    assert sequence_mean(MASK_BT).sum(dim=1).tolist() == pytest.approx([0.5, 0.5])


def test_sequence_mean_ignores_padding(sequence_mean):
    _padding_changes_nothing(sequence_mean)


def test_sequence_mean_of_nothing_is_zero(sequence_mean):
    _nothing_weighs_nothing(sequence_mean)


def test_token_mean_by_hand(token_mean):
    expected_BT = _weights([0.25, 0, 0, 0], [0.25, 0.25, 0.25, 0])
    assert close(token_mean(MASK_BT), expected_BT, 1e-7)
    assert close(token_mean(WITH_EMPTY_ROW_BT)[:2], expected_BT, 1e-7)


def test_token_mean_ignores_padding(token_mean):
    _padding_changes_nothing(token_mean)


def test_token_mean_of_nothing_is_zero(token_mean):
    _nothing_weighs_nothing(token_mean)


def test_constant_mean_by_hand(constant_mean):
    expected_BT = _weights([0.05, 0, 0, 0], [0.05, 0.05, 0.05, 0])
    assert close(constant_mean(MASK_BT, length=10), expected_BT, 1e-7)


def test_constant_mean_gives_a_token_the_same_weight_however_long_the_others_are(constant_mean):
    longer_BT = torch.ones_like(MASK_BT)
    assert constant_mean(MASK_BT, length=10)[0, 0] == constant_mean(longer_BT, length=10)[0, 0]


def test_constant_mean_ignores_padding(constant_mean):
    _padding_changes_nothing(lambda mask_BT: constant_mean(mask_BT, length=4))


def test_constant_mean_of_nothing_is_zero(constant_mean):
    _nothing_weighs_nothing(lambda mask_BT: constant_mean(mask_BT, length=4))


def test_constant_mean_refuses_a_length_of_zero(constant_mean):
    with pytest.raises(ValueError, match="length must lie in"):
        constant_mean(MASK_BT, length=0)


def test_sequence_sum_mean_by_hand(sequence_sum_mean):
    expected_BT = _weights([0.5, 0, 0, 0], [0.5, 0.5, 0.5, 0])
    assert close(sequence_sum_mean(MASK_BT), expected_BT, 1e-7)
    assert close(sequence_sum_mean(WITH_EMPTY_ROW_BT)[:2], expected_BT / 2, 1e-7)


def test_sequence_sum_mean_ignores_padding(sequence_sum_mean):
    _padding_changes_nothing(sequence_sum_mean)


def test_sequence_sum_mean_of_nothing_is_zero(sequence_sum_mean):
    _nothing_weighs_nothing(sequence_sum_mean)


LOSS_BT = torch.tensor([[4.0, 9, 9, 9], [1, 2, 3, 9]], dtype=torch.float64)


def test_weighted_sum_by_hand(weighted_sum):
    weights_BT = torch.tensor([[0.5, 7, 7, 7], [0.1, 0.2, 0.3, 7]])
    assert weighted_sum(LOSS_BT, weights_BT, MASK_BT).item() == pytest.approx(2 + 0.1 + 0.4 + 0.9)


def test_the_four_averages_of_one_loss_by_hand(
    weighted_sum, sequence_mean, token_mean, constant_mean, sequence_sum_mean
):
    """Answer one: 4. Answer two: 1, 2, 3. Four numbers, one batch: 'the mean' says too little."""
    weights = [
        sequence_mean(MASK_BT),
        token_mean(MASK_BT),
        constant_mean(MASK_BT, length=5),
        sequence_sum_mean(MASK_BT),
    ]
    losses = [weighted_sum(LOSS_BT, weights_BT, MASK_BT).item() for weights_BT in weights]
    assert losses == pytest.approx([(4 + 2) / 2, 10 / 4, 10 / 10, 10 / 2])


def test_weighted_sum_gradient_is_the_weight_and_garbage_gets_none(weighted_sum):
    weights_BT = torch.full((2, 4), 0.3, dtype=torch.float64)
    loss_BT = torch.where(MASK_BT, LOSS_BT, math.nan)
    assert weighted_sum(loss_BT, weights_BT, MASK_BT).item() == pytest.approx(3.0)
    grad_BT = gradient(lambda x: weighted_sum(x, weights_BT, MASK_BT), loss_BT)
    assert close(grad_BT, torch.where(MASK_BT, weights_BT, 0))


def test_weighted_sum_treats_weights_as_constants(weighted_sum):
    weights_BT = torch.ones(2, 4).requires_grad_()
    weighted_sum(LOSS_BT.clone().requires_grad_(), weights_BT, MASK_BT).backward()
    assert weights_BT.grad is None


def test_weighted_sum_of_nothing_is_zero(weighted_sum):
    assert weighted_sum(LOSS_BT, torch.ones(2, 4), EMPTY_BT).item() == 0


@pytest.mark.parametrize("name", ["sequence_mean", "token_mean", "sequence_sum_mean"])
def test_weights_of_the_whole_make_the_halves_add_up_to_the_whole(name, request, weighted_sum):
    """Weights first, splitting second. The other way round, each half has denominators of its own."""
    weights_of = request.getfixturevalue(name)
    mask_BT = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    loss_BT = random_logits(4, 5, seed=30)
    weights_BT = weights_of(mask_BT)
    whole = weighted_sum(loss_BT, weights_BT, mask_BT).item()
    halves = [weighted_sum(loss_BT[h], weights_BT[h], mask_BT[h]).item() for h in (slice(0, 1), slice(1, 4))]
    assert sum(halves) == pytest.approx(whole)

    wrong = [
        weighted_sum(loss_BT[h], weights_of(mask_BT[h]), mask_BT[h]).item()
        for h in (slice(0, 1), slice(1, 4))
    ]
    assert sum(wrong) / 2 != pytest.approx(whole, abs=1e-3)


def test_reducing_after_dropping_dead_rows_changes_a_token_mean(weighted_sum, token_mean):
    """Two rows have advantage 0, so their loss is 0: leaving them out is free, leaving them out first is not."""
    mask_BT = torch.ones(4, 3, dtype=torch.bool)
    loss_BT = torch.cat([random_logits(2, 3, seed=31), torch.zeros(2, 3)])
    whole = weighted_sum(loss_BT, token_mean(mask_BT), mask_BT).item()
    weights_first = weighted_sum(loss_BT[:2], token_mean(mask_BT)[:2], mask_BT[:2]).item()
    dropped_first = weighted_sum(loss_BT[:2], token_mean(mask_BT[:2]), mask_BT[:2]).item()
    assert weights_first == pytest.approx(whole)
    assert dropped_first == pytest.approx(2 * whole)
