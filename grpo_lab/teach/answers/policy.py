"""Log-probabilities of tokens, REINFORCE, and the return a token is rewarded with."""

import math

from grpo_lab.teach.answers.tools import HIDDEN_NAN, NO_SLOPE, nothing, own, some, x
from grpo_lab.teach.judge import NAN, Probe

# Three positions, three tokens; each position's logits are the logs of its probabilities plus 1, 2, 3.
P = ((0.5, 0.3, 0.2), (0.1, 0.55, 0.35), (0.25, 0.15, 0.6))
LOGITS = x([[[math.log(p) + position + 1 for p in row] for position, row in enumerate(P)]])
IDS = x([[2, 1, 0]]).long()
log = math.log


def _at(power: float, position: int, token: int) -> float:
    """log of the token's probability when all probabilities are raised to this power and made to add up to 1."""
    return math.log(P[position][token] ** power / sum(p**power for p in P[position]))


PROBES = {
    "token_logprobs": (
        Probe(
            (LOGITS, IDS),
            [[log(0.3), log(0.1)]],  # token 1 after the first, token 0 after the second
            {
                "You scored each token with logits that have already read it. Which column predicts it?": [
                    [log(0.55), log(0.25)]
                ],
                "You took the first ids with the first logits: those have read them. What does column s predict?": [
                    [log(0.2), log(0.55)]
                ],
                "You shifted the other way: column s predicts token s + 1. Which of the two moves?": [
                    [log(0.35), log(0.15)]
                ],
                "You returned the negative log-likelihood. Can a log-probability be above 0?": [
                    [-log(0.3), -log(0.1)]
                ],
                "You returned the chosen logits as they are. What makes them probabilities?": [
                    [log(0.3) + 1, log(0.1) + 2]
                ],
                "You took the most likely token, not the one that was sampled. Which ids are asked for?": [
                    [log(0.5), log(0.55)]
                ],
                "You returned probabilities. Their logarithms are asked for.": [[0.3, 0.1]],
            },
        ),
        Probe(
            (LOGITS, IDS),
            [[_at(2, 0, 1), _at(2, 1, 0)]],
            {
                "You scored at temperature 1 whatever the tokens were sampled at. What divides the logits?": [
                    [log(0.3), log(0.1)]
                ],
                "You multiplied by the temperature. Does a high temperature flatten or sharpen?": [
                    [_at(0.5, 0, 1), _at(0.5, 1, 0)]
                ],
                "You divided the log-probabilities by the temperature: they no longer add up to one.": [
                    [log(0.3) * 2, log(0.1) * 2]
                ],
                "You divided the probabilities by the temperature: they no longer add up to 1. What does it divide?": [
                    [log(0.3 * 2), log(0.1 * 2)]
                ],
            },
            {"temperature": 0.5},
        ),
        Probe(
            (LOGITS[:, :2], IDS),
            [[log(0.3), log(0.1)]],
            about="One column of logits less should be fine too.",
        ),
        Probe((LOGITS[:, :2], IDS[:, :2]), [[[-0.5, 0.7, -0.2], [0, 0, 0]]], {NO_SLOPE: nothing}, slope=0),
    ),
    "policy_gradient": (
        Probe(
            (x([[-1, -2, -3]]), x([[2, -1, 5]]), own("110")),
            [[2, -2, 0]],
            {
                "Your sign is turned: an optimiser walks *down* the loss. Which way should a good token go?": [
                    [-2, 2, 0]
                ],
                "Tokens off the mask are in the loss: the policy did not write them. Where is the mask?": [
                    [2, -2, 15]
                ],
                "You used the probability instead of its logarithm: rare tokens learn too little.": [
                    [-2 * math.exp(-1), math.exp(-2), 0]
                ],
                "You used the size of the advantage and lost its sign. What should a bad token do?": [
                    [2, 2, 0]
                ],
            },
        ),
        Probe(
            (x([[-1, -2, -3]]), x([[2, -1, 5]]), own("110")),
            [[0, 0, 0]],
            {"Gradient flows into the advantage. Which of the two factors is the policy's?": some},
            slope=1,
        ),
        Probe((x([[-1, -2, -3]]), x([[2, -1, 5]]), own("110")), [[-2, 1, 0]], {NO_SLOPE: nothing}, slope=0),
        Probe((x([[-1, math.nan]]), x([[2, math.nan]]), own("10")), [[2, 0]], {HIDDEN_NAN: NAN}),
        Probe((x([[-1, math.nan]]), x([[2, math.nan]]), own("10")), [[-2, 0]], {HIDDEN_NAN: NAN}, slope=0),
    ),
    "reward_to_go": (
        Probe(
            (x([[1, 2, 50, 8]]), own("1101")),
            [[4, 6, 0, 8]],  # 8; 2 + 8/2; 1 + 6/2
            {
                "Every token got the whole return, even for rewards before it. Where does its sum begin?": [
                    [4, 4, 0, 4]
                ],
                "The token's own reward is missing from its sum. Is the reward at t after token t?": [
                    [3, 4, 0, 0]
                ],
                "gamma also counted columns the policy did not write. Over which steps does it run?": [
                    [3, 4, 0, 8]
                ],
                "gamma is not used. What is a reward two steps away worth?": [[11, 10, 0, 8]],
                "You summed from the front: rewards so far, not rewards to come. Which way does the loop run?": [
                    [1, 2.5, 0, 9.25]
                ],
                "A reward off the mask was added. Who wrote that column?": [[15.5, 29, 0, 8]],
                "Each token got its own reward only. What about those that came later?": [[1, 2, 0, 8]],
                "Columns off the mask are not 0. What should a hidden column hold?": [[4, 6, 8, 8]],
            },
            {"gamma": 0.5},
        ),
        Probe((x([[0, 0, 1], [0, 5, 0]]), own("111", "000")), [[1, 1, 1], [0, 0, 0]], kwargs={"gamma": 1.0}),
        Probe((x([[1, math.nan, 8]]), own("101")), [[5, 0, 8]], {HIDDEN_NAN: NAN}, {"gamma": 0.5}),
        Probe(
            (x([[1, 2, 8]]), own("111")),  # the commonest mistakes alone, without gamma and hidden columns
            [[11, 10, 8]],
            {
                "Every token got the whole return, even for rewards before it. Where does its sum begin?": [
                    [11, 11, 11]
                ],
                "You summed from the front: rewards so far, not rewards to come. Which way does the loop run?": [
                    [1, 3, 11]
                ],
            },
        ),
    ),
}
