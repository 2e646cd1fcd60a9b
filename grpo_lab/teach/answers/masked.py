"""Sums, means and spreads over the own tokens."""

from grpo_lab.teach.answers.tools import EVERY, HIDDEN_NAN, TENTHS, noise, own, x
from grpo_lab.teach.judge import NAN, Probe

NUMBERS, MASK = x([[1, 2, 60], [6, 80, 90]]), own("110", "100")  # kept: 1, 2, 6
WITH_NAN, MIDDLE = x([[1, float("nan"), 3]]), own("101")
EMPTY = (x([[1, 2]]), own("00"))
NOISE = "Equal entries left rounding noise: eight times 0.1 in float32. What could you subtract?"

PROBES = {
    "masked_sum": (
        Probe(
            (NUMBERS, MASK),
            9,
            {
                "You added up every entry, own token or not. Where does the mask come in?": 239,
                "You added up what the mask hides. Does True mean kept or hidden?": 230,
            },
        ),
        Probe(
            (WITH_NAN, MIDDLE),
            4,
            {"You multiplied by the mask, and 0 * nan is nan. Which function chooses instead?": NAN},
        ),
        Probe((NUMBERS, MASK), [3, 6], kwargs={"dim": 1}, about="dim=1 asks for one sum a row."),
        Probe((NUMBERS, MASK), [7, 2, 0], kwargs={"dim": 0}, about="dim=0 asks for one sum a column."),
        Probe(EMPTY, 0, about="Nothing kept should give 0."),
        Probe((WITH_NAN, MIDDLE), [[1, 0, 1]], slope=0),
    ),
    "masked_mean": (
        Probe(
            (NUMBERS, MASK),
            3,
            {
                "You divided by all entries, hidden ones too. How many are kept?": 9 / 6,
                "You took the mean of the rows' means, so short rows count more. Which is asked for?": 3.75,
                "You averaged every entry, own token or not. Where does the mask come in?": 239 / 6,
            },
        ),
        Probe((NUMBERS, MASK), [1.5, 6], kwargs={"dim": 1}, about="dim=1 asks for one mean a row."),
        Probe((WITH_NAN, MIDDLE), 2, {HIDDEN_NAN: NAN}),
        Probe(EMPTY, 0, {"An empty mask gives 0 / 0 = nan. What is the smallest count to divide by?": NAN}),
        Probe((NUMBERS, MASK), [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0]], slope=0),
    ),
    "masked_var": (
        Probe(
            (NUMBERS, MASK),
            14 / 3,  # mean 3, distances -2, -1, 3
            {
                "You always divided by n - 1. What does ddof say?": 7,
                "You averaged the squares themselves. From what is the distance measured?": 41 / 3,
                "You gave the standard deviation. Is a root asked for?": (14 / 3) ** 0.5,
            },
            kwargs={"ddof": 0},
        ),
        Probe(
            (NUMBERS, MASK),
            7,
            {"ddof is not used: with ddof=1 three numbers divide by 2.": 14 / 3},
            {"ddof": 1},
        ),
        Probe((TENTHS, EVERY), 0, {NOISE: noise}, within=0),
        Probe((WITH_NAN, MIDDLE), 1, {HIDDEN_NAN: NAN}),
        Probe(EMPTY, 0, {"An empty mask gives 0 / 0 = nan. What is the smallest count to divide by?": NAN}),
        Probe(
            (x([[4, 2]]), own("10")),
            0,
            {"A single entry gives 0 / 0 with ddof=1. What is the smallest count to divide by?": NAN},
            {"ddof": 1},
        ),
    ),
    "masked_whiten": (
        Probe(
            (x([[0, 4, 14]]), own("110")),  # mean 2, spread 2
            [[-0.5, 0.5, 0]],
            {
                "You added eps to the variance. Where does the equation add it?": [
                    [-2 / 6**0.5, 2 / 6**0.5, 0]
                ],
                "You divided by n - 1 under the root. Which ddof does the equation name?": [
                    [-2 / (2 + 8**0.5), 2 / (2 + 8**0.5), 0]
                ],
                "You took mean and spread over hidden entries too. Where does the mask come in?": [
                    [-6 / (2 + (104 / 3) ** 0.5), -2 / (2 + (104 / 3) ** 0.5), 0]
                ],
                "Entries off the mask are not 0. What should a hidden entry become?": [[-0.5, 0.5, 3]],
                "eps is not used. What keeps nearly equal entries from blowing up?": [[-1, 1, 0]],
            },
            {"eps": 2.0},
        ),
        Probe(
            (TENTHS, EVERY),
            [[0] * 8],
            {
                "Equal entries became rounding noise divided by eps. What if nothing varies?": noise,
                "Equal entries have spread 0, and something was divided by it. What if nothing varies?": NAN,
            },
            {"eps": 1e-8},
            within=0,
        ),
        Probe((WITH_NAN, MIDDLE), [[-0.5, 0, 0.5]], {HIDDEN_NAN: NAN}, {"eps": 1.0}),
    ),
}
