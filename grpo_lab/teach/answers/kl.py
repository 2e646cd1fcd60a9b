"""Distances between the policy and its reference: three estimates from sampled tokens, and the exact sum."""

import math

import torch

from grpo_lab.teach.answers.tools import HIDDEN_NAN, NINF, NO_SLOPE, anything, logs, nothing, own, some, x
from grpo_lab.teach.judge import NAN, Probe

NOW, REF, MASK = logs([[0.6, 0.1, 0.5]]), logs([[0.3, 0.4, 0.1]]), own("110")  # pi / ref: 2, 1/4, hidden 5
A, B = math.log(2), math.log(4)
K3 = (0.5 - 1 + A, 4 - 1 - B)  # u - 1 - log u with u = ref / pi = 1/2 and 4
LIVE = "Gradient flows into the reference. Which policy is frozen?"
WHERE = "Columns off the mask are not 0. Where is the mask?"
HIDDEN = (x([[-1, math.nan]]), x([[-1, math.nan]]), own("10"))
NEAR = (x([[-1.0001]], torch.float32), x([[-1.0]], torch.float32), own("1"))

P, Q = (0.5, 0.25, 0.25), (0.125, 0.125, 0.75)


def _kl(p, q) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def _sharp(p) -> tuple[float, ...]:
    """Temperature 0.5: probabilities squared, then made to add up to 1."""
    return tuple(a * a / sum(b * b for b in p) for a in p)


# Column 0 is own, column 1 is hidden and has another KL.
LOGITS, LOGITS_REF = logs([[P, (0.8, 0.1, 0.1)]]), logs([[Q, (0.1, 0.1, 0.8)]])
OTHER = _kl((0.8, 0.1, 0.1), (0.1, 0.1, 0.8))
FORBIDDEN = (x([[[0, 0, NINF]]]), x([[[0, math.log(3), NINF]]]), own("1"))  # 1/2, 1/2, 0 and 1/4, 3/4, 0

PROBES = {
    "k1": (
        Probe(
            (NOW, REF, MASK),
            [[A, -B, 0]],
            {
                "Your log ratio is upside down. Which policy is the KL measured from?": [[-A, B, 0]],
                "You made it positive: the average is then no longer the KL. May a single value be negative?": [
                    [A, B, 0]
                ],
                WHERE: [[A, -B, math.log(5)]],
                "You gave the ratio itself. Its logarithm is asked for.": [[2, 0.25, 1]],
            },
        ),
        Probe((NOW, REF, MASK), [[0, 0, 0]], {LIVE: some}, slope=1),
        Probe((NOW, REF, MASK), [[1, 1, 0]], {NO_SLOPE: nothing}, slope=0),
        Probe(HIDDEN, [[0, 0]], {HIDDEN_NAN: NAN}),
    ),
    "k2": (
        Probe(
            (NOW, REF, MASK),
            [[A * A / 2, B * B / 2, 0]],
            {
                "The factor one half is missing. What is half of a square's slope?": [[A * A, B * B, 0]],
                WHERE: [[A * A / 2, B * B / 2, math.log(5) ** 2 / 2]],
                "You squared the difference of probabilities. Which difference is squared?": [
                    [0.045, 0.045, 0]
                ],
            },
        ),
        Probe((NOW, REF, MASK), [[0, 0, 0]], {LIVE: some}, slope=1),
        Probe((NOW, REF, MASK), [[A, -B, 0]], {NO_SLOPE: nothing}, slope=0),
        Probe(HIDDEN, [[0, 0]], {HIDDEN_NAN: NAN}),
    ),
    "k3": (
        Probe(
            (NOW, REF, MASK),
            [[*K3, 0]],
            {
                "u is upside down: pi / ref. Then the average is not the KL. Which way round is u?": [
                    [2 - 1 - A, 0.25 - 1 + B, 0]
                ],
                "The sign of log u is turned. Is your value ever negative?": [[0.5 - 1 - A, 4 - 1 + B, 0]],
                "The 1 is missing: equal policies are 1 apart instead of 0.": lambda answer, right: (
                    ((answer - right)[0, :2] - 1).abs().amax() < 1e-4
                ),
                WHERE: [[*K3, 0.2 - 1 + math.log(5)]],
            },
        ),
        Probe((NOW, REF, MASK), [[0, 0, 0]], {LIVE: some}, slope=1),
        Probe(
            (NOW, REF, MASK),
            [[0.5, -3, 0]],
            {"No gradient flows: this term is only watched, never felt. Where did you detach?": nothing},
            slope=0,
        ),
        Probe(
            NEAR,
            [[0.5 * 1.00017e-4**2]],  # half the square of the gap, as float32 holds it
            {
                "exp(x) - 1 loses its digits where the policies nearly agree. Which function does not?": anything
            },
            within=1e-2,
        ),
        Probe(HIDDEN, [[0, 0]], {HIDDEN_NAN: NAN}),
    ),
    "corrected_k3": (
        Probe(
            (x([[2, 3, 7]]), NOW, REF, MASK),
            [[2 * K3[0], 3 * K3[1], 0]],
            {
                "The ratio is not used: stale samples give a stale KL.": [[*K3, 0]],
                "You divided by the ratio. Which policy drew the samples, and which one do you ask about?": [
                    [K3[0] / 2, K3[1] / 3, 0]
                ],
                WHERE: [[2 * K3[0], 3 * K3[1], 7 * (0.2 - 1 + math.log(5))]],
            },
        ),
        Probe(
            (x([[2, 3, 7]]), NOW, REF, MASK),
            [[*K3, 0]],
            {
                "You detached the ratio, so only half of the gradient is left. What does the ratio differentiate to?": (
                    nothing
                )
            },
            slope=0,
        ),
        Probe(
            (x([[2, 3, 7]]), NOW, REF, MASK),
            [[2 * 0.5, 3 * -3, 0]],
            {"You detached k3, so only half of the gradient is left.": nothing},
            slope=1,
        ),
        Probe((x([[2, 3, 7]]), NOW, REF, MASK), [[0, 0, 0]], {LIVE: some}, slope=2),
    ),
    "exact_kl": (
        Probe(
            (LOGITS, LOGITS_REF, own("10")),
            [[_kl(P, Q), 0]],
            {
                "You computed KL(ref || pi). Whose probabilities weigh the logarithms?": [[_kl(Q, P), 0]],
                "You averaged over the vocabulary. A KL is a sum weighted by probabilities.": [
                    [_kl(P, Q) / 3, 0]
                ],
                WHERE: [[_kl(P, Q), OTHER]],
                "Your sign is turned: a KL is never negative.": [[-_kl(P, Q), 0]],
            },
        ),
        Probe(
            (LOGITS, LOGITS_REF, own("10")),
            [[_kl(_sharp(P), _sharp(Q)), 0]],
            {"temperature is not used. Which distribution were the tokens drawn from?": [[_kl(P, Q), 0]]},
            {"temperature": 0.5},
        ),
        Probe((LOGITS, LOGITS_REF, own("10")), [[[0] * 3] * 2], {LIVE: some}, slope=1),
        Probe(
            (LOGITS, LOGITS_REF, own("10")),
            [[[p * (math.log(p / q) - _kl(P, Q)) for p, q in zip(P, Q, strict=True)], [0] * 3]],
            {
                "The weights are detached: the gradient of the probabilities themselves is missing.": (
                    lambda answer, right: answer.abs().amax() < 1e-9
                )
            },
            slope=0,
        ),
        Probe(
            FORBIDDEN,
            [[_kl((0.5, 0.5), (0.25, 0.75))]],
            {"A token forbidden in both models gives 0 * nan. What should it add?": NAN},
        ),
    ),
}
