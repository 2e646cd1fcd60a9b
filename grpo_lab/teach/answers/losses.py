"""The clipped surrogate, the critic's loss, and the weights that make one number of many."""

from grpo_lab.teach.answers.tools import HIDDEN_NAN, NO_SLOPE, nothing, own, some, x
from grpo_lab.teach.judge import NAN, Probe

RATIOS, SIGNS = x([[0.5, 1, 1.5, 0.5, 1, 1.5]]), x([[1, 1, 1, -1, -1, -1]])
BOUNDS = {"eps_low": 0.2, "eps_high": 0.2}
VALUES, RETURNS, MASK = x([[3, 1, 9]]), x([[1, 1.5, 0]]), own("110")
ROWS = "You did not divide by the number of rows. What if the batch doubles?"
VANISHED = "Rows without own tokens vanished from B. Does dropping a row change the others' weight?"
COUNT = own("1111", "1000", "0000")
SHORT = own("1110", "1000")

PROBES = {
    "clipped_surrogate": (
        Probe(
            (RATIOS, SIGNS),
            [[-0.5, -1, -1.2, 0.8, 1, 1.5]],
            {
                "You took the larger product: a token is rewarded for running away. min or max?": [
                    [-0.8, -1, -1.5, 0.5, 1, 1.2]
                ],
                "For a negative A your clip cuts on the wrong side. Did you choose max there, or take the min of the "
                "ratios and then multiply? What does a negative A do to a min?": [
                    [-0.5, -1, -1.2, 0.5, 1, 1.2]
                ],
                "You clipped whatever the sign of A: a token gone the wrong way can't come back.": [
                    [-0.8, -1, -1.2, 0.8, 1, 1.2]
                ],
                "Nothing is clipped. What is the second product?": [[-0.5, -1, -1.5, 0.5, 1, 1.5]],
                "Your sign is turned: an optimiser walks *down* the loss. Which way should a good token go?": [
                    [0.5, 1, 1.2, -0.8, -1, -1.5]
                ],
            },
            BOUNDS,
        ),
        Probe(
            (x([[2, 0.5]]), x([[1, -1]])),
            [[-1.3, 0.9]],
            {
                "You swapped the bounds: 1 - eps_high and 1 + eps_low. Which one belongs above?": [
                    [-1.1, 0.7]
                ],
                "You used eps_low on both sides. What is eps_high for?": [[-1.1, 0.9]],
                "You used eps_high on both sides. What is eps_low for?": [[-1.3, 0.7]],
                "The bounds stay at 0.8 and 1.2. Are eps_low and eps_high used?": [[-1.2, 0.8]],
            },
            {"eps_low": 0.1, "eps_high": 0.3},
        ),
        Probe(
            (x([[9, 9]]), x([[-1, 1]])),
            [[4, -1.2]],
            {
                "You ignored delta: a bad token with ratio 9 is still pushed nine times as hard.": [
                    [9, -1.2]
                ],
                "delta capped good tokens too. Which sign of A has no upper bound without it?": [[4, -4]],
            },
            {"delta": 4.0, **BOUNDS},
        ),
        Probe(
            (RATIOS, SIGNS),
            [[0] * 6],
            {"Gradient flows into the advantage. Which of the two factors is the policy's?": some},
            BOUNDS,
            slope=1,
        ),
        Probe((RATIOS, SIGNS), [[-1, -1, 0, 0, 1, 1]], {NO_SLOPE: nothing}, BOUNDS, slope=0),
    ),
    "value_loss": (
        Probe(
            (VALUES, RETURNS, MASK),
            [[2, 0.125, 0]],
            {
                "The factor one half is missing. What should the gradient be?": [[4, 0.25, 0]],
                "Columns off the mask are in the loss. Which states did the policy act in?": [
                    [2, 0.125, 40.5]
                ],
                "You took the absolute error. Which loss makes the mean the best guess?": [[1, 0.25, 0]],
            },
        ),
        Probe(
            (VALUES, RETURNS, MASK),
            [[0, 0, 0]],
            {
                "Gradient flows into the return: the target runs to meet the critic. What is constant here?": some
            },
            slope=1,
        ),
        Probe(
            (VALUES, RETURNS, MASK), [[2, -0.5, 0]], {NO_SLOPE.replace("policy", "critic"): nothing}, slope=0
        ),
        Probe(
            # Both began at 0 and may move by 0.5. The first has arrived at its return 2, the second ran away from -1.
            (x([[2, 3]]), x([[2, -1]]), own("11"), x([[0, 0]])),
            [[1.125, 8]],
            {
                "You took the smaller loss: the clip hides an error. min or max?": [[0, 1.125]],
                "Only the clipped value counts: a critic that has run away is never called back.": [
                    [1.125, 1.125]
                ],
                "clip changes nothing. Is it used, or does the value move around the return instead of around the "
                "old value? What is the second candidate?": [[0, 8]],
            },
            {"clip": 0.5},
        ),
        Probe((x([[3, float("nan")]]), x([[1, float("nan")]]), own("10")), [[2, 0]], {HIDDEN_NAN: NAN}),
    ),
    "sequence_mean": (
        Probe(
            (COUNT,),
            [[1 / 12] * 4, [1 / 3, 0, 0, 0], [0] * 4],
            {
                VANISHED: [[1 / 8] * 4, [1 / 2, 0, 0, 0], [0] * 4],
                "You divided by all columns, padding too. How many own tokens has the row?": [
                    [1 / 12] * 4,
                    [1 / 12, 0, 0, 0],
                    [0] * 4,
                ],
                "Every token weighs the same. That is the token mean; which is asked for?": [
                    [1 / 5] * 4,
                    [1 / 5, 0, 0, 0],
                    [0] * 4,
                ],
                ROWS: [[1 / 4] * 4, [1, 0, 0, 0], [0] * 4],
                "A row without own tokens gives 0 / 0 = nan. What is the smallest length to divide by?": NAN,
            },
        ),
    ),
    "token_mean": (
        Probe(
            (SHORT,),
            [[1 / 4, 1 / 4, 1 / 4, 0], [1 / 4, 0, 0, 0]],
            {
                "You averaged within rows first: short answers' tokens weigh more. Which is asked for?": [
                    [1 / 6, 1 / 6, 1 / 6, 0],
                    [1 / 2, 0, 0, 0],
                ],
                "You divided by all columns, padding too. How many own tokens has the batch?": [
                    [1 / 8, 1 / 8, 1 / 8, 0],
                    [1 / 8, 0, 0, 0],
                ],
            },
        ),
        Probe(
            (own("00"),),
            [[0, 0]],
            {"An empty mask gives 0 / 0 = nan. What is the smallest count to divide by?": NAN},
        ),
    ),
    "constant_mean": (
        Probe(
            (SHORT,),
            [[0.05, 0.05, 0.05, 0], [0.05, 0, 0, 0]],
            {
                "You divided by the tokens that are there. The point is a number no answer can change.": [
                    [1 / 4, 1 / 4, 1 / 4, 0],
                    [1 / 4, 0, 0, 0],
                ],
                "You divided by the columns of this batch. Tomorrow's batch may be wider: what is length for?": [
                    [1 / 8, 1 / 8, 1 / 8, 0],
                    [1 / 8, 0, 0, 0],
                ],
                ROWS: [[0.1, 0.1, 0.1, 0], [0.1, 0, 0, 0]],
            },
            {"length": 10},
        ),
    ),
    "sequence_sum_mean": (
        Probe(
            (own("1110", "1000", "0000"),),
            [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 3, 0, 0, 0], [0] * 4],
            {
                "You divided by each row's length. Here the row's sum is wanted.": [
                    [1 / 9, 1 / 9, 1 / 9, 0],
                    [1 / 3, 0, 0, 0],
                    [0] * 4,
                ],
                ROWS: [[1, 1, 1, 0], [1, 0, 0, 0], [0] * 4],
                VANISHED: [[1 / 2, 1 / 2, 1 / 2, 0], [1 / 2, 0, 0, 0], [0] * 4],
            },
        ),
    ),
    "weighted_sum": (
        Probe(
            (x([[2, 4, 50]]), x([[0.5, 0.25, 0.25]]), own("110")),
            2,
            {
                "You averaged after weighting. The weights already hold every denominator.": 2 / 3,
                "Columns off the mask are in the sum. Where is the mask?": 14.5,
                "The weights are not used. What is each token's share?": 6,
            },
        ),
        Probe(
            (x([[2, float("nan")]]), x([[0.5, 0.5]]), own("10")),
            1,
            {"You multiplied by the mask, and 0 * nan is nan. Which function chooses instead?": NAN},
        ),
        Probe(
            (x([[2, 4, 50]]), x([[0.5, 0.25, 0.25]]), own("110")),
            [[0, 0, 0]],
            {"Gradient flows into the weights. They are counts, not something to learn.": some},
            slope=1,
        ),
        Probe(
            (x([[2, 4, 50]]), x([[0.5, 0.25, 0.25]]), own("110")),
            [[0.5, 0.25, 0]],
            {NO_SLOPE: nothing},
            slope=0,
        ),
    ),
}
