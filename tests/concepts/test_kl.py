"""Three estimates of a KL, judged by listing all tokens: is the value right, and is the gradient?"""

import itertools
import math

import pytest
import torch

from tests.concepts.tools import close, gradient, own, random_logits, row

LOGITS_V, LOGITS_REF_V, LOGITS_STALE_V = random_logits(3, 4, seed=20)
P_V, REF_V, STALE_V = (z.softmax(-1) for z in (LOGITS_V, LOGITS_REF_V, LOGITS_STALE_V))
ALL_V1 = torch.ones(4, 1, dtype=torch.bool)  # the four tokens as four rows of one column


def _kl(p_V, q_V):
    return (p_V * (p_V.log() - q_V.log())).sum()


def _each_token(logits_V):
    """The log-probability of each of the four tokens, as four rows."""
    return logits_V.log_softmax(-1).unsqueeze(1)


def _average_value(estimate):
    return (P_V * estimate(_each_token(LOGITS_V), _each_token(LOGITS_REF_V), ALL_V1)[:, 0]).sum()


def _average_gradient(estimate):
    """Sum of p(v) * gradient of the estimate at token v. The probabilities are held fixed, as when sampling."""
    return gradient(
        lambda z: P_V * estimate(_each_token(z), _each_token(LOGITS_REF_V), ALL_V1)[:, 0], LOGITS_V
    )


REVERSE_GRADIENT_V = gradient(lambda z: _kl(z.softmax(-1), REF_V), LOGITS_V)  # of KL(pi || ref)
FORWARD_GRADIENT_V = P_V - REF_V  # of KL(ref || pi), with respect to the logits


def test_k1_is_on_average_the_kl(k1):
    assert close(_average_value(k1), _kl(P_V, REF_V))


def test_k3_is_on_average_the_kl(k3):
    assert close(_average_value(k3), _kl(P_V, REF_V))


def test_k2_is_only_nearly_the_kl(k2):
    """2.05 against 1.27 for these two, which are far apart; within 1 % for two whose logits hardly differ."""
    assert _average_value(k2).item() == pytest.approx(2.05, abs=0.01)
    assert _kl(P_V, REF_V).item() == pytest.approx(1.27, abs=0.01)
    near_V = LOGITS_V + 0.01 * LOGITS_REF_V
    value = (P_V * k2(_each_token(LOGITS_V), _each_token(near_V), ALL_V1)[:, 0]).sum()
    assert value.item() == pytest.approx(_kl(P_V, near_V.softmax(-1)).item(), rel=0.01)


def test_k1_as_a_loss_does_nothing_on_average(k1):
    assert close(_average_gradient(k1), torch.zeros(4))


def test_k1_as_a_reward_gives_the_gradient_of_the_kl(k1):
    """REINFORCE with k1 as the advantage: E[k1 * gradient log p] = gradient KL(pi || ref)."""
    k1_V = k1(_each_token(LOGITS_V), _each_token(LOGITS_REF_V), ALL_V1)[:, 0]
    average_V = gradient(lambda z: P_V * k1_V * z.log_softmax(-1), LOGITS_V)
    assert close(average_V, REVERSE_GRADIENT_V)


def test_k2_as_a_loss_gives_the_gradient_of_the_kl(k2):
    assert close(_average_gradient(k2), REVERSE_GRADIENT_V)


def test_k3_as_a_loss_gives_the_gradient_of_the_other_kl(k3):
    average_V = _average_gradient(k3)
    assert close(average_V, FORWARD_GRADIENT_V)
    assert not close(average_V, REVERSE_GRADIENT_V, 1e-2)


def test_corrected_k3_gives_value_and_gradient_of_the_kl_even_from_stale_samples(corrected_k3):
    """Tokens drawn from an older policy, ratio = pi / older with its gradient."""
    logp_stale_V1 = _each_token(LOGITS_STALE_V)

    def average(z):
        logp_V1 = _each_token(z)
        kl_V1 = corrected_k3((logp_V1 - logp_stale_V1).exp(), logp_V1, _each_token(LOGITS_REF_V), ALL_V1)
        return STALE_V * kl_V1[:, 0]

    assert close(average(LOGITS_V).sum(), _kl(P_V, REF_V))
    assert close(gradient(average, LOGITS_V), REVERSE_GRADIENT_V)


def test_corrected_k3_at_ratio_one_has_the_value_of_k3(corrected_k3, k3):
    logp_V1, ref_V1 = _each_token(LOGITS_V), _each_token(LOGITS_REF_V)
    assert close(corrected_k3(torch.ones(4, 1), logp_V1, ref_V1, ALL_V1), k3(logp_V1, ref_V1, ALL_V1))


def test_only_k1_in_the_reward_has_the_gradient_of_the_kl_of_whole_answers(k1, k2):
    """All four answers of two tokens out of two. A first token changes where the second one is drawn: k1 as a
    reward, summed from each token on, counts that; k2 as a loss takes each token by itself and does not."""
    logits, logits_ref = random_logits(
        2, 3, 2, seed=21
    )  # row 0: the first token; row 1 + a: the second, after a

    def logp_of(z, a, b):
        return torch.stack([z[0].log_softmax(-1)[a], z[1 + a].log_softmax(-1)[b]]).unsqueeze(0)

    def average(of_answer):
        """Sum over the answers of probability * of_answer, with the probability held fixed."""

        def total(z):
            answers = itertools.product(range(2), repeat=2)
            return sum(logp_of(logits, a, b).sum().exp() * of_answer(z, a, b) for a, b in answers)

        return gradient(total, logits)

    def kl_of_answers(z):
        answers = itertools.product(range(2), repeat=2)
        pairs = [(logp_of(z, a, b).sum(), logp_of(logits_ref, a, b).sum()) for a, b in answers]
        return sum(logp.exp() * (logp - logp_ref) for logp, logp_ref in pairs)

    def k1_as_reward(z, a, b):
        reward_BT = k1(logp_of(logits, a, b), logp_of(logits_ref, a, b), own(1, 1))
        to_go_BT = reward_BT.flip(1).cumsum(1).flip(1)
        return (to_go_BT * logp_of(z, a, b)).sum()

    def k2_as_loss(z, a, b):
        return k2(logp_of(z, a, b), logp_of(logits_ref, a, b), own(1, 1)).sum()

    true_gradient = gradient(kl_of_answers, logits)
    assert close(average(k1_as_reward), true_gradient)
    assert not close(average(k2_as_loss), true_gradient, 1e-2)
    assert close(
        average(k2_as_loss)[1:], true_gradient[1:]
    )  # the last token has none after it: there k2 is right


def test_k1_by_hand(k1):
    assert k1(row(-1.0, -3.0, 5.0), row(-2.0, -2.5, 0.0), own(1, 1, 0)).tolist() == [[1.0, -0.5, 0.0]]


def test_k2_by_hand(k2):
    assert k2(row(-1.0, -3.0, 5.0), row(-2.0, -2.5, 0.0), own(1, 1, 0)).tolist() == [[0.5, 0.125, 0.0]]


def test_k3_by_hand(k3):
    # The policy gives the token twice the reference's probability: u = 1/2, k3 = 1/2 - 1 + log 2.
    assert close(k3(row(0.0, 9.0), row(-math.log(2), 0.0), own(1, 0)), row(math.log(2) - 0.5, 0.0))


def test_corrected_k3_by_hand(corrected_k3):
    kl_BT = corrected_k3(row(3.0, 7.0), row(0.0, 9.0), row(-math.log(2), 0.0), own(1, 0))
    assert close(kl_BT, row(3 * (math.log(2) - 0.5), 0.0))


def test_k3_keeps_its_digits_where_policies_nearly_agree(k3):
    """Log ratio 1e-4 in float32: k3 is 5.0e-9. exp(x) - 1 - x would give 0 or ten times too much."""
    kl = k3(torch.tensor([[-1e-4]]), torch.tensor([[0.0]]), own(1)).item()
    assert kl == pytest.approx(5e-9, rel=0.01)


def test_k3_is_never_negative(k3):
    logp_BT = row(*[-(1.5**n) for n in range(10)])
    assert (k3(logp_BT, logp_BT.flip(1), own(*[1] * 10)) >= 0).all()


@pytest.mark.parametrize("name", ["k1", "k2", "k3"])
def test_estimates_are_zero_where_policies_agree(name, request):
    logp_BT = row(-1.0, -2.0)
    assert (request.getfixturevalue(name)(logp_BT, logp_BT.clone(), own(1, 1)) == 0).all()


def _reference_is_a_constant(estimate):
    ref_BT = row(-2.0, -2.5).requires_grad_()
    estimate(row(-1.0, -3.0).requires_grad_(), ref_BT, own(1, 1)).sum().backward()
    assert ref_BT.grad is None


def test_k1_treats_the_reference_as_a_constant(k1):
    _reference_is_a_constant(k1)


def test_k2_treats_the_reference_as_a_constant(k2):
    _reference_is_a_constant(k2)


def test_k3_treats_the_reference_as_a_constant(k3):
    _reference_is_a_constant(k3)


def test_corrected_k3_treats_the_reference_as_a_constant(corrected_k3):
    _reference_is_a_constant(lambda logp, ref, mask: corrected_k3(torch.ones_like(ref), logp, ref, mask))


# ---- exact_kl --------------------------------------------------------------------------------------------

LOGITS_BTV = torch.stack([LOGITS_V, LOGITS_REF_V]).unsqueeze(0)
LOGITS_REF_BTV = torch.stack([LOGITS_REF_V, LOGITS_V]).unsqueeze(0)


def test_exact_kl_by_hand(exact_kl):
    """A fair coin against one that shows heads three times in four: 0.5 * log(.5/.75) + 0.5 * log(.5/.25)."""
    fair_BTV = torch.zeros(1, 1, 2, dtype=torch.float64)
    bent_BTV = torch.tensor([[[0.75, 0.25]]], dtype=torch.float64).log()
    assert exact_kl(fair_BTV, bent_BTV, own(1)).item() == pytest.approx(0.5 * math.log(4 / 3))
    assert exact_kl(bent_BTV, fair_BTV, own(1)).item() == pytest.approx(
        0.75 * math.log(1.5) - 0.25 * math.log(2)
    )


def test_exact_kl_takes_each_column_for_itself_and_skips_the_masked(exact_kl):
    kl_BT = exact_kl(LOGITS_BTV, LOGITS_REF_BTV, own(1, 1))
    assert close(kl_BT, torch.stack([_kl(P_V, REF_V), _kl(REF_V, P_V)]).unsqueeze(0))
    assert exact_kl(LOGITS_BTV, LOGITS_REF_BTV, own(0, 1))[0, 0].item() == 0


def test_exact_kl_is_taken_at_the_sampling_temperature(exact_kl):
    kl = exact_kl(LOGITS_BTV[:, :1], LOGITS_REF_BTV[:, :1], own(1), temperature=0.6)
    assert close(kl[0, 0], _kl((LOGITS_V / 0.6).softmax(-1), (LOGITS_REF_V / 0.6).softmax(-1)))


def test_exact_kl_has_the_gradient_of_the_kl(exact_kl):
    grad_BTV = gradient(lambda z: exact_kl(z, LOGITS_REF_BTV[:, :1], own(1)), LOGITS_BTV[:, :1])
    assert close(grad_BTV[0, 0], REVERSE_GRADIENT_V)


def test_exact_kl_treats_the_reference_as_a_constant(exact_kl):
    ref_BTV = LOGITS_REF_BTV.clone().requires_grad_()
    exact_kl(LOGITS_BTV.clone().requires_grad_(), ref_BTV, own(1, 1)).sum().backward()
    assert ref_BTV.grad is None


def test_exact_kl_survives_forbidden_tokens(exact_kl):
    """A token with logit -inf in both models adds nothing, to value or gradient; only in the reference, infinity."""
    forbidden_BTV = torch.tensor([[[0.0, 0.0, -math.inf]]], dtype=torch.float64)
    ref_BTV = torch.tensor([[[0.75, 0.25, 0.0]]], dtype=torch.float64).log()
    assert exact_kl(forbidden_BTV, ref_BTV, own(1)).item() == pytest.approx(0.5 * math.log(4 / 3))
    grad_BTV = gradient(lambda z: exact_kl(z, ref_BTV, own(1)), forbidden_BTV)
    assert grad_BTV.isfinite().all()
    assert exact_kl(torch.zeros(1, 1, 3, dtype=torch.float64), ref_BTV, own(1)).item() == math.inf


def test_exact_kl_refuses_a_mask_of_another_shape(exact_kl):
    with pytest.raises(ValueError, match="logits_BTV must have shape"):
        exact_kl(LOGITS_BTV, LOGITS_REF_BTV, own(1, 1, 1))
