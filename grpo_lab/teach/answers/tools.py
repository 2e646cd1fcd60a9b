"""How the tables of probes write their inputs, and the tells that several of them share."""

import torch
from torch import Tensor


def x(values, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers as a tensor; float64, unless rounding is the question."""
    return torch.tensor(values, dtype=dtype)


def own(*rows: str) -> Tensor:
    """A mask: own("110", "100") has the rows True True False and True False False."""
    return torch.tensor([[letter == "1" for letter in row] for row in rows])


def logs(values) -> Tensor:
    """The logarithms of these probabilities."""
    return x(values).log()


def some(answer: Tensor, right: Tensor) -> bool:
    """Tell: something is not 0."""
    return bool((answer != 0).any()) and not bool(answer.isnan().any())


def noise(answer: Tensor, right: Tensor) -> bool:
    """Tell: 0 is right, and what came is not 0 but small; divided by a tiny eps it may have grown to a tenth."""
    return some(answer, right) and bool(answer.abs().amax() < 0.5)


def nothing(answer: Tensor, right: Tensor) -> bool:
    """Tell: all is 0 where it should not be."""
    return bool((answer == 0).all())


def anything(answer: Tensor, right: Tensor) -> bool:
    """Tell: every wrong answer to this probe comes from one mistake, because the probes before it were answered."""
    return True


NINF = float("-inf")
HIDDEN_NAN = "A nan off the mask has reached the result: 0 * nan is nan. Which function chooses instead of multiplying?"
NO_SLOPE = "No gradient flows to the policy: nothing would be learned. Where did you detach?"
TENTHS = x([[0.1] * 8], torch.float32)  # in float32 their mean is not 0.1
EVERY = own("1" * 8)
