"""Ratios against three policies, over a token or over an answer."""

import itertools
import math

import pytest
import torch

from tests.concepts.tools import close, gradient, own, random_logits, row

# Token ratios 1.1, 0.9 and 1.5, and a fourth column that is not the policy's own.
LOGP_BT = row(-1.0, -2.0, -0.5, -7.0)
OTHER_BT = LOGP_BT - row(1.1, 0.9, 1.5, 1.0).log()
MASK_BT = own(1, 1, 1, 0)
EMPTY_BT = own(0, 0, 0, 0)


def _token_ratio_by_hand(ratio):
    assert close(ratio(LOGP_BT, OTHER_BT, MASK_BT), row(1.1, 0.9, 1.5, 1.0))


def _token_gradient_is_the_ratio(ratio):
    grad_BT = gradient(lambda logp: ratio(logp, OTHER_BT, MASK_BT), LOGP_BT)
    assert close(grad_BT, row(1.1, 0.9, 1.5, 0.0))


def _ratio_is_one_where_policies_agree(ratio):
    """... and its gradient is that of logp: the first step of an update is plain REINFORCE."""
    assert (ratio(LOGP_BT, LOGP_BT.clone(), MASK_BT) == 1).all()
    assert (ratio(LOGP_BT, OTHER_BT, EMPTY_BT) == 1).all()


def _denominator_is_a_constant(ratio):
    other_BT = OTHER_BT.clone().requires_grad_()
    ratio(LOGP_BT.clone().requires_grad_(), other_BT, MASK_BT).sum().backward()
    assert other_BT.grad is None


def _samples_of_one_policy_speak_for_another(ratio):
    """E over the sampler of ratio * f = E over the policy of f, for one token out of three."""
    logp_V, logp_sampler_V, f_V = random_logits(3, 3).log_softmax(-1)
    ratio_V = ratio(logp_V.unsqueeze(1), logp_sampler_V.unsqueeze(1), own(1).expand(3, 1)).squeeze(1)
    assert close((logp_sampler_V.exp() * ratio_V * f_V).sum(), (logp_V.exp() * f_V).sum())


def _garbage_gives_no_nan_gradient(ratio):
    """exp of something huge is inf, and 0 * inf is nan: the mask must come before the exp."""
    logp_BT = torch.where(MASK_BT, LOGP_BT, 1e4)
    grad_BT = gradient(lambda logp: ratio(logp, OTHER_BT, MASK_BT), logp_BT)
    assert close(grad_BT, gradient(lambda logp: ratio(logp, OTHER_BT, MASK_BT), LOGP_BT))


def test_importance_ratio_by_hand(importance_ratio):
    _token_ratio_by_hand(importance_ratio)


def test_importance_ratio_gradient_is_the_ratio(importance_ratio):
    _token_gradient_is_the_ratio(importance_ratio)


def test_importance_ratio_is_one_where_policies_agree(importance_ratio):
    _ratio_is_one_where_policies_agree(importance_ratio)


def test_importance_ratio_denominator_is_a_constant(importance_ratio):
    _denominator_is_a_constant(importance_ratio)


def test_importance_ratio_lets_samples_speak_for_another_policy(importance_ratio):
    _samples_of_one_policy_speak_for_another(importance_ratio)


def test_importance_ratio_gradient_ignores_garbage(importance_ratio):
    _garbage_gives_no_nan_gradient(importance_ratio)


def test_rollout_ratio_by_hand(rollout_ratio):
    _token_ratio_by_hand(rollout_ratio)


def test_rollout_ratio_gradient_is_the_ratio(rollout_ratio):
    _token_gradient_is_the_ratio(rollout_ratio)


def test_rollout_ratio_is_one_where_policies_agree(rollout_ratio):
    _ratio_is_one_where_policies_agree(rollout_ratio)


def test_rollout_ratio_denominator_is_a_constant(rollout_ratio):
    _denominator_is_a_constant(rollout_ratio)


def test_rollout_ratio_lets_samples_speak_for_another_policy(rollout_ratio):
    _samples_of_one_policy_speak_for_another(rollout_ratio)


def test_rollout_ratio_gradient_ignores_garbage(rollout_ratio):
    _garbage_gives_no_nan_gradient(rollout_ratio)


def test_reference_ratio_by_hand(reference_ratio):
    _token_ratio_by_hand(reference_ratio)


def test_reference_ratio_gradient_is_the_ratio(reference_ratio):
    _token_gradient_is_the_ratio(reference_ratio)


def test_reference_ratio_is_one_where_policies_agree(reference_ratio):
    _ratio_is_one_where_policies_agree(reference_ratio)


def test_reference_ratio_denominator_is_a_constant(reference_ratio):
    _denominator_is_a_constant(reference_ratio)


def test_reference_ratio_gradient_ignores_garbage(reference_ratio):
    _garbage_gives_no_nan_gradient(reference_ratio)


def _geometric_mean_by_hand(ratio):
    mean = 1.485 ** (1 / 3)  # 1.1 * 0.9 * 1.5 = 1.485
    assert close(ratio(LOGP_BT, OTHER_BT, MASK_BT), row(mean, mean, mean, 1.0))


def _every_token_passes_a_share_of_the_gradient(ratio):
    """One column of the ratio alone reaches all three own tokens, each with ratio / 3."""
    share = 1.485 ** (1 / 3) / 3
    grad_BT = gradient(lambda logp: ratio(logp, OTHER_BT, MASK_BT)[:, 1], LOGP_BT)
    assert close(grad_BT, row(share, share, share, 0.0))


def _length_does_not_matter(ratio):
    """The same answer written twice in a row has the same ratio."""
    twice_BT = ratio(LOGP_BT.repeat(1, 2), OTHER_BT.repeat(1, 2), MASK_BT.repeat(1, 2))
    assert close(twice_BT[:, :4], ratio(LOGP_BT, OTHER_BT, MASK_BT))


def _rows_do_not_mix(ratio):
    logp_BT = torch.cat([LOGP_BT, LOGP_BT])
    other_BT = torch.cat([OTHER_BT, LOGP_BT])
    ratio_BT = ratio(logp_BT, other_BT, torch.cat([MASK_BT, MASK_BT]))
    assert close(ratio_BT[:1], ratio(LOGP_BT, OTHER_BT, MASK_BT))
    assert (ratio_BT[1] == 1).all()


def test_sequence_ratio_by_hand(sequence_ratio):
    _geometric_mean_by_hand(sequence_ratio)


def test_sequence_ratio_passes_gradient_to_every_token(sequence_ratio):
    _every_token_passes_a_share_of_the_gradient(sequence_ratio)


def test_sequence_ratio_does_not_depend_on_length(sequence_ratio):
    _length_does_not_matter(sequence_ratio)


def test_sequence_ratio_keeps_rows_apart(sequence_ratio):
    _rows_do_not_mix(sequence_ratio)


def test_sequence_ratio_is_one_where_policies_agree(sequence_ratio):
    _ratio_is_one_where_policies_agree(sequence_ratio)


def test_sequence_ratio_denominator_is_a_constant(sequence_ratio):
    _denominator_is_a_constant(sequence_ratio)


def test_sequence_rollout_ratio_by_hand(sequence_rollout_ratio):
    _geometric_mean_by_hand(sequence_rollout_ratio)


def test_sequence_rollout_ratio_passes_gradient_to_every_token(sequence_rollout_ratio):
    _every_token_passes_a_share_of_the_gradient(sequence_rollout_ratio)


def test_sequence_rollout_ratio_does_not_depend_on_length(sequence_rollout_ratio):
    _length_does_not_matter(sequence_rollout_ratio)


def test_sequence_rollout_ratio_keeps_rows_apart(sequence_rollout_ratio):
    _rows_do_not_mix(sequence_rollout_ratio)


def test_sequence_rollout_ratio_is_one_where_policies_agree(sequence_rollout_ratio):
    _ratio_is_one_where_policies_agree(sequence_rollout_ratio)


def test_sequence_rollout_ratio_denominator_is_a_constant(sequence_rollout_ratio):
    _denominator_is_a_constant(sequence_rollout_ratio)


def test_product_ratio_by_hand(product_ratio):
    assert close(product_ratio(LOGP_BT, OTHER_BT, MASK_BT), row(1.485, 1.485, 1.485, 1.0))


def test_product_ratio_passes_gradient_to_every_token(product_ratio):
    grad_BT = gradient(lambda logp: product_ratio(logp, OTHER_BT, MASK_BT)[:, 1], LOGP_BT)
    assert close(grad_BT, row(1.485, 1.485, 1.485, 0.0))


def test_product_ratio_is_one_where_policies_agree(product_ratio):
    _ratio_is_one_where_policies_agree(product_ratio)


def test_product_ratio_denominator_is_a_constant(product_ratio):
    _denominator_is_a_constant(product_ratio)


def test_product_ratio_keeps_rows_apart(product_ratio):
    _rows_do_not_mix(product_ratio)


def test_product_ratio_lets_answers_of_one_policy_speak_for_another(product_ratio):
    """All nine answers of two tokens out of three: E over the sampler of product * f = E over the policy of f."""
    z = random_logits(2, 4, 3, seed=7).log_softmax(-1)  # policy and sampler; row 0, then row 1 + first token
    f_VV = random_logits(3, 3, seed=8)
    wanted, got = 0.0, 0.0
    for a, b in itertools.product(range(3), repeat=2):
        logp_BT, sampler_BT = (torch.stack([p[0, a], p[1 + a, b]]).unsqueeze(0) for p in z)
        wanted += logp_BT.sum().exp() * f_VV[a, b]
        got += sampler_BT.sum().exp() * product_ratio(logp_BT, sampler_BT, own(1, 1))[0, 0] * f_VV[a, b]
    assert got.item() == pytest.approx(wanted.item(), abs=1e-12)


def test_product_ratio_grows_with_length_where_the_geometric_mean_does_not(product_ratio, sequence_ratio):
    """0.01 nat a token, 1000 tokens: e^10 against e^0.01."""
    logp_BT = torch.full((1, 1000), -1.0, dtype=torch.float64)
    mask_BT = torch.ones(1, 1000, dtype=torch.bool)
    assert product_ratio(logp_BT, logp_BT - 0.01, mask_BT)[0, 0].item() == pytest.approx(math.exp(10))
    assert sequence_ratio(logp_BT, logp_BT - 0.01, mask_BT)[0, 0].item() == pytest.approx(math.exp(0.01))
