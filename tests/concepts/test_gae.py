"""Generalized advantage estimation: its two ends, its two ways to stop, and observations in between."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.concepts.tools import close, own, random_logits, row

ENDED = torch.tensor([True])
CUT = torch.tensor([False])
UNIT = st.floats(0, 1)

REWARDS_BT = random_logits(1, 5, seed=11)
VALUES_BT = random_logits(1, 5, seed=12)
ALL_BT = own(1, 1, 1, 1, 1)
BOOTSTRAP_B = torch.tensor([0.7], dtype=torch.float64)


def _return_to_go(rewards_BT, gamma, last=0.0):
    """By its definition: sum over k of gamma^k * reward, and gamma^n * the value at the end."""
    steps = rewards_BT.shape[1]
    returns = [
        sum(gamma ** (k - t) * rewards_BT[0, k] for k in range(t, steps)) + gamma ** (steps - t) * last
        for t in range(steps)
    ]
    return torch.stack(returns).unsqueeze(0)


def test_gae_by_hand(gae):
    """Three tokens, reward 1 at the end, critic says 0.5 throughout: deltas 0, 0 and 0.5, each step worth 0.95."""
    advantages_BT = gae(row(0, 0, 1), row(0.5, 0.5, 0.5), own(1, 1, 1), ENDED)
    assert close(advantages_BT, row(0.5 * 0.95**2, 0.5 * 0.95, 0.5))


def test_gae_by_hand_with_gamma(gae):
    # deltas: 1 + .5 * 4 - 2 = 1, and 3 - 4 = -1. With gamma * lam = .25: first 1 - .25.
    assert close(gae(row(1, 3), row(2, 4), own(1, 1), ENDED, gamma=0.5, lam=0.5), row(0.75, -1.0))


def test_gae_with_lambda_one_is_return_minus_value(gae):
    advantages_BT = gae(REWARDS_BT, VALUES_BT, ALL_BT, ENDED, gamma=0.9, lam=1.0)
    assert close(advantages_BT, _return_to_go(REWARDS_BT, 0.9) - VALUES_BT)


def test_gae_with_lambda_one_of_a_cut_off_row_counts_the_value_at_the_cut(gae):
    advantages_BT = gae(REWARDS_BT, VALUES_BT, ALL_BT, CUT, BOOTSTRAP_B, gamma=0.9, lam=1.0)
    assert close(advantages_BT, _return_to_go(REWARDS_BT, 0.9, last=0.7) - VALUES_BT)


def test_gae_with_lambda_zero_is_the_one_step_surprise(gae):
    next_values_BT = torch.cat([VALUES_BT[:, 1:], torch.zeros(1, 1)], dim=1)
    advantages_BT = gae(REWARDS_BT, VALUES_BT, ALL_BT, ENDED, gamma=0.9, lam=0.0)
    assert close(advantages_BT, REWARDS_BT + 0.9 * next_values_BT - VALUES_BT)


@given(gamma=UNIT, lam=UNIT)
def test_gae_is_the_weighted_sum_of_all_later_surprises(gae, gamma, lam):
    """The paper's sum over l of (gamma * lam)^l * delta[t + l], written out."""
    next_values_BT = torch.cat([VALUES_BT[:, 1:], torch.zeros(1, 1)], dim=1)
    delta_BT = REWARDS_BT + gamma * next_values_BT - VALUES_BT
    expected_BT = _return_to_go(delta_BT, gamma * lam)
    assert close(gae(REWARDS_BT, VALUES_BT, ALL_BT, ENDED, gamma=gamma, lam=lam), expected_BT)


def test_gae_reads_the_bootstrap_of_cut_off_rows_only(gae):
    """The same row twice, once ended and once cut off: they differ by the value of the state at the cut."""
    two = torch.tensor([True, False])
    advantages_BT = gae(
        REWARDS_BT.expand(2, 5),
        VALUES_BT.expand(2, 5),
        ALL_BT.expand(2, 5),
        two,
        BOOTSTRAP_B.expand(2),
        lam=1.0,
    )
    assert close(advantages_BT[1] - advantages_BT[0], torch.full((5,), 0.7, dtype=torch.float64))


def test_gae_without_bootstrap_takes_the_value_at_a_cut_for_zero(gae):
    advantages_BT = gae(REWARDS_BT, VALUES_BT, ALL_BT, CUT)
    assert close(advantages_BT, gae(REWARDS_BT, VALUES_BT, ALL_BT, CUT, torch.zeros(1)))


@pytest.mark.parametrize("finished_B", [ENDED, CUT])
def test_gae_steps_over_observations_as_if_they_were_deleted(gae, finished_B):
    rewards_BT, values_BT = random_logits(2, 1, 9, seed=13)
    mask_BT = own(
        0, 1, 1, 0, 0, 1, 0, 1, 0
    )  # prompt rest, two tokens, a reply, one token, a reply, one token, padding
    keywords = {"gamma": 0.9, "lam": 0.8}
    advantages_BT = gae(rewards_BT, values_BT, mask_BT, finished_B, BOOTSTRAP_B, **keywords)
    dense_BT = gae(
        rewards_BT[mask_BT].unsqueeze(0),
        values_BT[mask_BT].unsqueeze(0),
        own(1, 1, 1, 1),
        finished_B,
        BOOTSTRAP_B,
        **keywords,
    )
    assert close(advantages_BT[mask_BT], dense_BT[0])
    assert (advantages_BT[~mask_BT] == 0).all()


def test_gae_across_an_observation_by_hand(gae):
    """Value 2 waits behind the reply: delta of the token before it is 0 + 2 - 1, whatever the reply's own value."""
    advantages_BT = gae(row(0, 50, 3), row(1, 90, 2), own(1, 0, 1), ENDED, lam=0.5)
    assert close(advantages_BT, row(1.0 + 0.5 * 1.0, 0.0, 1.0))


def test_gae_of_a_row_without_own_tokens_is_zero(gae):
    assert (gae(REWARDS_BT, VALUES_BT, own(0, 0, 0, 0, 0), CUT, BOOTSTRAP_B) == 0).all()


def test_gae_treats_each_row_for_itself(gae):
    rewards_BT, values_BT = random_logits(2, 3, 6, seed=14)
    mask_BT = torch.tensor([[1, 1, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()
    finished_B = torch.tensor([True, False, False])
    bootstrap_B = torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64)
    together_BT = gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B)
    for b in range(3):
        one = slice(b, b + 1)
        alone_BT = gae(rewards_BT[one], values_BT[one], mask_BT[one], finished_B[one], bootstrap_B[one])
        assert close(together_BT[one], alone_BT)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_gae_with_an_exact_critic_is_on_average_zero(gae, lam):
    """Two tokens out of two, a reward each, V exact: averaged over what the policy does, no move is a surprise."""
    p_V = torch.tensor([0.3, 0.7], dtype=torch.float64)
    first_V = torch.tensor([2.0, -1.0], dtype=torch.float64)
    second_VV = torch.tensor([[0.0, 3.0], [1.0, -2.0]], dtype=torch.float64)
    value_after_V = second_VV @ p_V
    value = p_V @ (first_V + value_after_V)

    average_BT = torch.zeros(1, 2, dtype=torch.float64)
    for a, b in itertools.product(range(2), repeat=2):
        rewards_BT = torch.stack([first_V[a], second_VV[a, b]]).unsqueeze(0)
        values_BT = torch.stack([value, value_after_V[a]]).unsqueeze(0)
        average_BT += p_V[a] * p_V[b] * gae(rewards_BT, values_BT, own(1, 1), ENDED, lam=lam)
    assert close(average_BT, torch.zeros(1, 2))


def test_gae_with_lambda_one_does_not_believe_the_critic_about_what_comes_later(gae):
    """The critic errs by +9 and -9 after the first token. With lam = 1 the first advantage is the return, 2 and 0;
    with lam = 0 it is 11 and -10."""
    rewards_BT = torch.tensor([[2.0, 0.0], [-1.0, 1.0]], dtype=torch.float64)
    values_BT = torch.tensor([[0.0, 9.0], [0.0, -9.0]], dtype=torch.float64)
    both_BT = torch.ones(2, 2, dtype=torch.bool)
    right_BT = gae(rewards_BT, values_BT, both_BT, ENDED.expand(2), lam=1.0)
    wrong_BT = gae(rewards_BT, values_BT, both_BT, ENDED.expand(2), lam=0.0)
    assert right_BT[:, 0].tolist() == [2.0, 0.0]
    assert wrong_BT[:, 0].tolist() == [11.0, -10.0]


def test_gae_passes_no_gradient(gae):
    values_BT = VALUES_BT.clone().requires_grad_()
    bootstrap_B = BOOTSTRAP_B.clone().requires_grad_()
    assert not gae(REWARDS_BT, values_BT, ALL_BT, CUT, bootstrap_B).requires_grad


def test_gae_refuses_finished_flags_that_are_not_bool(gae):
    with pytest.raises(TypeError, match=r"finished_B\.bool\(\)"):
        gae(REWARDS_BT, VALUES_BT, ALL_BT, torch.ones(1))


def test_gae_refuses_a_bootstrap_of_another_shape(gae):
    with pytest.raises(ValueError, match="bootstrap_B must have 1 axes"):
        gae(REWARDS_BT, VALUES_BT, ALL_BT, CUT, torch.zeros(1, 5))


@pytest.mark.parametrize("keywords", [{"gamma": 1.01}, {"lam": -0.1}])
def test_gae_refuses_gamma_and_lambda_outside_their_range(gae, keywords):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        gae(REWARDS_BT, VALUES_BT, ALL_BT, ENDED, **keywords)
