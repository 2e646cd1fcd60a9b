"""Advantages from rewards alone: five baselines, and what each of them does to the gradient."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.concepts.tools import close, gradient, random_logits

EASY_AND_HARD = torch.tensor([1.0, 1, 1, 0, 1, 0, 0, 0], dtype=torch.float64)  # 3 of 4 right, then 1 of 4
REWARDS = st.lists(st.floats(-5, 5), min_size=8, max_size=8).map(
    lambda r: torch.tensor(r, dtype=torch.float64)
)
# In float32 the mean of eight times 0.1 is not 0.1. Which of these hit a rounding error depends on the machine's
# order of summation; some always do.
EQUAL = [(torch.full((24,), value), group_size) for value in (0.1, 0.7) for group_size in (8, 12, 24)]


def _group_sums(advantages_B):
    return advantages_B.reshape(2, 4).sum(dim=1)


def _binary(right, group_size=8):
    return torch.tensor([1.0] * right + [0.0] * (group_size - right), dtype=torch.float64)


# ---- group_advantage -------------------------------------------------------------------------------------


def test_group_advantage_by_hand(group_advantage):
    # Mean 3/4, squared distances 1/16 * 3 + 9/16 = 12/16, divided by 3: std = 1/2 in both groups.
    advantages_B = group_advantage(EASY_AND_HARD, group_size=4, eps=0.0)
    expected = [0.5, 0.5, 0.5, -1.5, 1.5, -0.5, -0.5, -0.5]
    assert close(advantages_B, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("right", "good", "bad"), [(1, 2.474, -0.353), (4, 0.935, -0.935), (7, 0.353, -2.474)]
)
def test_group_advantage_pays_more_for_the_rare(group_advantage, right, good, bad):
    advantages_B = group_advantage(_binary(right), group_size=8)
    assert advantages_B[0].item() == pytest.approx(good, abs=1e-3)
    assert advantages_B[-1].item() == pytest.approx(bad, abs=1e-3)


def test_group_advantage_of_a_pair_is_plus_minus_root_half(group_advantage):
    advantages_B = group_advantage(torch.tensor([3.0, 1.0], dtype=torch.float64), group_size=2, eps=0.0)
    assert advantages_B.tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])


def test_group_advantage_adds_eps_to_the_standard_deviation(group_advantage):
    rewards_B = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)  # std 1
    assert group_advantage(rewards_B, group_size=3, eps=1.0).tolist() == pytest.approx([-0.5, 0, 0.5])


@given(rewards_B=REWARDS)
def test_group_advantage_adds_up_to_zero_in_each_group(group_advantage, rewards_B):
    assert close(_group_sums(group_advantage(rewards_B, group_size=4)), torch.zeros(2), 1e-7)


@given(rewards_B=REWARDS, shift=st.floats(-10, 10))
def test_group_advantage_forgets_what_the_prompt_is_worth(group_advantage, rewards_B, shift):
    """A constant added to one prompt's rewards changes nothing, for this prompt or for the other."""
    shifted_B = rewards_B + torch.tensor([shift] * 4 + [0.0] * 4)
    expected_B = group_advantage(rewards_B, group_size=4, eps=0.1)
    assert close(group_advantage(shifted_B, group_size=4, eps=0.1), expected_B, 1e-6)


def test_group_advantage_of_equal_rewards_is_exactly_zero(group_advantage):
    for rewards_B, group_size in EQUAL:
        assert (group_advantage(rewards_B, group_size=group_size) == 0).all()
        assert (group_advantage(rewards_B, group_size=group_size, eps=0.0) == 0).all()


def test_group_advantage_passes_no_gradient(group_advantage):
    assert not group_advantage(EASY_AND_HARD.clone().requires_grad_(), group_size=4).requires_grad


# ---- group_mean_advantage and leave_one_out_advantage ----------------------------------------------------


def test_group_mean_advantage_by_hand(group_mean_advantage):
    """Eight answers, three right: +0.625 for the right ones, -0.375 for the wrong ones."""
    assert group_mean_advantage(_binary(3), group_size=8).tolist() == [0.625] * 3 + [-0.375] * 5


def test_group_mean_advantage_takes_each_prompt_for_itself(group_mean_advantage):
    advantages_B = group_mean_advantage(EASY_AND_HARD, group_size=4)
    assert advantages_B.tolist() == [0.25, 0.25, 0.25, -0.75, 0.75, -0.25, -0.25, -0.25]


def test_group_mean_advantage_of_equal_rewards_is_exactly_zero(group_mean_advantage):
    for rewards_B, group_size in EQUAL:
        assert (group_mean_advantage(rewards_B, group_size=group_size) == 0).all()


def test_group_mean_advantage_passes_no_gradient(group_mean_advantage):
    assert not group_mean_advantage(EASY_AND_HARD.clone().requires_grad_(), group_size=4).requires_grad


def test_leave_one_out_advantage_by_hand(leave_one_out_advantage):
    """Eight answers, three right. For a right one 2 of the other 7 are right, for a wrong one 3 of 7."""
    advantages_B = leave_one_out_advantage(_binary(3), group_size=8)
    assert advantages_B.tolist() == pytest.approx([5 / 7] * 3 + [-3 / 7] * 5)


def test_leave_one_out_advantage_takes_each_prompt_for_itself(leave_one_out_advantage):
    advantages_B = leave_one_out_advantage(EASY_AND_HARD, group_size=4)
    assert advantages_B.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1, 1, -1 / 3, -1 / 3, -1 / 3])


@given(rewards_B=REWARDS)
def test_leave_one_out_advantage_is_the_group_mean_one_times_a_constant(
    leave_one_out_advantage, group_mean_advantage, rewards_B
):
    expected_B = group_mean_advantage(rewards_B, group_size=4) * 4 / 3
    assert close(leave_one_out_advantage(rewards_B, group_size=4), expected_B, 1e-9)


def test_leave_one_out_advantage_of_equal_rewards_is_exactly_zero(leave_one_out_advantage):
    for rewards_B, group_size in EQUAL:
        assert (leave_one_out_advantage(rewards_B, group_size=group_size) == 0).all()


def test_leave_one_out_advantage_passes_no_gradient(leave_one_out_advantage):
    assert not leave_one_out_advantage(EASY_AND_HARD.clone().requires_grad_(), group_size=4).requires_grad


def _average_gradient(advantage):
    """E of mean_g A_g * gradient log p(v_g), over all 27 ways to draw three answers out of three tokens."""
    logits_V = random_logits(3, seed=9)
    reward_V = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    score_VV = torch.stack([gradient(lambda z, v=v: z.log_softmax(-1)[v], logits_V) for v in range(3)])
    p_V = logits_V.softmax(-1)
    average = torch.zeros(3, dtype=torch.float64)
    for drawn in itertools.product(range(3), repeat=3):
        drawn_G = torch.tensor(drawn)
        advantages_G = advantage(reward_V[drawn_G])
        average += p_V[drawn_G].prod() * (advantages_G.unsqueeze(1) * score_VV[drawn_G]).mean(dim=0)
    return average, gradient(lambda z: z.softmax(-1) @ reward_V, logits_V)


def test_leave_one_out_advantage_gives_the_true_gradient_on_average(leave_one_out_advantage):
    average_V, true_V = _average_gradient(lambda r: leave_one_out_advantage(r, group_size=3))
    assert close(average_V, true_V)


def test_group_mean_advantage_gives_the_true_gradient_times_two_thirds(group_mean_advantage):
    """The baseline contains the answer it judges: (G - 1) / G of the gradient, here with G = 3."""
    average_V, true_V = _average_gradient(lambda r: group_mean_advantage(r, group_size=3))
    assert close(average_V, true_V * 2 / 3)


# ---- batch_std_advantage and batch_advantage -------------------------------------------------------------

TWO_SCALES = torch.tensor([0.0, 2.0, 10.0, 10.0], dtype=torch.float64)  # all four: std sqrt(83 / 3)


def test_batch_std_advantage_by_hand(batch_std_advantage):
    std = math.sqrt(83 / 3)  # mean 5.5; 30.25 + 12.25 + 20.25 + 20.25 = 83
    advantages_B = batch_std_advantage(TWO_SCALES, group_size=2, eps=0.0)
    assert advantages_B.tolist() == pytest.approx([-1 / std, 1 / std, 0, 0])
    advantages_B = batch_std_advantage(TWO_SCALES, group_size=2, eps=1.0)
    assert advantages_B.tolist() == pytest.approx([-1 / (std + 1), 1 / (std + 1), 0, 0])


@given(rewards_B=REWARDS)
def test_batch_std_advantage_adds_up_to_zero_in_each_group(batch_std_advantage, rewards_B):
    assert close(_group_sums(batch_std_advantage(rewards_B, group_size=4)), torch.zeros(2), 1e-7)


def test_batch_std_advantage_of_equal_rewards_is_exactly_zero(batch_std_advantage):
    for rewards_B, group_size in EQUAL:
        assert (batch_std_advantage(rewards_B, group_size=group_size) == 0).all()
        assert (batch_std_advantage(rewards_B, group_size=group_size, eps=0.0) == 0).all()


def test_batch_std_advantage_passes_no_gradient(batch_std_advantage):
    assert not batch_std_advantage(EASY_AND_HARD.clone().requires_grad_(), group_size=4).requires_grad


def test_batch_advantage_by_hand(batch_advantage):
    std = math.sqrt(83 / 3)
    expected = [-5.5 / std, -3.5 / std, 4.5 / std, 4.5 / std]
    assert batch_advantage(TWO_SCALES, eps=0.0).tolist() == pytest.approx(expected)
    assert batch_advantage(TWO_SCALES, eps=1.0)[0].item() == pytest.approx(-5.5 / (std + 1))


def test_batch_advantage_lets_an_easy_prompt_be_praised_for_being_easy(batch_advantage, group_mean_advantage):
    """Both answers to the second prompt got 10: no reason to prefer one. Only the group baseline sees that."""
    assert (batch_advantage(TWO_SCALES)[2:] > 0.8).all()
    assert (group_mean_advantage(TWO_SCALES, group_size=2)[2:] == 0).all()


def test_batch_advantage_of_equal_rewards_is_exactly_zero(batch_advantage):
    for rewards_B, _ in EQUAL:
        assert (batch_advantage(rewards_B) == 0).all()
        assert (batch_advantage(rewards_B, eps=0.0) == 0).all()


def test_batch_advantage_passes_no_gradient(batch_advantage):
    assert not batch_advantage(EASY_AND_HARD.clone().requires_grad_()).requires_grad


def test_batch_advantage_refuses_a_single_row(batch_advantage):
    with pytest.raises(ValueError, match="no one to compare with"):
        batch_advantage(torch.tensor([1.0]))


# ---- bad input, the same for all -------------------------------------------------------------------------

GROUPED = ["group_advantage", "group_mean_advantage", "leave_one_out_advantage", "batch_std_advantage"]


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_of_one_is_refused_with_a_way_out(name, request):
    with pytest.raises(
        ValueError, match=r"group_size must be at least 2 here, got 1.*batch_advantage or a critic"
    ):
        request.getfixturevalue(name)(EASY_AND_HARD, group_size=1)


@pytest.mark.parametrize("name", GROUPED)
def test_rows_that_do_not_fill_the_groups_are_refused(name, request):
    with pytest.raises(ValueError, match="8 rows, which do not split into groups of group_size=3"):
        request.getfixturevalue(name)(EASY_AND_HARD, group_size=3)


@pytest.mark.parametrize("name", [*GROUPED, "batch_advantage"])
@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused_by_its_row(name, reward, request):
    rewards_B = EASY_AND_HARD.clone()
    rewards_B[5] = reward
    keywords = {} if name == "batch_advantage" else {"group_size": 4}
    with pytest.raises(ValueError, match=rf"rewards_B\[5\] is {reward}"):
        request.getfixturevalue(name)(rewards_B, **keywords)


@pytest.mark.parametrize("name", [*GROUPED, "batch_advantage"])
def test_whole_number_rewards_are_refused(name, request):
    keywords = {} if name == "batch_advantage" else {"group_size": 2}
    with pytest.raises(TypeError, match=r"rewards_B\.float\(\)"):
        request.getfixturevalue(name)(torch.tensor([0, 1]), **keywords)
