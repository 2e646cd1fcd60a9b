"""Ratios against another policy: of a token, of an answer as a geometric mean, of an answer as a product."""

import math

from grpo_lab.teach.answers.tools import NO_SLOPE, anything, logs, nothing, own, some, x
from grpo_lab.teach.judge import NAN, Probe

LIVE = "Gradient flows into the denominator. Which policy is a constant here?"
NOW, THEN, MASK = (
    logs([[0.6, 0.3, 0.5]]),
    logs([[0.3, 0.2, 0.1]]),
    own("110"),
)  # token ratios 2, 1.5, hidden 5
# Two answers: token ratios 4 and 1 (hidden 5), and 9 (hidden 3 and 3).
NOW_2, THEN_2 = logs([[0.8, 0.2, 0.5], [0.9, 0.3, 0.3]]), logs([[0.2, 0.2, 0.1], [0.1, 0.1, 0.1]])
MASK_2 = own("110", "100")
OFF = "Off the mask the ratio should be 1: those tokens are neither more nor less likely. What stands there now?"
LATE = (x([[-1, 800]]), x([[-1, -1]]), own("10"))  # exp(801) is inf

TOKEN = (
    Probe(
        (NOW, THEN, MASK),
        [[2, 1.5, 1]],
        {
            "Your ratio is upside down. Which policy stands in the numerator?": [[0.5, 2 / 3, 1]],
            "Your ratio is 1 whatever the other policy is: you compared logp with itself.": [[1, 1, 1]],
            "You subtracted log-probabilities and stopped. What turns a log ratio into a ratio?": [
                [math.log(2), math.log(1.5), 0]
            ],
            "You divided log-probabilities. What is log(a / b)?": [
                [math.log(0.6) / math.log(0.3), math.log(0.3) / math.log(0.2), 1]
            ],
            "You multiplied the token ratios of the row. Which of them is asked for here?": [[3, 3, 1]],
            OFF: lambda answer, right: answer[0, 0] == right[0, 0] and abs(answer[0, 1] - 1.5) < 1e-6,
        },
    ),
    Probe((NOW, THEN, MASK), [[0, 0, 0]], {LIVE: some}, slope=1),
    Probe((NOW, THEN, MASK), [[2, 1.5, 0]], {NO_SLOPE: nothing}, slope=0),
    Probe(
        LATE,
        [[1, 0]],
        {"You masked after exp: an inf off the mask makes the gradient nan. What comes first?": NAN},
        slope=0,
    ),
    Probe(LATE, [[1, 1]], {OFF: anything}),
)

THIRD = 1 / 3
SEQUENCE = (
    Probe(
        (NOW_2, THEN_2, MASK_2),
        [[2, 2, 1], [9, 1, 1]],  # sqrt(4 * 1); 9
        {
            "You took the product: it grows with length. By what is the sum of logs divided?": [
                [4, 4, 1],
                [9, 1, 1],
            ],
            "You averaged the ratios. GSPO averages their logarithms: exp goes last.": [
                [2.5, 2.5, 1],
                [9, 1, 1],
            ],
            "You divided by all columns, padding too. How many own tokens has the row?": [
                [4**THIRD, 4**THIRD, 1],
                [9**THIRD, 1, 1],
            ],
            "Your mean runs over the whole batch. Which axis is one answer?": [
                [36**THIRD, 36**THIRD, 1],
                [36**THIRD, 1, 1],
            ],
            "Each token got its own ratio. What do all tokens of an answer share here?": [
                [4, 1, 1],
                [9, 1, 1],
            ],
            "Your ratio is upside down. Which policy stands in the numerator?": [
                [0.5, 0.5, 1],
                [1 / 9, 1, 1],
            ],
            OFF: [[2, 2, 2], [9, 9, 9]],
        },
    ),
    Probe((NOW_2, THEN_2, MASK_2), [[0] * 3, [0] * 3], {LIVE: some}, slope=1),
    Probe(
        (NOW_2, THEN_2, MASK_2),
        [[1, 1, 0], [0, 0, 0]],
        {
            "The ratio has the right value but passes gradient only to its own token.": [
                [2, 0, 0],
                [0, 0, 0],
            ],
            NO_SLOPE: nothing,
        },
        slope=0,
        pick=(0, 0),
    ),
    Probe(
        (NOW, THEN, own("000")),
        [[1, 1, 1]],
        {"A row without own tokens gives 0 / 0 = nan. It has ratio 1.": NAN},
    ),
    Probe(LATE, [[1, 1]], {OFF: anything}),
)

PRODUCT = (
    Probe(
        (NOW_2[:1, :2], THEN_2[:1, :2], own("11")),
        [[4, 4]],
        {
            "You took the geometric mean. What is the probability of a whole answer made of?": [[2, 2]],
            "Each token got its own ratio. What do all tokens of an answer share here?": [[4, 1]],
            "Your ratio is upside down. Which policy stands in the numerator?": [[0.25, 0.25]],
            "You added up log ratios and stopped. What turns a log ratio into a ratio?": [
                [math.log(4), math.log(4)]
            ],
        },
    ),
    Probe(
        (NOW_2, THEN_2, MASK_2),
        [[4, 4, 1], [9, 1, 1]],
        {
            "You multiplied over the whole batch. Which axis is one answer?": [[36, 36, 1], [36, 1, 1]],
            OFF: [[4, 4, 4], [9, 9, 9]],
            "Columns off the mask are in the product. Whose tokens make up the answer?": anything,
        },
    ),
    Probe((NOW_2, THEN_2, MASK_2), [[0] * 3, [0] * 3], {LIVE: some}, slope=1),
    Probe((NOW_2, THEN_2, MASK_2), [[4, 4, 0], [0, 0, 0]], {NO_SLOPE: nothing}, slope=0, pick=(0, 0)),
    Probe(LATE, [[1, 1]], {OFF: anything}),
)

PROBES = {
    "importance_ratio": TOKEN,
    "rollout_ratio": TOKEN,
    "reference_ratio": TOKEN,
    "sequence_ratio": SEQUENCE,
    "sequence_rollout_ratio": SEQUENCE,
    "product_ratio": PRODUCT,
}
