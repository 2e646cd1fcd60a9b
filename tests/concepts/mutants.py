"""Wrong versions of every concept, each with the hint its author should get.

MUTANTS[function name][mistake] = (wrong function, hint). Two readers: test_mutants.py demands that the tests of the
concept notice each of them, and the checks that judge a learner's function are held to the same table. The
mistakes are those that people make: a sign, min for max, a wrong axis, a shift, a denominator, a forgotten
mask, the wrong policy.

A mutant has the parameters of the function it stands for, and leaves out the guards.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch


class Mutant(NamedTuple):
    """A wrong function, and the sentence that names the mistake and asks the right question."""

    function: Callable
    hint: str


MUTANTS: dict[str, dict[str, Mutant]] = {}


def mutant(*of: str, hint: str) -> Callable[[Callable], Callable]:
    """Enter a wrong function into the table, under each function it is a wrong version of."""

    def enter(function: Callable) -> Callable:
        for name in of:
            MUTANTS.setdefault(name, {})[function.__name__] = Mutant(function, hint)
        return function

    return enter


def _keep(mask_BT, x_BT):
    return torch.where(mask_BT, x_BT, 0)


# ---- masked ----------------------------------------------------------------------------------------------


@mutant("masked_sum", hint="You added up every entry, own token or not. Where does the mask come in?")
def sum_of_everything(x_BT, mask_BT, *, dim=None):
    return x_BT.sum(dim=dim)


@mutant("masked_sum", hint="You multiplied by the mask, and 0 * nan is nan. Which function chooses instead?")
def sum_by_multiplying(x_BT, mask_BT, *, dim=None):
    return (x_BT * mask_BT).sum(dim=dim)


@mutant("masked_sum", hint="You added up what the mask hides. Does True mean kept or hidden?")
def sum_of_the_hidden(x_BT, mask_BT, *, dim=None):
    return _keep(~mask_BT, x_BT).sum(dim=dim)


@mutant("masked_mean", hint="You divided by all entries, hidden ones too. How many are kept?")
def mean_over_everything(x_BT, mask_BT, *, dim=None):
    return _keep(mask_BT, x_BT).mean(dim=dim)


@mutant("masked_mean", hint="An empty mask gives 0 / 0 = nan. What is the smallest count to divide by?")
def mean_without_a_smallest_count(x_BT, mask_BT, *, dim=None):
    return _keep(mask_BT, x_BT).sum(dim=dim) / mask_BT.sum(dim=dim)


@mutant(
    "masked_mean", hint="You took the mean of the rows' means, so short rows count more. Which is asked for?"
)
def mean_of_row_means(x_BT, mask_BT, *, dim=None):
    if dim is not None:
        return _keep(mask_BT, x_BT).sum(dim=dim) / mask_BT.sum(dim=dim).clamp(min=1)
    return (_keep(mask_BT, x_BT).sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)).mean()


@mutant("masked_var", hint="You always divided by n - 1. What does ddof say?")
def var_always_with_ddof_one(x_BT, mask_BT, *, ddof=0):
    distance_BT = _keep(mask_BT, x_BT - _keep(mask_BT, x_BT).sum() / mask_BT.sum().clamp(min=1))
    return distance_BT.square().sum() / (mask_BT.sum() - 1).clamp(min=1)


@mutant("masked_var", hint="You averaged the squares themselves. From what is the distance measured?")
def var_around_zero(x_BT, mask_BT, *, ddof=0):
    return _keep(mask_BT, x_BT).square().sum() / (mask_BT.sum() - ddof).clamp(min=1)


@mutant(
    "masked_var",
    hint="Equal entries left rounding noise: eight times 0.1 in float32. What could you subtract?",
)
def var_with_rounding_noise(x_BT, mask_BT, *, ddof=0):
    distance_BT = _keep(mask_BT, x_BT - _keep(mask_BT, x_BT).sum() / mask_BT.sum().clamp(min=1))
    return distance_BT.square().sum() / (mask_BT.sum() - ddof).clamp(min=1)


@mutant("masked_whiten", hint="You added eps to the variance. Where does the equation add it?")
def whiten_with_eps_on_the_variance(x_BT, mask_BT, *, eps=1e-8):
    n = mask_BT.sum().clamp(min=1)
    distance_BT = _keep(mask_BT, x_BT - _keep(mask_BT, x_BT).sum() / n)
    return distance_BT / (distance_BT.square().sum() / n + eps).sqrt()


@mutant("masked_whiten", hint="You divided by n - 1 under the root. Which ddof does the equation name?")
def whiten_with_ddof_one(x_BT, mask_BT, *, eps=1e-8):
    n = mask_BT.sum().clamp(min=1)
    distance_BT = _keep(mask_BT, x_BT - _keep(mask_BT, x_BT).sum() / n)
    return distance_BT / ((distance_BT.square().sum() / (n - 1).clamp(min=1)).sqrt() + eps)


@mutant(
    "masked_whiten", hint="You took mean and spread over hidden entries too. Where does the mask come in?"
)
def whiten_over_everything(x_BT, mask_BT, *, eps=1e-8):
    return _keep(mask_BT, (x_BT - x_BT.mean()) / (x_BT.std(correction=0) + eps))


@mutant("masked_whiten", hint="Entries off the mask are not 0. What should a hidden entry become?")
def whiten_leaving_the_hidden(x_BT, mask_BT, *, eps=1e-8):
    n = mask_BT.sum().clamp(min=1)
    mean = _keep(mask_BT, x_BT).sum() / n
    std = (_keep(mask_BT, x_BT - mean).square().sum() / n).sqrt()
    return (x_BT - mean) / (std + eps)


@mutant("masked_whiten", hint="Equal entries became rounding noise divided by eps. What if nothing varies?")
def whiten_rounding_noise(x_BT, mask_BT, *, eps=1e-8):
    n = mask_BT.sum().clamp(min=1)
    distance_BT = _keep(mask_BT, x_BT - _keep(mask_BT, x_BT).sum() / n)
    return distance_BT / ((distance_BT.square().sum() / n).sqrt() + eps)


# ---- token_logprobs --------------------------------------------------------------------------------------


def _gathered(logits_BSV, ids_BS):
    return logits_BSV.log_softmax(-1).gather(-1, ids_BS.unsqueeze(-1)).squeeze(-1)


@mutant(
    "token_logprobs",
    hint="You scored each token with logits that have already read it. Which column predicts it?",
)
def logprobs_without_the_shift(logits_BSV, ids_BS, *, temperature=1.0):
    columns = logits_BSV.shape[1]
    return _gathered(logits_BSV[:, 1:] / temperature, ids_BS[:, 1:columns])


@mutant(
    "token_logprobs", hint="You shifted the other way: column s predicts token s + 1. Which of the two moves?"
)
def logprobs_shifted_the_wrong_way(logits_BSV, ids_BS, *, temperature=1.0):
    return _gathered(logits_BSV[:, 1:] / temperature, ids_BS[:, : logits_BSV.shape[1] - 1])


@mutant(
    "token_logprobs",
    hint="You scored at temperature 1 whatever the tokens were sampled at. What divides the logits?",
)
def logprobs_without_temperature(logits_BSV, ids_BS, *, temperature=1.0):
    return _gathered(logits_BSV[:, : ids_BS.shape[1] - 1], ids_BS[:, 1:])


@mutant(
    "token_logprobs", hint="You multiplied by the temperature. Does a high temperature flatten or sharpen?"
)
def logprobs_times_temperature(logits_BSV, ids_BS, *, temperature=1.0):
    return _gathered(logits_BSV[:, : ids_BS.shape[1] - 1] * temperature, ids_BS[:, 1:])


@mutant(
    "token_logprobs",
    hint="You divided the log-probabilities by the temperature: they no longer add up to one.",
)
def logprobs_divided_after_the_softmax(logits_BSV, ids_BS, *, temperature=1.0):
    return _gathered(logits_BSV[:, : ids_BS.shape[1] - 1], ids_BS[:, 1:]) / temperature


@mutant("token_logprobs", hint="You returned the negative log-likelihood. Can a log-probability be above 0?")
def logprobs_with_the_sign_of_a_loss(logits_BSV, ids_BS, *, temperature=1.0):
    return -_gathered(logits_BSV[:, : ids_BS.shape[1] - 1] / temperature, ids_BS[:, 1:])


@mutant("token_logprobs", hint="You returned the chosen logits as they are. What makes them probabilities?")
def logprobs_that_are_logits(logits_BSV, ids_BS, *, temperature=1.0):
    z_BSV = logits_BSV[:, : ids_BS.shape[1] - 1] / temperature
    return z_BSV.gather(-1, ids_BS[:, 1:].unsqueeze(-1)).squeeze(-1)


@mutant(
    "token_logprobs",
    hint="You took the most likely token, not the one that was sampled. Which ids are asked for?",
)
def logprobs_of_the_most_likely(logits_BSV, ids_BS, *, temperature=1.0):
    return (logits_BSV[:, : ids_BS.shape[1] - 1] / temperature).log_softmax(-1).amax(-1)


# ---- policy_gradient -------------------------------------------------------------------------------------


@mutant(
    "policy_gradient",
    hint="Your sign is turned: an optimiser walks *down* the loss. Which way should a good token go?",
)
def gradient_with_the_wrong_sign(logp_BT, advantages_BT, mask_BT):
    return _keep(mask_BT, advantages_BT).detach() * _keep(mask_BT, logp_BT)


@mutant(
    "policy_gradient", hint="Gradient flows into the advantage. Which of the two factors is the policy's?"
)
def gradient_through_the_advantage(logp_BT, advantages_BT, mask_BT):
    return -_keep(mask_BT, advantages_BT) * _keep(mask_BT, logp_BT)


@mutant(
    "policy_gradient",
    hint="Tokens off the mask are in the loss: the policy did not write them. Where is the mask?",
)
def gradient_without_the_mask(logp_BT, advantages_BT, mask_BT):
    return -advantages_BT.detach() * logp_BT


@mutant(
    "policy_gradient", hint="You used the probability instead of its logarithm: rare tokens learn too little."
)
def gradient_of_the_probability(logp_BT, advantages_BT, mask_BT):
    return -_keep(mask_BT, advantages_BT).detach() * _keep(mask_BT, logp_BT).exp()


@mutant(
    "policy_gradient",
    hint="You used the size of the advantage and lost its sign. What should a bad token do?",
)
def gradient_of_the_absolute_advantage(logp_BT, advantages_BT, mask_BT):
    return -_keep(mask_BT, advantages_BT).detach().abs() * _keep(mask_BT, logp_BT)


def _backward_sum(rewards_BT, mask_BT, gamma, *, count_hidden=False, own_reward=True):
    returns_BT = torch.zeros_like(rewards_BT)
    running_B = torch.zeros_like(rewards_BT[:, 0])
    for t in reversed(range(rewards_BT.shape[1])):
        own_B = mask_BT[:, t]
        with_reward_B = rewards_BT[:, t].detach() + gamma * running_B
        returns_BT[:, t] = torch.where(own_B, with_reward_B if own_reward else gamma * running_B, 0)
        running_B = torch.where(own_B, with_reward_B, gamma * running_B if count_hidden else running_B)
    return returns_BT


@mutant(
    "reward_to_go",
    hint="Every token got the whole return, even for rewards before it. Where does its sum begin?",
)
def return_of_the_whole_answer(rewards_BT, mask_BT, *, gamma=1.0):
    return _keep(mask_BT, _backward_sum(rewards_BT, mask_BT, gamma)[:, :1].expand_as(rewards_BT))


@mutant(
    "reward_to_go", hint="The token's own reward is missing from its sum. Is the reward at t after token t?"
)
def return_without_the_own_reward(rewards_BT, mask_BT, *, gamma=1.0):
    return _backward_sum(rewards_BT, mask_BT, gamma, own_reward=False)


@mutant(
    "reward_to_go", hint="gamma also counted columns the policy did not write. Over which steps does it run?"
)
def return_discounted_over_observations(rewards_BT, mask_BT, *, gamma=1.0):
    return _backward_sum(rewards_BT, mask_BT, gamma, count_hidden=True)


@mutant("reward_to_go", hint="gamma is not used. What is a reward two steps away worth?")
def return_without_gamma(rewards_BT, mask_BT, *, gamma=1.0):
    return _backward_sum(rewards_BT, mask_BT, 1.0)


@mutant(
    "reward_to_go",
    hint="You summed from the front: rewards so far, not rewards to come. Which way does the loop run?",
)
def return_so_far(rewards_BT, mask_BT, *, gamma=1.0):
    return _backward_sum(rewards_BT.flip(1), mask_BT.flip(1), gamma).flip(1)


# ---- importance_ratio ------------------------------------------------------------------------------------

TOKEN_RATIOS = ("importance_ratio", "rollout_ratio", "reference_ratio")
SEQUENCE_RATIOS = ("sequence_ratio", "sequence_rollout_ratio")


@mutant(*TOKEN_RATIOS, hint="Your ratio is upside down. Which policy stands in the numerator?")
def ratio_upside_down(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, other_BT.detach() - logp_BT).exp()


@mutant(*TOKEN_RATIOS, hint="Gradient flows into the denominator. Which policy is a constant here?")
def ratio_with_a_live_denominator(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, logp_BT - other_BT).exp()


@mutant(*TOKEN_RATIOS, hint="Your ratio is 1 whatever the other policy is: you compared logp with itself.")
def ratio_with_itself(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, logp_BT - logp_BT.detach()).exp()


@mutant(
    *TOKEN_RATIOS, hint="You subtracted log-probabilities and stopped. What turns a log ratio into a ratio?"
)
def ratio_left_as_a_logarithm(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, logp_BT - other_BT.detach())


@mutant(*TOKEN_RATIOS, hint="You divided log-probabilities. What is log(a / b)?")
def ratio_of_logarithms(logp_BT, other_BT, mask_BT):
    return torch.where(mask_BT, logp_BT / other_BT.detach(), 1)


@mutant(
    *TOKEN_RATIOS, hint="You masked after exp: an inf off the mask makes the gradient nan. What comes first?"
)
def ratio_masked_too_late(logp_BT, other_BT, mask_BT):
    return torch.where(mask_BT, (logp_BT - other_BT.detach()).exp(), 1)


@mutant(*TOKEN_RATIOS, hint="You multiplied the token ratios of the row. Which of them is asked for here?")
def ratio_of_the_whole_answer(logp_BT, other_BT, mask_BT):
    total_B1 = _keep(mask_BT, logp_BT - other_BT.detach()).sum(dim=1, keepdim=True)
    return _keep(mask_BT, total_B1).exp()


def _row_mean(x_BT, mask_BT):
    return _keep(mask_BT, x_BT).sum(dim=1, keepdim=True) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


@mutant(
    *SEQUENCE_RATIOS, hint="You took the product: it grows with length. By what is the sum of logs divided?"
)
def sequence_product(logp_BT, other_BT, mask_BT):
    return ratio_of_the_whole_answer(logp_BT, other_BT, mask_BT)


@mutant(*SEQUENCE_RATIOS, hint="You averaged the ratios. GSPO averages their logarithms: exp goes last.")
def sequence_arithmetic_mean(logp_BT, other_BT, mask_BT):
    ratio_BT = _keep(mask_BT, logp_BT - other_BT.detach()).exp()
    return torch.where(mask_BT, _row_mean(ratio_BT, mask_BT), 1)


@mutant(*SEQUENCE_RATIOS, hint="You divided by all columns, padding too. How many own tokens has the row?")
def sequence_mean_over_padding(logp_BT, other_BT, mask_BT):
    mean_B1 = _keep(mask_BT, logp_BT - other_BT.detach()).mean(dim=1, keepdim=True)
    return _keep(mask_BT, mean_B1).exp()


@mutant(*SEQUENCE_RATIOS, hint="Your mean runs over the whole batch. Which axis is one answer?")
def sequence_mean_over_the_batch(logp_BT, other_BT, mask_BT):
    mean = _keep(mask_BT, logp_BT - other_BT.detach()).sum() / mask_BT.sum().clamp(min=1)
    return _keep(mask_BT, mean.expand_as(mask_BT)).exp()


@mutant(*SEQUENCE_RATIOS, hint="Each token got its own ratio. What do all tokens of an answer share here?")
def sequence_of_token_ratios(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, logp_BT - other_BT.detach()).exp()


@mutant(*SEQUENCE_RATIOS, hint="The ratio has the right value but passes gradient only to its own token.")
def sequence_with_token_gradients(logp_BT, other_BT, mask_BT):
    mean_B1 = _row_mean(logp_BT - other_BT, mask_BT).detach()
    return _keep(mask_BT, mean_B1 + logp_BT - logp_BT.detach()).exp()


@mutant(*SEQUENCE_RATIOS, hint="Gradient flows into the denominator. Which policy is a constant here?")
def sequence_with_a_live_denominator(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, _row_mean(logp_BT - other_BT, mask_BT)).exp()


@mutant(
    "product_ratio", hint="You took the geometric mean. What is the probability of a whole answer made of?"
)
def product_as_a_mean(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, _row_mean(logp_BT - other_BT.detach(), mask_BT)).exp()


@mutant("product_ratio", hint="Columns off the mask are in the product. Whose tokens make up the answer?")
def product_over_everything(logp_BT, other_BT, mask_BT):
    total_B1 = (logp_BT + 1 - other_BT.detach()).sum(dim=1, keepdim=True) - mask_BT.sum(dim=1, keepdim=True)
    return _keep(mask_BT, total_B1).exp()


@mutant("product_ratio", hint="You multiplied over the whole batch. Which axis is one answer?")
def product_over_the_batch(logp_BT, other_BT, mask_BT):
    total = _keep(mask_BT, logp_BT - other_BT.detach()).sum()
    return _keep(mask_BT, total.expand_as(mask_BT)).exp()


@mutant("product_ratio", hint="Gradient flows into the denominator. Which policy is a constant here?")
def product_with_a_live_denominator(logp_BT, other_BT, mask_BT):
    return _keep(mask_BT, _keep(mask_BT, logp_BT - other_BT).sum(dim=1, keepdim=True)).exp()


# ---- clipped_surrogate -----------------------------------------------------------------------------------


def _products(ratio_BT, advantages_BT, eps_low, eps_high, delta):
    capped_BT = ratio_BT if delta is None else ratio_BT.clamp(max=delta)
    clipped_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)
    return capped_BT * advantages_BT.detach(), clipped_BT * advantages_BT.detach()


@mutant(
    "clipped_surrogate", hint="You took the larger product: a token is rewarded for running away. min or max?"
)
def surrogate_with_max(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return -torch.maximum(*_products(ratio_BT, advantages_BT, eps_low, eps_high, delta))


@mutant(
    "clipped_surrogate",
    hint="You chose max for negative A, so the clip cuts on the wrong side. Is min not enough?",
)
def surrogate_with_max_for_bad_tokens(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    plain_BT, clipped_BT = _products(ratio_BT, advantages_BT, eps_low, eps_high, delta)
    return -torch.where(
        advantages_BT >= 0, torch.minimum(plain_BT, clipped_BT), torch.maximum(plain_BT, clipped_BT)
    )


@mutant(
    "clipped_surrogate",
    hint="You took the min of the ratios, then multiplied. What does a negative A do to a min?",
)
def surrogate_min_before_multiplying(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    capped_BT = ratio_BT if delta is None else ratio_BT.clamp(max=delta)
    return -torch.minimum(capped_BT, ratio_BT.clamp(1 - eps_low, 1 + eps_high)) * advantages_BT.detach()


@mutant(
    "clipped_surrogate",
    hint="You clipped whatever the sign of A: a token gone the wrong way can't come back.",
)
def surrogate_without_min(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return -_products(ratio_BT, advantages_BT, eps_low, eps_high, delta)[1]


@mutant("clipped_surrogate", hint="Nothing is clipped. What is the second product?")
def surrogate_without_clip(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return -_products(ratio_BT, advantages_BT, eps_low, eps_high, delta)[0]


@mutant(
    "clipped_surrogate",
    hint="Your sign is turned: an optimiser walks *down* the loss. Which way should a good token go?",
)
def surrogate_with_the_wrong_sign(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return torch.minimum(*_products(ratio_BT, advantages_BT, eps_low, eps_high, delta))


@mutant(
    "clipped_surrogate", hint="You swapped the bounds: 1 - eps_high and 1 + eps_low. Which one belongs above?"
)
def surrogate_with_swapped_bounds(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return -torch.minimum(*_products(ratio_BT, advantages_BT, eps_high, eps_low, delta))


@mutant("clipped_surrogate", hint="You used eps_low on both sides. What is eps_high for?")
def surrogate_with_one_eps(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return -torch.minimum(*_products(ratio_BT, advantages_BT, eps_low, eps_low, delta))


@mutant(
    "clipped_surrogate",
    hint="You ignored delta: a bad token with ratio 9 is still pushed nine times as hard.",
)
def surrogate_without_delta(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    return -torch.minimum(*_products(ratio_BT, advantages_BT, eps_low, eps_high, None))


@mutant(
    "clipped_surrogate", hint="Gradient flows into the advantage. Which of the two factors is the policy's?"
)
def surrogate_through_the_advantage(ratio_BT, advantages_BT, *, eps_low=0.2, eps_high=0.2, delta=None):
    capped_BT = ratio_BT if delta is None else ratio_BT.clamp(max=delta)
    clipped_BT = ratio_BT.clamp(1 - eps_low, 1 + eps_high)
    return -torch.minimum(capped_BT * advantages_BT, clipped_BT * advantages_BT)


# ---- group_advantage -------------------------------------------------------------------------------------


def _groups(rewards_B, group_size):
    return rewards_B.detach().reshape(-1, group_size)


def _zero_if_equal(advantages_PG, rewards_PG):
    differ_P1 = rewards_PG.amax(dim=1, keepdim=True) > rewards_PG.amin(dim=1, keepdim=True)
    return torch.where(differ_P1, advantages_PG, 0).reshape(-1)


def _group_z(rewards_PG, eps, *, correction=1):
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return distance_PG / (rewards_PG.std(dim=1, keepdim=True, correction=correction) + eps)


@mutant(
    "group_advantage",
    hint="Your mean runs over all rows: easy prompts pay for hard ones. Reshape to (P, G) first?",
)
def advantage_against_the_batch_mean(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    std_P1 = rewards_PG.std(dim=1, keepdim=True)
    return _zero_if_equal((rewards_PG - rewards_PG.mean()) / (std_P1 + eps), rewards_PG)


@mutant("group_advantage", hint="You divided by the standard deviation of the whole batch, not of the group.")
def advantage_with_the_batch_std(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return _zero_if_equal(distance_PG / (rewards_PG.std() + eps), rewards_PG)


@mutant(
    "group_advantage",
    hint="You divided by G under the root. ddof 1 divides by G - 1: a pair gets 0.707, not 1.",
)
def advantage_with_ddof_zero(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(_group_z(rewards_PG, eps, correction=0), rewards_PG)


@mutant("group_advantage", hint="You did not divide by the spread. What is the unit of this advantage?")
def advantage_without_std(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(rewards_PG - rewards_PG.mean(dim=1, keepdim=True), rewards_PG)


@mutant("group_advantage", hint="You divided by the variance. Which root is missing?")
def advantage_with_the_variance(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return _zero_if_equal(distance_PG / (rewards_PG.var(dim=1, keepdim=True) + eps), rewards_PG)


@mutant("group_advantage", hint="eps is not used. What keeps a nearly equal group from blowing up?")
def advantage_without_eps(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(_group_z(rewards_PG, 0.0), rewards_PG)


@mutant(
    "group_advantage",
    hint="Equal rewards gave rounding noise instead of 0: eight times 0.1. What is max minus min?",
)
def advantage_of_rounding_noise(rewards_B, *, group_size, eps=1e-4):
    return _group_z(_groups(rewards_B, group_size), eps).reshape(-1)


def _interleaved(rewards_B, group_size):
    return rewards_B.detach().reshape(group_size, -1).T


@mutant(
    "group_advantage",
    hint="You mixed prompts: answer g of prompt p stands in row p * G + g. Which axis is which?",
)
def advantage_of_interleaved_groups(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _interleaved(rewards_B, group_size)
    return _zero_if_equal(_group_z(rewards_PG, eps), rewards_PG).reshape(-1, group_size).T.reshape(-1)


@mutant(
    "group_advantage", hint="Your sign is turned: the best answer got the lowest advantage. What minus what?"
)
def advantage_with_the_wrong_sign(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    return -_zero_if_equal(_group_z(rewards_PG, eps), rewards_PG)


@mutant(
    "group_mean_advantage",
    hint="Your mean runs over all rows: easy prompts pay for hard ones. Reshape to (P, G) first?",
)
def mean_advantage_against_the_batch(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(rewards_PG - rewards_PG.mean(), rewards_PG)


@mutant("group_mean_advantage", hint="You divided by the spread. Dr. GRPO leaves exactly that out: why?")
def mean_advantage_with_std(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(_group_z(rewards_PG, 1e-4), rewards_PG)


@mutant(
    "group_mean_advantage",
    hint="You left the answer itself out of its baseline. That is RLOO; which is asked for?",
)
def mean_advantage_leaving_itself_out(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    others_PG = (rewards_PG.sum(dim=1, keepdim=True) - rewards_PG) / (group_size - 1)
    return _zero_if_equal(rewards_PG - others_PG, rewards_PG)


@mutant(
    "group_mean_advantage",
    hint="Equal rewards gave rounding noise instead of 0: eight times 0.1. What is max minus min?",
)
def mean_advantage_of_rounding_noise(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    return (rewards_PG - rewards_PG.mean(dim=1, keepdim=True)).reshape(-1)


@mutant(
    "leave_one_out_advantage", hint="Your baseline contains the answer itself. How many *others* are there?"
)
def left_out_advantage_with_itself(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(rewards_PG - rewards_PG.mean(dim=1, keepdim=True), rewards_PG)


@mutant("leave_one_out_advantage", hint="You added up the others but divided by G. How many are they?")
def left_out_advantage_divided_by_all(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    others_PG = (rewards_PG.sum(dim=1, keepdim=True) - rewards_PG) / group_size
    return _zero_if_equal(rewards_PG - others_PG, rewards_PG)


@mutant("leave_one_out_advantage", hint="The others came from the whole batch. Whose answers are comparable?")
def left_out_advantage_over_the_batch(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    others_PG = (rewards_PG.sum() - rewards_PG) / (rewards_B.numel() - 1)
    return _zero_if_equal(rewards_PG - others_PG, rewards_PG)


@mutant(
    "leave_one_out_advantage",
    hint="Equal rewards gave rounding noise instead of 0: eight times 0.1. What is max minus min?",
)
def left_out_advantage_of_rounding_noise(rewards_B, *, group_size):
    rewards_PG = _groups(rewards_B, group_size)
    others_PG = (rewards_PG.sum(dim=1, keepdim=True) - rewards_PG) / (group_size - 1)
    return (rewards_PG - others_PG).reshape(-1)


@mutant("batch_std_advantage", hint="You divided by the spread of the group. Which spread is asked for?")
def batch_std_of_the_group(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal(_group_z(rewards_PG, eps), rewards_PG)


@mutant("batch_std_advantage", hint="You subtracted the batch's mean. Only the *unit* comes from the batch.")
def batch_std_and_batch_mean(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    return _zero_if_equal((rewards_PG - rewards_PG.mean()) / (rewards_PG.std() + eps), rewards_PG)


@mutant(
    "batch_std_advantage",
    hint="You took the spread of the differences to the group mean, not of the rewards.",
)
def batch_std_of_the_differences(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return _zero_if_equal(distance_PG / (distance_PG.std() + eps), rewards_PG)


@mutant("batch_std_advantage", hint="You divided by B under the root. ddof 1 divides by B - 1.")
def batch_std_with_ddof_zero(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return _zero_if_equal(distance_PG / (rewards_PG.std(correction=0) + eps), rewards_PG)


@mutant(
    "batch_std_advantage",
    hint="Equal rewards gave rounding noise instead of 0: eight times 0.1. What is max minus min?",
)
def batch_std_of_rounding_noise(rewards_B, *, group_size, eps=1e-4):
    rewards_PG = _groups(rewards_B, group_size)
    distance_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return (distance_PG / (rewards_PG.std() + eps)).reshape(-1)


@mutant("batch_advantage", hint="You did not divide by the spread. What is the unit of this advantage?")
def batch_advantage_without_std(rewards_B, *, eps=1e-8):
    return rewards_B.detach() - rewards_B.detach().mean()


@mutant("batch_advantage", hint="You divided by B under the root. ddof 1 divides by B - 1.")
def batch_advantage_with_ddof_zero(rewards_B, *, eps=1e-8):
    rewards_B = rewards_B.detach()
    return torch.where(
        rewards_B.amax() > rewards_B.amin(),
        (rewards_B - rewards_B.mean()) / (rewards_B.std(correction=0) + eps),
        0,
    )


@mutant("batch_advantage", hint="eps is not used. What keeps a nearly equal batch from blowing up?")
def batch_advantage_without_eps(rewards_B, *, eps=1e-8):
    rewards_B = rewards_B.detach()
    return torch.where(
        rewards_B.amax() > rewards_B.amin(), (rewards_B - rewards_B.mean()) / rewards_B.std(), 0
    )


@mutant(
    "batch_advantage",
    hint="Equal rewards gave rounding noise instead of 0: eight times 0.1. What is max minus min?",
)
def batch_advantage_of_rounding_noise(rewards_B, *, eps=1e-8):
    rewards_B = rewards_B.detach()
    return (rewards_B - rewards_B.mean()) / (rewards_B.std() + eps)


# ---- gae -------------------------------------------------------------------------------------------------


def _gae(
    rewards_BT,
    values_BT,
    mask_BT,
    finished_B,
    bootstrap_B,
    gamma,
    lam,
    *,
    end="right",
    hidden="step over",
    next_value="next",
    trace="gamma * lam",
):
    """GAE with one screw loose at a time."""
    rewards_BT, values_BT = rewards_BT.detach(), values_BT.detach()
    bootstrap_B = torch.zeros_like(values_BT[:, 0]) if bootstrap_B is None else bootstrap_B.detach()
    ends = {
        "right": torch.where(finished_B, 0, bootstrap_B),
        "always zero": torch.zeros_like(bootstrap_B),
        "always bootstrap": bootstrap_B,
        "turned around": torch.where(finished_B, bootstrap_B, 0),
    }
    decay = {"gamma * lam": gamma * lam, "lam": lam, "gamma": gamma}[trace]
    value_weight = 1.0 if next_value == "undiscounted" else gamma
    following_B = ends[end]
    running_B = torch.zeros_like(following_B)
    advantages_BT = torch.zeros_like(values_BT)
    for t in reversed(range(values_BT.shape[1])):
        own_B = mask_BT[:, t] if hidden != "count" else torch.ones_like(mask_BT[:, t])
        ahead_B = values_BT[:, t] if next_value == "same" else following_B
        delta_B = rewards_BT[:, t] + value_weight * ahead_B - values_BT[:, t]
        idle_B = torch.zeros_like(running_B) if hidden == "forget" else running_B
        running_B = torch.where(own_B, delta_B + decay * running_B, idle_B)
        idle_value_B = torch.zeros_like(following_B) if hidden == "value lost" else following_B
        following_B = torch.where(own_B, values_BT[:, t], idle_value_B)
        advantages_BT[:, t] = torch.where(mask_BT[:, t], running_B, 0)
    return advantages_BT


@mutant(
    "gae",
    hint="You took the value after the token for the value before it. Which of the two does values[t] hold?",
)
def gae_with_values_off_by_one(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, next_value="same")


@mutant("gae", hint="A cut-off row was treated as ended. What is the future worth where it was cut?")
def gae_with_every_row_ended(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, end="always zero")


@mutant("gae", hint="A row that ended by itself got a value for what comes after. What comes after the end?")
def gae_with_every_row_cut_off(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, end="always bootstrap")


@mutant("gae", hint="You turned finished around: ended rows got the bootstrap, cut-off rows got 0.")
def gae_with_ends_turned_around(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, end="turned around")


@mutant("gae", hint="Columns off the mask took part as if they were tokens. Who wrote them?")
def gae_counting_observations(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, hidden="count")


@mutant(
    "gae", hint="The running sum was lost at a tool's reply. What should pass through a column off the mask?"
)
def gae_forgetting_at_observations(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, hidden="forget")


@mutant(
    "gae",
    hint="The next value was lost at a tool's reply. Which token's value follows the last one before it?",
)
def gae_losing_the_value_at_observations(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, hidden="value lost")


@mutant("gae", hint="The running sum shrinks by lam alone. By what else?")
def gae_trace_without_gamma(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, trace="lam")


@mutant("gae", hint="lam is not used. How much does a surprise two tokens away count?")
def gae_trace_without_lambda(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, trace="gamma")


@mutant("gae", hint="The next value is not discounted. Where does gamma stand in delta?")
def gae_with_an_undiscounted_value(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    return _gae(
        rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam, next_value="undiscounted"
    )


@mutant("gae", hint="You returned the critic's target, advantage plus value. Which of the two is asked for?")
def gae_returning_the_target(
    rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B=None, *, gamma=1.0, lam=0.95
):
    advantages_BT = _gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma, lam)
    return _keep(mask_BT, advantages_BT + values_BT.detach())


# ---- value_loss ------------------------------------------------------------------------------------------


def _value_errors(values_BT, returns_BT, mask_BT, values_old_BT, clip):
    error_BT = _keep(mask_BT, values_BT - returns_BT.detach())
    if clip is None:
        return error_BT, error_BT
    values_old_BT = values_old_BT.detach()
    clipped_BT = values_old_BT + (values_BT - values_old_BT).clamp(-clip, clip)
    return error_BT, _keep(mask_BT, clipped_BT - returns_BT.detach())


@mutant("value_loss", hint="The factor one half is missing. What should the gradient be?")
def value_loss_without_the_half(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    plain_BT, clipped_BT = _value_errors(values_BT, returns_BT, mask_BT, values_old_BT, clip)
    return torch.maximum(plain_BT.square(), clipped_BT.square())


@mutant("value_loss", hint="You took the smaller loss: the clip hides an error. min or max?")
def value_loss_with_min(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    plain_BT, clipped_BT = _value_errors(values_BT, returns_BT, mask_BT, values_old_BT, clip)
    return 0.5 * torch.minimum(plain_BT.square(), clipped_BT.square())


@mutant("value_loss", hint="Only the clipped value counts: a critic that has run away is never called back.")
def value_loss_clipped_only(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    return 0.5 * _value_errors(values_BT, returns_BT, mask_BT, values_old_BT, clip)[1].square()


@mutant("value_loss", hint="clip is not used. What is the second candidate?")
def value_loss_without_clip(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    return 0.5 * _keep(mask_BT, values_BT - returns_BT.detach()).square()


@mutant("value_loss", hint="You clipped the value around the return. Around what may it move?")
def value_loss_clipped_around_the_return(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    old_BT = None if values_old_BT is None else returns_BT
    plain_BT, clipped_BT = _value_errors(values_BT, returns_BT, mask_BT, old_BT, clip)
    return 0.5 * torch.maximum(plain_BT.square(), clipped_BT.square())


@mutant(
    "value_loss",
    hint="Gradient flows into the return: the target runs to meet the critic. What is constant here?",
)
def value_loss_with_a_live_target(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    return 0.5 * _keep(mask_BT, values_BT - returns_BT).square()


@mutant("value_loss", hint="Columns off the mask are in the loss. Which states did the policy act in?")
def value_loss_without_mask(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    everything_BT = torch.ones_like(mask_BT)
    plain_BT, clipped_BT = _value_errors(values_BT, returns_BT, everything_BT, values_old_BT, clip)
    return 0.5 * torch.maximum(plain_BT.square(), clipped_BT.square())


@mutant("value_loss", hint="You took the absolute error. Which loss makes the mean the best guess?")
def value_loss_absolute(values_BT, returns_BT, mask_BT, values_old_BT=None, *, clip=None):
    plain_BT, clipped_BT = _value_errors(values_BT, returns_BT, mask_BT, values_old_BT, clip)
    return 0.5 * torch.maximum(plain_BT.abs(), clipped_BT.abs())


# ---- kl --------------------------------------------------------------------------------------------------


def _gap(logp_BT, logp_ref_BT, mask_BT):
    return _keep(mask_BT, logp_BT - logp_ref_BT.detach())


@mutant("k1", hint="Your log ratio is upside down. Which policy is the KL measured from?")
def k1_upside_down(logp_BT, logp_ref_BT, mask_BT):
    return -_gap(logp_BT, logp_ref_BT, mask_BT)


@mutant(
    "k1", hint="You made it positive: the average is then no longer the KL. May a single value be negative?"
)
def k1_absolute(logp_BT, logp_ref_BT, mask_BT):
    return _gap(logp_BT, logp_ref_BT, mask_BT).abs()


@mutant("k1", hint="Columns off the mask are not 0. Where is the mask?")
def k1_without_mask(logp_BT, logp_ref_BT, mask_BT):
    return logp_BT - logp_ref_BT.detach()


@mutant("k1", hint="Gradient flows into the reference. Which policy is frozen?")
def k1_with_a_live_reference(logp_BT, logp_ref_BT, mask_BT):
    return _keep(mask_BT, logp_BT - logp_ref_BT)


@mutant("k2", hint="The factor one half is missing. What is half of a square's slope?")
def k2_without_the_half(logp_BT, logp_ref_BT, mask_BT):
    return _gap(logp_BT, logp_ref_BT, mask_BT).square()


@mutant("k2", hint="Gradient flows into the reference. Which policy is frozen?")
def k2_with_a_live_reference(logp_BT, logp_ref_BT, mask_BT):
    return 0.5 * _keep(mask_BT, logp_BT - logp_ref_BT).square()


@mutant("k2", hint="Columns off the mask are not 0. Where is the mask?")
def k2_without_mask(logp_BT, logp_ref_BT, mask_BT):
    return 0.5 * (logp_BT - logp_ref_BT.detach()).square()


@mutant("k2", hint="You squared the difference of probabilities. Which difference is squared?")
def k2_of_probabilities(logp_BT, logp_ref_BT, mask_BT):
    return 0.5 * _keep(mask_BT, logp_BT.exp() - logp_ref_BT.detach().exp()).square()


@mutant("k3", hint="u is upside down: pi / ref. Then the average is not the KL. Which way round is u?")
def k3_upside_down(logp_BT, logp_ref_BT, mask_BT):
    gap_BT = _gap(logp_BT, logp_ref_BT, mask_BT)
    return gap_BT.expm1() - gap_BT


@mutant("k3", hint="exp(x) - 1 loses its digits where the policies nearly agree. Which function does not?")
def k3_without_expm1(logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = -_gap(logp_BT, logp_ref_BT, mask_BT)
    return log_u_BT.exp() - 1 - log_u_BT


@mutant("k3", hint="The sign of log u is turned. Is your value ever negative?")
def k3_with_a_turned_logarithm(logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = -_gap(logp_BT, logp_ref_BT, mask_BT)
    return log_u_BT.expm1() + log_u_BT


@mutant("k3", hint="The 1 is missing: equal policies are 1 apart instead of 0.")
def k3_without_the_one(logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = -_gap(logp_BT, logp_ref_BT, mask_BT)
    return _keep(mask_BT, log_u_BT.exp() - log_u_BT)


@mutant("k3", hint="No gradient flows: this term is only watched, never felt. Where did you detach?")
def k3_without_gradient(logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = -_gap(logp_BT, logp_ref_BT, mask_BT)
    return (log_u_BT.expm1() - log_u_BT).detach() + 0 * log_u_BT


@mutant("k3", hint="Gradient flows into the reference. Which policy is frozen?")
def k3_with_a_live_reference(logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = _keep(mask_BT, logp_ref_BT - logp_BT)
    return log_u_BT.expm1() - log_u_BT


def _k3(logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = -_gap(logp_BT, logp_ref_BT, mask_BT)
    return log_u_BT.expm1() - log_u_BT


@mutant(
    "corrected_k3",
    hint="You detached the ratio, so only half of the gradient is left. What does the ratio differentiate to?",
)
def corrected_with_a_constant_ratio(ratio_BT, logp_BT, logp_ref_BT, mask_BT):
    return torch.where(mask_BT, ratio_BT.detach(), 1) * _k3(logp_BT, logp_ref_BT, mask_BT)


@mutant("corrected_k3", hint="You detached k3, so only half of the gradient is left.")
def corrected_with_a_constant_k3(ratio_BT, logp_BT, logp_ref_BT, mask_BT):
    k3_BT = _k3(logp_BT, logp_ref_BT, mask_BT)
    return torch.where(mask_BT, ratio_BT, 1) * k3_BT.detach() + 0 * k3_BT


@mutant("corrected_k3", hint="The ratio is not used: stale samples give a stale KL.")
def corrected_without_the_ratio(ratio_BT, logp_BT, logp_ref_BT, mask_BT):
    return _k3(logp_BT, logp_ref_BT, mask_BT)


@mutant(
    "corrected_k3",
    hint="You divided by the ratio. Which policy drew the samples, and which one do you ask about?",
)
def corrected_the_wrong_way(ratio_BT, logp_BT, logp_ref_BT, mask_BT):
    return _k3(logp_BT, logp_ref_BT, mask_BT) / torch.where(mask_BT, ratio_BT, 1)


@mutant("corrected_k3", hint="Gradient flows into the reference. Which policy is frozen?")
def corrected_with_a_live_reference(ratio_BT, logp_BT, logp_ref_BT, mask_BT):
    log_u_BT = _keep(mask_BT, logp_ref_BT - logp_BT)
    return torch.where(mask_BT, ratio_BT, 1) * (log_u_BT.expm1() - log_u_BT)


def _log_softmaxes(logits_BTV, logits_ref_BTV, temperature):
    return (logits_BTV / temperature).log_softmax(-1), (logits_ref_BTV.detach() / temperature).log_softmax(-1)


@mutant("exact_kl", hint="You computed KL(ref || pi). Whose probabilities weigh the logarithms?")
def exact_kl_of_the_other_direction(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV, logp_ref_BTV = _log_softmaxes(logits_BTV, logits_ref_BTV, temperature)
    return _keep(mask_BT, (logp_ref_BTV.exp() * (logp_ref_BTV - logp_BTV)).sum(-1))


@mutant("exact_kl", hint="temperature is not used. Which distribution were the tokens drawn from?")
def exact_kl_without_temperature(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV, logp_ref_BTV = _log_softmaxes(logits_BTV, logits_ref_BTV, 1.0)
    return _keep(mask_BT, (logp_BTV.exp() * (logp_BTV - logp_ref_BTV)).sum(-1))


@mutant("exact_kl", hint="You averaged over the vocabulary. A KL is a sum weighted by probabilities.")
def exact_kl_averaged(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV, logp_ref_BTV = _log_softmaxes(logits_BTV, logits_ref_BTV, temperature)
    return _keep(mask_BT, (logp_BTV.exp() * (logp_BTV - logp_ref_BTV)).mean(-1))


@mutant("exact_kl", hint="Columns off the mask are not 0. Where is the mask?")
def exact_kl_without_mask(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV, logp_ref_BTV = _log_softmaxes(logits_BTV, logits_ref_BTV, temperature)
    return (logp_BTV.exp() * (logp_BTV - logp_ref_BTV)).sum(-1)


@mutant("exact_kl", hint="A token forbidden in both models gives 0 * nan. What should it add?")
def exact_kl_with_forbidden_nan(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV, logp_ref_BTV = _log_softmaxes(logits_BTV, logits_ref_BTV, temperature)
    return _keep(mask_BT, (logp_BTV.exp() * (logp_BTV - logp_ref_BTV)).sum(-1))


@mutant("exact_kl", hint="The weights are detached: the gradient of the probabilities themselves is missing.")
def exact_kl_with_constant_weights(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV, logp_ref_BTV = _log_softmaxes(logits_BTV, logits_ref_BTV, temperature)
    p_BTV = logp_BTV.exp().detach()
    return _keep(mask_BT, (p_BTV * torch.where(p_BTV > 0, logp_BTV - logp_ref_BTV, 0)).sum(-1))


@mutant("exact_kl", hint="Gradient flows into the reference. Which policy is frozen?")
def exact_kl_with_a_live_reference(logits_BTV, logits_ref_BTV, mask_BT, *, temperature=1.0):
    logp_BTV = (logits_BTV / temperature).log_softmax(-1)
    logp_ref_BTV = (logits_ref_BTV / temperature).log_softmax(-1)
    p_BTV = logp_BTV.exp()
    return _keep(mask_BT, (p_BTV * torch.where(p_BTV > 0, logp_BTV - logp_ref_BTV, 0)).sum(-1))


# ---- aggregate -------------------------------------------------------------------------------------------


@mutant(
    "sequence_mean",
    hint="Rows without own tokens vanished from B. Does dropping a row change the others' weight?",
)
def sequence_mean_over_filled_rows(mask_BT):
    rows = mask_BT.any(dim=1).sum().clamp(min=1)
    return mask_BT.float() / (rows * mask_BT.sum(dim=1, keepdim=True).clamp(min=1))


@mutant("sequence_mean", hint="You divided by all columns, padding too. How many own tokens has the row?")
def sequence_mean_over_columns(mask_BT):
    return mask_BT.float() / mask_BT.numel()


@mutant("sequence_mean", hint="Every token weighs the same. That is the token mean; which is asked for?")
def sequence_mean_over_tokens(mask_BT):
    return mask_BT.float() / mask_BT.sum().clamp(min=1)


@mutant("sequence_mean", hint="You did not divide by the number of rows. What if the batch doubles?")
def sequence_mean_without_rows(mask_BT):
    return mask_BT.float() / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


@mutant(
    "sequence_mean",
    hint="A row without own tokens gives 0 / 0 = nan. What is the smallest length to divide by?",
)
def sequence_mean_without_a_smallest_length(mask_BT):
    return mask_BT.float() / (mask_BT.shape[0] * mask_BT.sum(dim=1, keepdim=True))


@mutant(
    "token_mean", hint="You averaged within rows first: short answers' tokens weigh more. Which is asked for?"
)
def token_mean_by_rows(mask_BT):
    return mask_BT.float() / (mask_BT.shape[0] * mask_BT.sum(dim=1, keepdim=True).clamp(min=1))


@mutant("token_mean", hint="You divided by all columns, padding too. How many own tokens has the batch?")
def token_mean_over_columns(mask_BT):
    return mask_BT.float() / mask_BT.numel()


@mutant("token_mean", hint="An empty mask gives 0 / 0 = nan. What is the smallest count to divide by?")
def token_mean_without_a_smallest_count(mask_BT):
    return mask_BT.float() / mask_BT.sum()


@mutant(
    "constant_mean",
    hint="You divided by the tokens that are there. The point is a number no answer can change.",
)
def constant_mean_over_tokens(mask_BT, *, length):
    return mask_BT.float() / mask_BT.sum().clamp(min=1)


@mutant(
    "constant_mean",
    hint="You divided by the columns of this batch. Tomorrow's batch may be wider: what is length for?",
)
def constant_mean_over_columns(mask_BT, *, length):
    return mask_BT.float() / mask_BT.numel()


@mutant("constant_mean", hint="You did not divide by the number of rows. What if the batch doubles?")
def constant_mean_without_rows(mask_BT, *, length):
    return mask_BT.float() / length


@mutant("sequence_sum_mean", hint="You divided by each row's length. Here the row's sum is wanted.")
def sequence_sum_by_length(mask_BT):
    return mask_BT.float() / (mask_BT.shape[0] * mask_BT.sum(dim=1, keepdim=True).clamp(min=1))


@mutant("sequence_sum_mean", hint="You did not divide by the number of rows. What if the batch doubles?")
def sequence_sum_without_rows(mask_BT):
    return mask_BT.float()


@mutant(
    "sequence_sum_mean",
    hint="Rows without own tokens vanished from B. Does dropping a row change the others' weight?",
)
def sequence_sum_over_filled_rows(mask_BT):
    return mask_BT.float() / mask_BT.any(dim=1).sum().clamp(min=1)


@mutant("weighted_sum", hint="You averaged after weighting. The weights already hold every denominator.")
def weighted_mean(loss_BT, weights_BT, mask_BT):
    return _keep(mask_BT, loss_BT * weights_BT.detach()).mean()


@mutant("weighted_sum", hint="Columns off the mask are in the sum. Where is the mask?")
def weighted_sum_without_mask(loss_BT, weights_BT, mask_BT):
    return (loss_BT * weights_BT.detach()).sum()


@mutant(
    "weighted_sum", hint="You multiplied by the mask, and 0 * nan is nan. Which function chooses instead?"
)
def weighted_sum_by_multiplying(loss_BT, weights_BT, mask_BT):
    return (loss_BT * weights_BT.detach() * mask_BT).sum()


@mutant("weighted_sum", hint="The weights are not used. What is each token's share?")
def weighted_sum_without_weights(loss_BT, weights_BT, mask_BT):
    return _keep(mask_BT, loss_BT).sum()


@mutant("weighted_sum", hint="Gradient flows into the weights. They are counts, not something to learn.")
def weighted_sum_with_live_weights(loss_BT, weights_BT, mask_BT):
    return (_keep(mask_BT, loss_BT) * _keep(mask_BT, weights_BT)).sum()


# ---- diagnostics -----------------------------------------------------------------------------------------


@mutant("effective_sample_size", hint="You gave a number of tokens, not a share. By what is it divided?")
def ess_as_a_count(ratio_BT, mask_BT):
    w_BT = _keep(mask_BT, ratio_BT.detach())
    return w_BT.sum().square() / w_BT.square().sum().clamp(min=1e-300)


@mutant(
    "effective_sample_size",
    hint="Your fraction is upside down: equal weights should give 1, and nothing more than 1.",
)
def ess_upside_down(ratio_BT, mask_BT):
    w_BT = _keep(mask_BT, ratio_BT.detach())
    return mask_BT.sum() * w_BT.square().sum() / w_BT.sum().square().clamp(min=1e-300)


@mutant("effective_sample_size", hint="You divided by all columns. How many own tokens are there?")
def ess_over_columns(ratio_BT, mask_BT):
    w_BT = _keep(mask_BT, ratio_BT.detach())
    return w_BT.sum().square() / (mask_BT.numel() * w_BT.square().sum()).clamp(min=1e-300)


@mutant(
    "effective_sample_size",
    hint="A square has overflowed. What can you divide all weights by without changing the share?",
)
def ess_that_overflows(ratio_BT, mask_BT):
    w_BT = _keep(mask_BT, ratio_BT.detach())
    return w_BT.sum().square() / (mask_BT.sum() * w_BT.square().sum()).clamp(min=torch.finfo(w_BT.dtype).tiny)


@mutant("entropy", hint="Your sign is turned: an entropy is never negative.")
def entropy_with_the_wrong_sign(logits_BTV, *, temperature=1.0):
    logp_BTV = (logits_BTV / temperature).log_softmax(-1)
    return (logp_BTV.exp() * logp_BTV.clamp(min=-1e30)).sum(-1)


@mutant("entropy", hint="You counted in bits. The course counts in nats: which logarithm?")
def entropy_in_bits(logits_BTV, *, temperature=1.0):
    logp_BTV = (logits_BTV / temperature).log_softmax(-1)
    return -(logp_BTV.exp() * logp_BTV.clamp(min=-1e30)).sum(-1) / math.log(2)


@mutant("entropy", hint="You averaged over the vocabulary. An entropy is a sum weighted by probabilities.")
def entropy_averaged(logits_BTV, *, temperature=1.0):
    logp_BTV = (logits_BTV / temperature).log_softmax(-1)
    return -(logp_BTV.exp() * logp_BTV.clamp(min=-1e30)).mean(-1)


@mutant("entropy", hint="temperature is not used. Which distribution are tokens drawn from?")
def entropy_without_temperature(logits_BTV, *, temperature=1.0):
    logp_BTV = logits_BTV.log_softmax(-1)
    return -(logp_BTV.exp() * logp_BTV.clamp(min=-1e30)).sum(-1)


@mutant("entropy", hint="A forbidden token gives 0 * (-inf) = nan. What should it add?")
def entropy_with_forbidden_nan(logits_BTV, *, temperature=1.0):
    logp_BTV = (logits_BTV / temperature).log_softmax(-1)
    return -(logp_BTV.exp() * logp_BTV).sum(-1)


def _variance(x_BT, mask_BT):
    return x_BT[mask_BT].var(correction=0) if mask_BT.any() else torch.zeros(())


@mutant("explained_variance", hint="You gave the share that is left *un*explained. What is 1 minus it?")
def unexplained_variance(values_BT, returns_BT, mask_BT):
    total = _variance(returns_BT, mask_BT)
    return torch.where(total > 0, _variance(returns_BT - values_BT, mask_BT) / total, 0)


@mutant(
    "explained_variance", hint="You divided by the critic's variance. Whose differences should be explained?"
)
def variance_explained_of_the_critic(values_BT, returns_BT, mask_BT):
    total = _variance(values_BT, mask_BT)
    return torch.where(total > 0, 1 - _variance(returns_BT - values_BT, mask_BT) / total, 0)


@mutant(
    "explained_variance",
    hint="You averaged the squared error itself: a constant error counts. Is that a variance?",
)
def explained_squared_error(values_BT, returns_BT, mask_BT):
    total = _variance(returns_BT, mask_BT)
    error = (returns_BT - values_BT)[mask_BT].square().sum() / mask_BT.sum().clamp(min=1)
    return torch.where(total > 0, 1 - error / total, 0)


@mutant(
    "explained_variance",
    hint="You took columns off the mask into account. Which states did the policy act in?",
)
def explained_variance_of_everything(values_BT, returns_BT, mask_BT):
    total = returns_BT.var(correction=0)
    return torch.where(total > 0, 1 - (returns_BT - values_BT).var(correction=0) / total, 0)


@mutant(
    "explained_variance",
    hint="Equal returns left rounding noise in the denominator. When is there nothing to explain?",
)
def explained_rounding_noise(values_BT, returns_BT, mask_BT):
    total = _variance(returns_BT, mask_BT)
    return torch.where(total > 0, 1 - _variance(returns_BT - values_BT, mask_BT) / total, 0)


def _outside(ratio_BT, eps_low, eps_high):
    return ratio_BT > 1 + eps_high, ratio_BT < 1 - eps_low


def _share(hit_BT, mask_BT):
    return (hit_BT & mask_BT).float().sum() / mask_BT.sum().clamp(min=1)


@mutant(
    "clip_fraction",
    hint="You counted every ratio outside the band. With the other sign of A its gradient is kept.",
)
def fraction_outside_the_band(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high, delta=None):
    above_BT, below_BT = _outside(ratio_BT, eps_low, eps_high)
    return _share(above_BT | below_BT, mask_BT)


@mutant(
    "clip_fraction", hint="You counted the two quadrants that are *kept*. Which way has a cut token moved?"
)
def fraction_of_the_kept_quadrants(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high, delta=None):
    above_BT, below_BT = _outside(ratio_BT, eps_low, eps_high)
    return _share(((advantages_BT < 0) & above_BT) | ((advantages_BT > 0) & below_BT), mask_BT)


@mutant("clip_fraction", hint="You ignored delta. Which bad tokens does it cut?")
def fraction_without_delta(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high, delta=None):
    above_BT, below_BT = _outside(ratio_BT, eps_low, eps_high)
    return _share(((advantages_BT > 0) & above_BT) | ((advantages_BT < 0) & below_BT), mask_BT)


@mutant("clip_fraction", hint="You divided by all columns. How many own tokens are there?")
def fraction_of_all_columns(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high, delta=None):
    above_BT, below_BT = _outside(ratio_BT, eps_low, eps_high)
    cut_BT = ((advantages_BT > 0) & above_BT) | ((advantages_BT < 0) & below_BT)
    if delta is not None:
        cut_BT |= (advantages_BT < 0) & (ratio_BT > delta)
    return (cut_BT & mask_BT).float().mean()


def _quadrants(ratio_BT, advantages_BT, mask_BT, eps_low, eps_high):
    above_BT, below_BT = _outside(ratio_BT, eps_low, eps_high)
    good_BT, bad_BT = advantages_BT > 0, advantages_BT < 0
    hits = {"good_above": good_BT & above_BT, "bad_below": bad_BT & below_BT}
    hits |= {"good_below": good_BT & below_BT, "bad_above": bad_BT & above_BT}
    return {name: _share(hit_BT, mask_BT) for name, hit_BT in hits.items()}


@mutant("quadrant_fractions", hint="Good and bad are swapped. Which sign of A is good?")
def quadrants_with_swapped_signs(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high):
    return _quadrants(ratio_BT, -advantages_BT, mask_BT, eps_low, eps_high)


@mutant(
    "quadrant_fractions",
    hint="The bounds are swapped: 1 - eps_high and 1 + eps_low. Which one belongs above?",
)
def quadrants_with_one_bound(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high):
    return _quadrants(ratio_BT, advantages_BT, mask_BT, eps_low, eps_high + 1)


@mutant("quadrant_fractions", hint="Columns off the mask are counted. Whose tokens are asked for?")
def quadrants_of_everything(ratio_BT, advantages_BT, mask_BT, *, eps_low, eps_high):
    return _quadrants(ratio_BT, advantages_BT, torch.ones_like(mask_BT), eps_low, eps_high)


@mutant("masked_fraction", hint="You gave the share that is kept. Which share is masked?")
def fraction_kept(kept_BT, mask_BT):
    return _share(kept_BT, mask_BT)


@mutant("masked_fraction", hint="You divided by all columns. How many own tokens are there?")
def fraction_of_columns_masked(kept_BT, mask_BT):
    return (~kept_BT & mask_BT).float().mean()


@mutant("masked_fraction", hint="Columns off the mask count as thrown out. Whose tokens are asked for?")
def fraction_masked_of_everything(kept_BT, mask_BT):
    return (~(kept_BT & mask_BT)).float().mean()


@mutant("parameter_change", hint="You forgot the root. What is the length of a vector?")
def change_squared(before, after):
    return sum(
        ((new - old).detach().square().sum() for old, new in zip(before, after, strict=True)), torch.zeros(())
    )


@mutant(
    "parameter_change", hint="You added up the lengths of the parts. How do 3 and 4 add up at a right angle?"
)
def change_of_the_parts_added(before, after):
    return sum(((new - old).detach().norm() for old, new in zip(before, after, strict=True)), torch.zeros(()))


@mutant("parameter_change", hint="You compared lengths: a turn without stretching would count as no change.")
def change_of_the_lengths(before, after):
    def length(tensors):
        return sum((x.detach().square().sum() for x in tensors), torch.zeros(())).sqrt()

    return (length(after) - length(before)).abs()


@mutant(
    "zero_variance_fraction",
    hint="Your groups run down the columns. Answer g of prompt p stands in row p * G + g.",
)
def dead_fraction_of_interleaved_groups(rewards_B, *, group_size):
    rewards_PG = _interleaved(rewards_B, group_size)
    return (rewards_PG.amax(dim=1) == rewards_PG.amin(dim=1)).float().mean()


@mutant(
    "zero_variance_fraction", hint="You gave the share of groups that are alive. Which share teaches nothing?"
)
def live_fraction(rewards_B, *, group_size):
    rewards_PG = rewards_B.reshape(-1, group_size)
    return (rewards_PG.amax(dim=1) > rewards_PG.amin(dim=1)).float().mean()


@mutant(
    "zero_variance_fraction",
    hint="Only groups without any reward were counted. What about a prompt that everyone solves?",
)
def fraction_all_wrong(rewards_B, *, group_size):
    return (rewards_B.reshape(-1, group_size).amax(dim=1) == 0).float().mean()


@mutant(
    "zero_variance_fraction",
    hint="You tested for a small standard deviation. Rounding is not equality: max and min are exact.",
)
def fraction_of_small_spread(rewards_B, *, group_size):
    return (rewards_B.reshape(-1, group_size).std(dim=1, correction=0) < 1e-4).float().mean()
