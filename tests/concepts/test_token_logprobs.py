"""The log-probability of each token that was written: one shift, one temperature."""

import itertools
import math

import pytest
import torch

from tests.concepts.tools import close, gradient, random_logits

# What a three-token model believes after each position, as probabilities.
P_SV = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]
LOGITS_BSV = torch.tensor([P_SV], dtype=torch.float64).log()
IDS_BS = torch.tensor([[2, 0, 1]])


def test_token_logprobs_by_hand(token_logprobs):
    # After token 2 the model gave token 0 probability 0.5; after token 0 it gave token 1 probability 0.6.
    logp_BS = token_logprobs(LOGITS_BSV, IDS_BS)
    assert close(logp_BS, torch.tensor([[math.log(0.5), math.log(0.6)]], dtype=torch.float64))


def test_token_logprobs_of_all_possible_answers_add_up_to_one(token_logprobs):
    """Three tokens after a fixed first one, with logits that depend on everything before: 27 answers."""
    table = random_logits(3, 3, 3, 3, seed=1)  # logits after (token 1, token 2); -1 stands for "none yet"

    total = 0.0
    for answer in itertools.product(range(3), repeat=3):
        after = [table[0, 0, 0], table[1, answer[0], 0], table[2, answer[0], answer[1]]]
        logits_BSV = torch.stack(after).unsqueeze(0)
        total += token_logprobs(logits_BSV, torch.tensor([[0, *answer]])).sum().exp().item()
    assert total == pytest.approx(1, abs=1e-12)


def test_token_logprobs_never_reads_the_last_column(token_logprobs):
    spoiled_BSV = LOGITS_BSV.clone()
    spoiled_BSV[:, -1] = math.nan
    expected_BS = token_logprobs(LOGITS_BSV, IDS_BS)
    assert close(token_logprobs(spoiled_BSV, IDS_BS), expected_BS)
    assert close(token_logprobs(LOGITS_BSV[:, :-1], IDS_BS), expected_BS)
    grad_BSV = gradient(lambda z: token_logprobs(z, IDS_BS), LOGITS_BSV)
    assert (grad_BSV[:, -1] == 0).all()
    assert (grad_BSV[:, :-1] != 0).all()


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.0])
def test_token_logprobs_score_with_the_sampling_temperature(token_logprobs, temperature):
    p_BSV = (LOGITS_BSV / temperature).softmax(-1)
    expected_BS = torch.stack([p_BSV[:, 0, 0], p_BSV[:, 1, 1]], dim=1).log()
    assert close(token_logprobs(LOGITS_BSV, IDS_BS, temperature=temperature), expected_BS)


def test_token_logprobs_at_temperature_two_by_hand(token_logprobs):
    # sqrt of the probabilities, normed: sqrt(.5) / (sqrt(.5) + sqrt(.3) + sqrt(.2)) = 0.4155
    logp_BS = token_logprobs(LOGITS_BSV, IDS_BS, temperature=2.0)
    assert logp_BS[0, 0].exp().item() == pytest.approx(0.4155, abs=1e-4)


def test_token_logprobs_gradient_is_chosen_minus_probability(token_logprobs):
    grad_BSV = gradient(lambda z: token_logprobs(z, IDS_BS), LOGITS_BSV)
    expected_SV = torch.tensor([[0.5, -0.3, -0.2], [-0.1, 0.4, -0.3], [0, 0, 0]], dtype=torch.float64)
    assert close(grad_BSV[0], expected_SV)


def test_token_logprobs_forget_a_constant_added_to_the_logits(token_logprobs):
    assert close(token_logprobs(LOGITS_BSV + 7, IDS_BS), token_logprobs(LOGITS_BSV, IDS_BS))


def test_token_logprobs_survive_huge_logits(token_logprobs):
    logits_BSV = torch.tensor([[[1e4, 0.0], [0.0, -1e4]]])
    assert token_logprobs(logits_BSV, torch.tensor([[0, 0, 1]])).tolist() == [[0, -1e4]]


def test_token_logprobs_of_one_token_are_empty(token_logprobs):
    assert token_logprobs(LOGITS_BSV[:, :1], IDS_BS[:, :1]).shape == (1, 0)


def test_token_logprobs_agree_batched_and_one_by_one(token_logprobs):
    logits_BSV = random_logits(3, 5, 7)
    ids_BS = torch.arange(15).reshape(3, 5) % 7
    alone_BS = torch.cat([token_logprobs(logits_BSV[b : b + 1], ids_BS[b : b + 1]) for b in range(3)])
    assert close(token_logprobs(logits_BSV, ids_BS), alone_BS)


def test_token_logprobs_refuse_half_precision(token_logprobs):
    with pytest.raises(TypeError, match=r"logits_BSV\.float\(\)"):
        token_logprobs(LOGITS_BSV.bfloat16(), IDS_BS)


def test_token_logprobs_refuse_ids_that_are_not_int64(token_logprobs):
    with pytest.raises(TypeError, match=r"ids_BS\.long\(\)"):
        token_logprobs(LOGITS_BSV, IDS_BS.int())


def test_token_logprobs_refuse_logits_of_another_length(token_logprobs):
    with pytest.raises(ValueError, match="3 tokens need 3 or 2 columns of logits, got 1"):
        token_logprobs(LOGITS_BSV[:, :1], IDS_BS)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_token_logprobs_refuse_a_temperature_that_is_not_positive(token_logprobs, temperature):
    with pytest.raises(ValueError, match="temperature must lie in"):
        token_logprobs(LOGITS_BSV, IDS_BS, temperature=temperature)
