"""Advantages from a group or a batch, and from a critic. The spreads are Python's own: statistics.stdev."""

from collections.abc import Callable
from statistics import mean, pstdev, stdev, variance

from grpo_lab.teach.answers.tools import HIDDEN_NAN, noise, own, some, x
from grpo_lab.teach.judge import NAN, Probe

GROUPS = ((0, 0, 0, 1), (1, 3, 1, 1))
ALL = GROUPS[0] + GROUPS[1]
REWARDS = x(ALL)
EPS = 0.25
TENTHS_B = x([0.1] * 8).float()
EQUAL = "Equal rewards gave rounding noise instead of 0: eight times 0.1. What is max minus min?"
NO_SPREAD = "Equal rewards have spread 0, and 0 / 0 is nan. What should a group without differences get?"
OVER_ALL = "Your mean runs over all rows: easy prompts pay for hard ones. Reshape to (P, G) first?"
UNIT = "You did not divide by the spread. What is the unit of this advantage?"


def _each(value: Callable[[float, tuple], float], groups=GROUPS) -> list[float]:
    """value(reward, its group) for every answer."""
    return [value(r, group) for group in groups for r in group]


def _interleaved(value: Callable[[float, tuple], float]) -> list[float]:
    """The same, for someone who takes rows 0, 2, 4, 6 for one prompt and 1, 3, 5, 7 for the other."""
    return [value(r, ALL[row % 2 :: 2]) for row, r in enumerate(ALL)]


def _z(r: float, group: tuple) -> float:
    return (r - mean(group)) / (stdev(group) + EPS)


def _others(r: float, group: tuple) -> float:
    return (sum(group) - r) / (len(group) - 1)


CENTRED = _each(lambda r, g: r - mean(g))
GROUP = {"group_size": 4, "eps": EPS}
EQUAL_TELLS = {NO_SPREAD: NAN, EQUAL: noise}
DIFFERENCES = stdev(CENTRED)

PROBES = {
    "group_advantage": (
        Probe(
            (REWARDS,),
            _each(_z),
            {
                OVER_ALL: _each(lambda r, g: (r - mean(ALL)) / (stdev(g) + EPS)),
                "You divided by the standard deviation of the whole batch, not of the group.": _each(
                    lambda r, g: (r - mean(g)) / (stdev(ALL) + EPS)
                ),
                "You took mean and spread over the whole batch: easy prompts pay for hard ones. Whose answers "
                "are comparable?": _each(lambda r, g: (r - mean(ALL)) / (stdev(ALL) + EPS)),
                "You divided by G under the root. ddof 1 divides by G - 1: a pair gets 0.707, not 1.": _each(
                    lambda r, g: (r - mean(g)) / (pstdev(g) + EPS)
                ),
                UNIT: CENTRED,
                "You divided by the variance. Which root is missing?": _each(
                    lambda r, g: (r - mean(g)) / (variance(g) + EPS)
                ),
                "eps is not used. What keeps a nearly equal group from blowing up?": _each(
                    lambda r, g: (r - mean(g)) / stdev(g)
                ),
                "You mixed prompts: answer g of prompt p stands in row p * G + g. Which axis is which?": _interleaved(
                    _z
                ),
                "Your sign is turned: the best answer got the lowest advantage. What minus what?": _each(
                    lambda r, g: -_z(r, g)
                ),
            },
            GROUP,
        ),
        Probe((TENTHS_B,), [0] * 8, EQUAL_TELLS, {"group_size": 8}, within=0),
        Probe(
            (x([1, 0, 0, 10]),),
            [0.7070, -0.7070, -0.70710, 0.70710],
            kwargs={"group_size": 2},
            within=1e-3,
            about="A pair gets +0.707 and -0.707, whether its rewards differ by 1 or by 10; eps is 0.0001 by default.",
        ),
    ),
    "group_mean_advantage": (
        Probe(
            (REWARDS,),
            CENTRED,
            {
                OVER_ALL: _each(lambda r, g: r - mean(ALL)),
                "You divided by the spread. Dr. GRPO leaves exactly that out: why?": lambda answer, right: (
                    abs(answer.tolist()[3] - 1.5) < 1e-2 and abs(answer.tolist()[5] - 1.5) < 1e-2
                ),
                "You left the answer itself out of its baseline. That is RLOO; which is asked for?": _each(
                    lambda r, g: r - _others(r, g)
                ),
                "Your sign is turned: the best answer got the lowest advantage. What minus what?": [
                    -a for a in CENTRED
                ],
                "You mixed prompts: answer g of prompt p stands in row p * G + g. Which axis is which?": _interleaved(
                    lambda r, g: r - mean(g)
                ),
            },
            {"group_size": 4},
        ),
        Probe((TENTHS_B,), [0] * 8, EQUAL_TELLS, {"group_size": 8}, within=0),
    ),
    "leave_one_out_advantage": (
        Probe(
            (REWARDS,),
            _each(lambda r, g: r - _others(r, g)),
            {
                "Your baseline contains the answer itself. How many *others* are there?": CENTRED,
                "You added up the others but divided by G. How many are they?": _each(
                    lambda r, g: r - (sum(g) - r) / len(g)
                ),
                "The others came from the whole batch. Whose answers are comparable?": _each(
                    lambda r, g: r - _others(r, ALL)
                ),
                "Your sign is turned: the best answer got the lowest advantage. What minus what?": _each(
                    lambda r, g: _others(r, g) - r
                ),
                "You mixed prompts: answer g of prompt p stands in row p * G + g. Which axis is which?": _interleaved(
                    lambda r, g: r - _others(r, g)
                ),
            },
            {"group_size": 4},
        ),
        Probe((TENTHS_B,), [0] * 8, EQUAL_TELLS, {"group_size": 8}, within=0),
    ),
    "batch_std_advantage": (
        Probe(
            (REWARDS,),
            _each(lambda r, g: (r - mean(g)) / (stdev(ALL) + EPS)),
            {
                "You divided by the spread of the group. Which spread is asked for?": _each(_z),
                "You subtracted the batch's mean. Only the *unit* comes from the batch.": _each(
                    lambda r, g: (r - mean(ALL)) / (stdev(ALL) + EPS)
                ),
                "You took the spread of the differences to the group mean, not of the rewards.": [
                    a / (DIFFERENCES + EPS) for a in CENTRED
                ],
                "You divided by B under the root. ddof 1 divides by B - 1.": _each(
                    lambda r, g: (r - mean(g)) / (pstdev(ALL) + EPS)
                ),
                "eps is not used. What keeps a nearly equal batch from blowing up?": _each(
                    lambda r, g: (r - mean(g)) / stdev(ALL)
                ),
                UNIT: CENTRED,
            },
            GROUP,
        ),
        Probe((TENTHS_B,), [0] * 8, EQUAL_TELLS, {"group_size": 8}, within=0),
    ),
    "batch_advantage": (
        Probe(
            (REWARDS,),
            _each(lambda r, g: (r - mean(ALL)) / (stdev(ALL) + EPS)),
            {
                UNIT: _each(lambda r, g: r - mean(ALL)),
                "You divided by B under the root. ddof 1 divides by B - 1.": _each(
                    lambda r, g: (r - mean(ALL)) / (pstdev(ALL) + EPS)
                ),
                "eps is not used. What keeps a nearly equal batch from blowing up?": _each(
                    lambda r, g: (r - mean(ALL)) / stdev(ALL)
                ),
                "Your sign is turned: the best answer got the lowest advantage. What minus what?": _each(
                    lambda r, g: (mean(ALL) - r) / (stdev(ALL) + EPS)
                ),
            },
            {"eps": EPS},
        ),
        Probe((TENTHS_B,), [0] * 8, EQUAL_TELLS, within=0),
    ),
    "gae": (
        Probe(
            (x([[1, 1, 4]]), x([[1, 2, 2]]), own("111"), x([1]).bool()),
            [[1.32, 0.8, 2]],  # surprises 1, 0, 2; each passes 0.4 of its sum on to the token before
            {
                "You took the value after the token for the value before it. Which of the two does values[t] hold?": [
                    [0.98, 1.2, 3]
                ],
                "The running sum shrinks by lam alone. By what else?": [[2.28, 1.6, 2]],
                "lam is not used. How much does a surprise two tokens away count?": [[1.5, 1, 2]],
                "The next value is not discounted. Where does gamma stand in delta?": [[2.72, 1.8, 2]],
                "You returned the critic's target, advantage plus value. Which of the two is asked for?": [
                    [2.32, 2.8, 4]
                ],
                "You returned the surprises alone. What of the next token's advantage is passed on?": [
                    [1, 0, 2]
                ],
                "Your sign is turned: a good surprise lowers the advantage. What minus what?": [
                    [-1.32, -0.8, -2]
                ],
            },
            {"gamma": 0.5, "lam": 0.8},
        ),
        Probe(
            (x([[4], [4]]), x([[2], [2]]), own("1", "1"), x([1, 0]).bool(), x([8, 8])),
            [[2], [6]],  # ended: 4 - 2; cut off: 4 + 8/2 - 2
            {
                "A cut-off row was treated as ended. What is the future worth where it was cut?": [[2], [2]],
                "A row that ended by itself got a value for what comes after. What comes after the end?": [
                    [6],
                    [6],
                ],
                "You turned finished around: ended rows got the bootstrap, cut-off rows got 0.": [[6], [2]],
                "The value after a cut is not discounted. Where does gamma stand in delta?": [[2], [10]],
            },
            {"gamma": 0.5, "lam": 0.8},
        ),
        Probe(
            (x([[1, 9, 4]]), x([[1, 7, 2]]), own("101"), x([1]).bool()),
            [[1.8, 0, 2]],  # the middle column is a tool's reply
            {
                "Columns off the mask took part as if they were tokens. Who wrote them?": [[5.02, 0, 2]],
                "The running sum was lost at a tool's reply. What should pass through a column off the mask?": [
                    [1, 0, 2]
                ],
                "The next value was lost at a tool's reply. Which token's value follows the last one before it?": [
                    [0.8, 0, 2]
                ],
                "Columns off the mask are not 0. What should a hidden column hold?": lambda answer, right: (
                    abs(float(answer[0, 0]) - 1.8) < 1e-4 and abs(float(answer[0, 2]) - 2) < 1e-4
                ),
            },
            {"gamma": 0.5, "lam": 0.8},
        ),
        Probe(
            (x([[1, 1, 4]]), x([[1, 2, 2]]), own("111"), x([1]).bool()),
            [[0, 0, 0]],
            {"Gradient flows from the advantages into the critic. Which of them are constants?": some},
            {"gamma": 0.5, "lam": 0.8},
            slope=1,
        ),
        Probe(
            (x([[1, float("nan"), 4]]), x([[1, float("nan"), 2]]), own("101"), x([1]).bool()),
            [[1.8, 0, 2]],
            {HIDDEN_NAN: NAN},
            {"gamma": 0.5, "lam": 0.8},
        ),
        Probe(
            (x([[0, 4]]), x([[1, 2]]), own("11"), x([0]).bool()),
            [[1 + 0.95 * 2, 2]],
            about="Without bootstrap_B a cut-off row is worth 0 after its end; gamma is 1 and lam 0.95 by default.",
        ),
    ),
}
