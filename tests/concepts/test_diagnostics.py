"""Does each dial show what its label says?"""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_lab.concepts.clipped_surrogate import clipped_surrogate
from tests.concepts.tools import gradient, own, random_logits, row

# ---- effective_sample_size -------------------------------------------------------------------------------


def test_effective_sample_size_by_hand(effective_sample_size):
    # (1 + 3)^2 / (2 * (1 + 9)) = 16 / 20
    assert effective_sample_size(row(1, 3, 99), own(1, 1, 0)).item() == pytest.approx(0.8)


def test_effective_sample_size_of_equal_weights_is_one(effective_sample_size):
    assert effective_sample_size(row(0.2, 0.2, 0.2), own(1, 1, 1)).item() == pytest.approx(1)


def test_effective_sample_size_of_one_weight_among_zeros_is_one_over_n(effective_sample_size):
    assert effective_sample_size(row(0, 5, 0, 0), own(1, 1, 1, 1)).item() == pytest.approx(0.25)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1.0, 1e30])
def test_effective_sample_size_forgets_a_common_factor_in_float32(effective_sample_size, scale):
    ratio_BT = torch.tensor([[1.0, 3.0]]) * scale
    assert effective_sample_size(ratio_BT, own(1, 1)).item() == pytest.approx(0.8, rel=1e-5)


def test_effective_sample_size_of_nothing_is_zero(effective_sample_size):
    assert effective_sample_size(row(1, 2), own(0, 0)).item() == 0
    assert effective_sample_size(row(0, 0), own(1, 1)).item() == 0


@given(ratios=st.lists(st.floats(0.001, 1000), min_size=4, max_size=4))
def test_effective_sample_size_lies_between_one_over_n_and_one(effective_sample_size, ratios):
    ess = effective_sample_size(row(*ratios), own(1, 1, 1, 1)).item()
    assert 0.25 - 1e-9 <= ess <= 1 + 1e-9


# ---- entropy ---------------------------------------------------------------------------------------------


def _logits(*probabilities):
    return torch.tensor([[probabilities]], dtype=torch.float64).log()


def test_entropy_by_hand(entropy):
    assert entropy(_logits(0.5, 0.25, 0.25)).item() == pytest.approx(1.5 * math.log(2))


def test_entropy_of_equal_chances_is_log_of_their_number(entropy):
    assert entropy(torch.zeros(1, 1, 7, dtype=torch.float64)).item() == pytest.approx(math.log(7))


def test_entropy_of_certainty_is_zero(entropy):
    assert entropy(torch.tensor([[[1e4, 0.0, 0.0]]])).item() == 0


def test_entropy_is_taken_at_the_sampling_temperature(entropy):
    logits_BTV = random_logits(1, 1, 5, seed=40)
    p_V = (logits_BTV / 0.6).softmax(-1)
    expected = -(p_V * p_V.log()).sum().item()
    assert entropy(logits_BTV, temperature=0.6).item() == pytest.approx(expected)


def test_entropy_survives_forbidden_tokens_and_extreme_logits(entropy):
    logits_BTV = torch.tensor([[[0.0, 0.0, -math.inf, -1e4]]])
    assert entropy(logits_BTV).item() == pytest.approx(math.log(2))
    assert gradient(entropy, logits_BTV).isfinite().all()


def test_entropy_gradient_agrees_with_finite_differences(entropy):
    logits_BTV = random_logits(2, 2, 3, seed=41).requires_grad_()
    assert torch.autograd.gradcheck(entropy, logits_BTV)


# ---- explained_variance ----------------------------------------------------------------------------------

RETURNS_BT = row(0, 1, 2, 3, 99)
MASK_BT = own(1, 1, 1, 1, 0)


def test_explained_variance_of_a_perfect_critic_is_one(explained_variance):
    assert explained_variance(RETURNS_BT, RETURNS_BT, MASK_BT).item() == pytest.approx(1)


def test_explained_variance_does_not_see_a_constant_error(explained_variance):
    assert explained_variance(RETURNS_BT + 5, RETURNS_BT, MASK_BT).item() == pytest.approx(1)


def test_explained_variance_of_a_constant_critic_is_zero(explained_variance):
    assert explained_variance(row(7, 7, 7, 7, 0), RETURNS_BT, MASK_BT).item() == pytest.approx(0)


def test_explained_variance_of_a_critic_with_the_wrong_sign_is_minus_three(explained_variance):
    """R - V = 2 R, four times the variance: 1 - 4."""
    assert explained_variance(-RETURNS_BT, RETURNS_BT, MASK_BT).item() == pytest.approx(-3)


def test_explained_variance_by_hand(explained_variance):
    # V = R / 2 leaves R / 2: a quarter of the variance.
    assert explained_variance(RETURNS_BT / 2, RETURNS_BT, MASK_BT).item() == pytest.approx(0.75)


def test_explained_variance_of_equal_returns_is_zero_in_float32(explained_variance):
    for value, columns in itertools.product((0.1, 0.7), (8, 12, 24)):
        returns_BT = torch.full((1, columns), value)
        values_BT = random_logits(1, columns, seed=42).float()
        assert explained_variance(values_BT, returns_BT, own(*[1] * columns)).item() == 0
        assert explained_variance(returns_BT, returns_BT, own(*[1] * columns)).item() == 0


def test_explained_variance_of_nothing_is_zero(explained_variance):
    assert explained_variance(RETURNS_BT, RETURNS_BT, own(0, 0, 0, 0, 0)).item() == 0


# ---- clip_fraction and quadrant_fractions ----------------------------------------------------------------

RATIO_BT = row(1.5, 1.5, 0.5, 0.5, 1.0, 1.5, 9.0, 0.5)
ADVANTAGES_BT = row(1, -1, 1, -1, 1, 0, -1, -1)
SEEN_BT = own(1, 1, 1, 1, 1, 1, 1, 0)
BOUNDS = {"eps_low": 0.2, "eps_high": 0.28}


def test_clip_fraction_by_hand(clip_fraction):
    """Cut: the first (good, above) and the fourth (bad, below), of seven own tokens."""
    assert clip_fraction(RATIO_BT, ADVANTAGES_BT, SEEN_BT, **BOUNDS).item() == pytest.approx(2 / 7)


def test_clip_fraction_with_delta_counts_bad_tokens_that_ran_away(clip_fraction):
    fraction = clip_fraction(RATIO_BT, ADVANTAGES_BT, SEEN_BT, **BOUNDS, delta=4.0)
    assert fraction.item() == pytest.approx(3 / 7)


@pytest.mark.parametrize("delta", [None, 4.0])
def test_clip_fraction_is_the_share_of_gradients_that_are_zero(clip_fraction, delta):
    """Measured on the clip itself: tokens with an advantage whose gradient is 0 all the same."""
    ratio_BT = random_logits(20, 30, seed=43).exp() ** 2
    advantages_BT = random_logits(20, 30, seed=44)
    mask_BT = random_logits(20, 30, seed=45) > 0
    grad_BT = gradient(lambda r: clipped_surrogate(r, advantages_BT, **BOUNDS, delta=delta), ratio_BT)
    expected = (grad_BT[mask_BT] == 0).double().mean().item()
    fraction = clip_fraction(ratio_BT, advantages_BT, mask_BT, **BOUNDS, delta=delta).item()
    assert fraction == pytest.approx(expected)
    assert 0.1 < fraction < 0.9


def test_clip_fraction_of_nothing_is_zero(clip_fraction):
    assert clip_fraction(row(9), row(1), own(0), **BOUNDS).item() == 0


def test_quadrant_fractions_by_hand(quadrant_fractions):
    fractions = quadrant_fractions(RATIO_BT, ADVANTAGES_BT, SEEN_BT, **BOUNDS)
    got = {name: fraction.item() for name, fraction in fractions.items()}
    expected = {"good_above": 1 / 7, "bad_below": 1 / 7, "good_below": 1 / 7, "bad_above": 2 / 7}
    assert got == pytest.approx(expected)


def test_quadrant_fractions_of_the_two_cut_quadrants_are_the_clip_fraction(quadrant_fractions, clip_fraction):
    ratio_BT, advantages_BT = random_logits(2, 20, 30, seed=46)
    ratio_BT = ratio_BT.exp()
    mask_BT = advantages_BT < 1
    fractions = quadrant_fractions(ratio_BT, advantages_BT, mask_BT, **BOUNDS)
    cut = fractions["good_above"] + fractions["bad_below"]
    expected = clip_fraction(ratio_BT, advantages_BT, mask_BT, **BOUNDS)
    assert cut.item() == pytest.approx(expected.item())


# ---- masked_fraction, parameter_change, zero_variance_fraction -------------------------------------------


def test_masked_fraction_by_hand(masked_fraction):
    """Three own tokens, one of them thrown out; what the filter says off the mask does not count."""
    assert masked_fraction(own(1, 0, 1, 0), own(1, 1, 1, 0)).item() == pytest.approx(1 / 3)
    assert masked_fraction(own(0, 0), own(0, 0)).item() == 0


def test_parameter_change_by_hand(parameter_change):
    before = [torch.zeros(2), torch.ones(1, 1)]
    after = [torch.tensor([3.0, 0.0]), torch.tensor([[5.0]])]
    assert parameter_change(before, after).item() == pytest.approx(5)  # 3 and 4
    assert parameter_change(before, before).item() == 0
    assert parameter_change([], []).item() == 0


def test_parameter_change_takes_the_parameters_of_a_model(parameter_change):
    model = torch.nn.Linear(2, 1)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        model.bias += 2
    change = parameter_change(before, model.parameters())
    assert change.item() == pytest.approx(2)
    assert not change.requires_grad


def test_parameter_change_refuses_lists_of_different_length(parameter_change):
    with pytest.raises(ValueError, match="before has 1 tensors, after has 2"):
        parameter_change([torch.zeros(1)], [torch.zeros(1), torch.zeros(1)])


def test_zero_variance_fraction_by_hand(zero_variance_fraction):
    rewards_B = torch.tensor([1.0, 1, 0, 1, 0, 0, 1, 0])  # pairs: equal, not, equal, not
    assert zero_variance_fraction(rewards_B, group_size=2).item() == 0.5
    assert zero_variance_fraction(rewards_B, group_size=4).item() == 0
    assert zero_variance_fraction(rewards_B, group_size=1).item() == 1


def test_zero_variance_fraction_compares_exactly(zero_variance_fraction):
    """Eight times 0.1 in float32 is dead; rewards 1e-6 apart are not."""
    assert zero_variance_fraction(torch.full((8,), 0.1), group_size=8).item() == 1
    assert zero_variance_fraction(torch.tensor([0.5, 0.5 + 1e-6]), group_size=2).item() == 0


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_zero_variance_fraction_is_on_average_all_right_or_all_wrong(zero_variance_fraction, p):
    """Over all 16 outcomes of four answers with pass rate p: p^4 + (1 - p)^4."""
    average = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=4):
        chance = math.prod(p if right else 1 - p for right in outcome)
        average += chance * zero_variance_fraction(torch.tensor(outcome), group_size=4).item()
    assert average == pytest.approx(p**4 + (1 - p) ** 4)
