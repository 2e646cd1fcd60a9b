"""What to look at while a policy learns."""

import math
from statistics import pvariance

import torch

from grpo_lab.teach.answers.tools import (
    EVERY,
    HIDDEN_NAN,
    NINF,
    NO_SLOPE,
    TENTHS,
    logs,
    nothing,
    own,
    x,
)
from grpo_lab.teach.judge import NAN, Probe

P = (0.5, 0.25, 0.25)
LOGITS = logs([[P]]) + 1
ENTROPY = 1.5 * math.log(2)
SHARP = -(2 / 3 * math.log(2 / 3) + 2 / 6 * math.log(1 / 6))  # of 2/3, 1/6, 1/6: temperature 0.5
BAND = {"eps_low": 0.2, "eps_high": 0.2}
RETURNS, VALUES = x([[0, 4, 20]]), x([[1, 3, 0]])  # the third is hidden
QUADRANTS = (x([[2, 2, 2, 0.5, 0.5, 1.3, 1, 2]]), x([[1, 1, -1, -1, 1, 1, 1, 1]]), own("11111110"))
NAMES = ("good_above", "bad_below", "good_below", "bad_above")


def _shares(*shares: float) -> dict[str, float]:
    return dict(zip(NAMES, shares, strict=True))


PROBES = {
    "effective_sample_size": (
        Probe(
            (x([[1, 3, 50]]), own("110")),
            0.8,  # 4 * 4 / (2 * 10)
            {
                "You gave a number of tokens, not a share. By what is it divided?": 1.6,
                "Your fraction is upside down: equal weights should give 1, and nothing more than 1.": 1.25,
                "You divided by all columns. How many own tokens are there?": 16 / 30,
                "Columns off the mask are weighed too. Where is the mask?": 54**2 / (3 * 2510),
            },
        ),
        Probe(
            (x([[1e20, 1e20]], torch.float32), own("11")),
            1,
            {
                "A square has overflowed. What can you divide all weights by without changing the share?": (
                    lambda answer, right: not bool((answer - 1).abs() < 1e-4)
                )
            },
        ),
        Probe((x([[1, math.nan, 3]]), own("101")), 0.8, {HIDDEN_NAN: NAN}),
        Probe((x([[1, 3]]), own("00")), 0, {"Nothing to weigh gives 0 / 0 = nan. It should give 0.": NAN}),
    ),
    "entropy": (
        Probe(
            (LOGITS,),
            [[ENTROPY]],
            {
                "Your sign is turned: an entropy is never negative.": [[-ENTROPY]],
                "You counted in bits. The course counts in nats: which logarithm?": [[1.5]],
                "You averaged over the vocabulary. An entropy is a sum weighted by probabilities.": [
                    [ENTROPY / 3]
                ],
            },
        ),
        Probe(
            (LOGITS,),
            [[SHARP]],
            {"temperature is not used. Which distribution are tokens drawn from?": [[ENTROPY]]},
            {"temperature": 0.5},
        ),
        Probe(
            (x([[[0, 0, NINF]]]),),
            [[math.log(2)]],
            {"A forbidden token gives 0 * (-inf) = nan. What should it add?": NAN},
        ),
        Probe((LOGITS,), [[[-p * (math.log(p) + ENTROPY) for p in P]]], {NO_SLOPE: nothing}, slope=0),
    ),
    "explained_variance": (
        Probe(
            (VALUES, RETURNS, own("110")),  # errors -1 and 1, returns 0 and 4: 1 - 1/4
            0.75,
            {
                "You gave the share that is left *un*explained. What is 1 minus it?": 0.25,
                "You divided by the critic's variance. Whose differences should be explained?": 0,
                "You took columns off the mask into account. Which states did the policy act in?": (
                    1 - pvariance((-1, 1, 20)) / pvariance((0, 4, 20))
                ),
            },
        ),
        Probe(
            (x([[1, 5]]), x([[0, 4]]), own("11")),
            1,
            {"You averaged the squared error itself: a constant error counts. Is that a variance?": 0.75},
        ),
        Probe(
            (x([[0, 1] * 4], torch.float32), TENTHS, EVERY),
            0,
            {
                "Equal returns left rounding noise in the denominator. When is there nothing to explain?": (
                    lambda answer, right: bool(answer.abs() > 1e3)
                ),
                "Equal returns have variance 0, and that was divided by. When is there nothing to explain?": NAN,
            },
            within=0,
        ),
        Probe((x([[1, math.nan, 3]]), x([[0, math.nan, 4]]), own("101")), 0.75, {HIDDEN_NAN: NAN}),
    ),
    "clip_fraction": (
        Probe(
            (x([[1.5, 1.5, 1.5, 0.5, 1, 9]]), x([[1, 1, -1, -1, 1, 1]]), own("111110")),
            3 / 5,
            {
                "You counted every ratio outside the band. With the other sign of A its gradient is kept.": 4
                / 5,
                "You counted the two quadrants that are *kept*. Which way has a cut token moved?": 1 / 5,
                "You divided by all columns. How many own tokens are there?": 3 / 6,
                "Columns off the mask are counted. Whose tokens are asked for?": 4 / 6,
                "You gave the number of tokens, not a share. By what is it divided?": 3,
            },
            BAND,
        ),
        Probe(
            (x([[5, 1]]), x([[-1, 1]]), own("11")),
            1 / 2,
            {"You ignored delta. Which bad tokens does it cut?": 0},
            {"delta": 3.0, **BAND},
        ),
        Probe(
            (x([[0.7, 0.7, 1.2, 5, 5, 5]]), x([[-1, -1, 1, 0, 0, 0]]), own("111111")),
            1 / 6,
            {
                "The bounds are swapped: 1 - eps_high and 1 + eps_low. Which one belongs above?": 2 / 6,
                "Tokens with A = 0 were counted as cut. Which gradient did they have to lose?": 4 / 6,
            },
            {"eps_low": 0.4, "eps_high": 0.1},
        ),
        Probe(
            (x([[2]]), x([[1]]), own("0")),
            0,
            {"An empty mask gives 0 / 0 = nan. It should give 0.": NAN},
            BAND,
        ),
    ),
    "quadrant_fractions": (
        Probe(
            QUADRANTS,
            _shares(2 / 7, 1 / 7, 1 / 7, 1 / 7),
            {
                "Good and bad are swapped. Which sign of A is good?": [1 / 7, 1 / 7, 1 / 7, 2 / 7],
                "Columns off the mask are counted. Whose tokens are asked for?": [3 / 8, 1 / 8, 1 / 8, 1 / 8],
                "The bounds are swapped: 1 - eps_high and 1 + eps_low. Which one belongs above?": [
                    3 / 7,
                    0,
                    0,
                    1 / 7,
                ],
                "Your upper bound is too high: it should be 1 + eps_high. What did you add to what?": [
                    0,
                    1 / 7,
                    1 / 7,
                    0,
                ],
            },
            {"eps_low": 0.2, "eps_high": 0.5},
        ),
    ),
    "masked_fraction": (
        Probe(
            (own("10110"), own("11110")),
            1 / 4,
            {
                "You gave the share that is kept. Which share is masked?": 3 / 4,
                "You divided by all columns. How many own tokens are there?": 1 / 5,
                "Columns off the mask count as thrown out. Whose tokens are asked for?": 2 / 5,
            },
        ),
        Probe((own("1"), own("0")), 0, {"An empty mask gives 0 / 0 = nan. It should give 0.": NAN}),
    ),
    "parameter_change": (
        Probe(
            ([x([0, 0]), x([1])], [x([3, 0]), x([5])]),  # steps of 3 and of 4, at a right angle
            5,
            {
                "You forgot the root. What is the length of a vector?": 25,
                "You added up the lengths of the parts. How do 3 and 4 add up at a right angle?": 7,
                "You compared lengths: a turn without stretching would count as no change.": 34**0.5 - 1,
            },
        ),
    ),
    "zero_variance_fraction": (
        Probe(
            (x([0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1]),),
            5 / 6,
            {
                "Your groups run down the columns. Answer g of prompt p stands in row p * G + g.": 3 / 6,
                "You gave the share of groups that are alive. Which share teaches nothing?": 1 / 6,
                "Only groups without any reward were counted. What about a prompt that everyone solves?": 2
                / 6,
                "You gave the number of groups, not a share. By what is it divided?": 5,
            },
            {"group_size": 2},
        ),
        Probe(
            (x([1, 1.00001]),),
            0,
            {
                "You tested for a small standard deviation. Rounding is not equality: max and min are exact.": 1
            },
            {"group_size": 2},
        ),
    ),
}
