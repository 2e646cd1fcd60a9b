"""REINFORCE is the gradient of the expected reward: shown by listing every possible answer."""

import itertools

import pytest
import torch

from tests.concepts.tools import close, gradient, own, random_logits, row

LOGITS_V = random_logits(3)
REWARD_V = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)


def _expected_gradient(loss_of_token, p_V):
    """Sum of p(v) * gradient of the loss of token v: what sampling gives on average."""
    return sum(p_V[v] * gradient(lambda z, v=v: loss_of_token(z, v), LOGITS_V) for v in range(3))


@pytest.mark.parametrize("baseline", [0.0, 5.0])
def test_policy_gradient_is_on_average_the_gradient_of_expected_reward(policy_gradient, baseline):
    """Whatever constant is subtracted: a baseline changes the noise, not the mean."""

    def loss(logits_V, v):
        logp_BT = logits_V.log_softmax(-1)[v].reshape(1, 1)
        return policy_gradient(logp_BT, (REWARD_V[v] - baseline).reshape(1, 1), own(1))

    expected_V = gradient(lambda z: -(z.softmax(-1) * REWARD_V).sum(), LOGITS_V)
    assert close(_expected_gradient(loss, LOGITS_V.softmax(-1)), expected_V)


def test_policy_gradient_by_hand(policy_gradient):
    loss_BT = policy_gradient(row(-1.0, -2.0, -3.0), row(0.5, -1.0, 4.0), own(1, 1, 0))
    assert loss_BT.tolist() == [[0.5, -2.0, 0]]


def test_policy_gradient_is_minus_the_advantage(policy_gradient):
    advantages_BT = row(0.5, -1.0, 4.0)
    grad_BT = gradient(lambda logp: policy_gradient(logp, advantages_BT, own(1, 1, 0)), row(-1.0, -2.0, -3.0))
    assert grad_BT.tolist() == [[-0.5, 1.0, 0]]


def test_policy_gradient_treats_the_advantage_as_a_constant(policy_gradient):
    advantages_BT = row(0.5, -1.0).requires_grad_()
    loss_BT = policy_gradient(row(-1.0, -2.0).requires_grad_(), advantages_BT, own(1, 1))
    loss_BT.sum().backward()
    assert advantages_BT.grad is None


def test_reward_to_go_by_hand(reward_to_go):
    #                            own      own  tool's reply  own
    returns_BT = reward_to_go(row(1.0, 0.0, 0.0, 4.0), own(1, 1, 0, 1), gamma=0.5)
    assert returns_BT.tolist() == [[1 + 0.25 * 4, 0.5 * 4, 0, 4]]


def test_reward_to_go_with_one_final_reward_is_that_reward_everywhere(reward_to_go):
    assert reward_to_go(row(0, 0, 1, 0), own(1, 1, 1, 0)).tolist() == [[1, 1, 1, 0]]


def test_reward_to_go_with_gamma_zero_is_the_reward_itself(reward_to_go):
    assert reward_to_go(row(3, 2, 1), own(1, 1, 1), gamma=0.0).tolist() == [[3, 2, 1]]


def test_reward_to_go_steps_over_observations_as_if_they_were_deleted(reward_to_go):
    rewards_BT = random_logits(1, 8, seed=3)
    mask_BT = own(0, 1, 0, 0, 1, 1, 0, 0)
    returns_BT = reward_to_go(rewards_BT, mask_BT, gamma=0.9)
    dense_BT = reward_to_go(rewards_BT[mask_BT].unsqueeze(0), own(1, 1, 1), gamma=0.9)
    assert close(returns_BT[mask_BT], dense_BT[0])
    assert (returns_BT[~mask_BT] == 0).all()


def test_reward_to_go_has_the_full_return_as_its_first_entry(reward_to_go):
    rewards_BT = random_logits(4, 6, seed=4)
    returns_BT = reward_to_go(rewards_BT, torch.ones(4, 6, dtype=torch.bool))
    assert close(returns_BT[:, 0], rewards_BT.sum(dim=1))


def test_reward_to_go_passes_no_gradient(reward_to_go):
    assert not reward_to_go(row(1, 2).requires_grad_(), own(1, 1)).requires_grad


def test_policy_gradient_of_reward_to_go_is_right_on_a_two_step_tree(policy_gradient, reward_to_go):
    """Two tokens out of two, each with a reward of its own: all four answers, weighted by their probability."""
    first_reward_V = torch.tensor([2.0, -1.0], dtype=torch.float64)
    second_reward_VV = torch.tensor([[0.0, 3.0], [1.0, -2.0]], dtype=torch.float64)
    logits = random_logits(3, 2, seed=5)  # row 0: the first token; row 1 + a: the second, after first token a

    def probability(z, a, b):
        return z[0].softmax(-1)[a] * z[1 + a].softmax(-1)[b]

    def expected_reward(z):
        pairs = itertools.product(range(2), repeat=2)
        return sum(probability(z, a, b) * (first_reward_V[a] + second_reward_VV[a, b]) for a, b in pairs)

    def loss(z, a, b):
        logp_BT = torch.stack([z[0].log_softmax(-1)[a], z[1 + a].log_softmax(-1)[b]]).unsqueeze(0)
        rewards_BT = torch.stack([first_reward_V[a], second_reward_VV[a, b]]).unsqueeze(0)
        returns_BT = reward_to_go(rewards_BT, own(1, 1))
        return policy_gradient(logp_BT, returns_BT, own(1, 1))

    average = sum(
        probability(logits, a, b) * gradient(lambda z, a=a, b=b: loss(z, a, b), logits)
        for a, b in itertools.product(range(2), repeat=2)
    )
    assert close(average, -gradient(expected_reward, logits))


@pytest.mark.parametrize("gamma", [-0.1, 1.1])
def test_reward_to_go_refuses_gamma_outside_its_range(reward_to_go, gamma):
    with pytest.raises(ValueError, match=r"gamma must lie in \[0, 1\]"):
        reward_to_go(row(1, 2), own(1, 1), gamma=gamma)
