"""GAE against TorchRL's plain one: ended and cut-off rows, and rows with observations in between.

TorchRL has no mask. A row with observations must give what TorchRL gives for the row with them deleted.
"""

import pytest
import torch
import torchrl
from torchrl.objectives.value.functional import generalized_advantage_estimate

from grpo_lab.concepts.gae import gae

# TorchRL multiplies gamma by whole-number flags, which makes float32 of it, whatever the dtype of the values.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
COEFFICIENTS = [(1.0, 0.95), (0.9, 0.8), (0.99, 1.0), (0.7, 0.0)]


def test_parity_is_measured_against_the_version_the_texts_name():
    assert torchrl.__version__ == "0.14.1"


def _theirs(rewards_T, values_T, ended, bootstrap, gamma, lam):
    """One row. `done` stops the sum, `terminated` also makes the value after it 0."""
    last_T = torch.zeros(len(rewards_T), 1, dtype=torch.bool)
    last_T[-1] = True
    next_values_T = torch.cat([values_T[1:], bootstrap.reshape(1)])
    advantages_T1, _ = generalized_advantage_estimate(
        gamma,
        lam,
        values_T.unsqueeze(1),
        next_values_T.unsqueeze(1),
        rewards_T.unsqueeze(1),
        last_T,
        last_T & ended,
    )
    return advantages_T1.squeeze(1)


def _numbers(rows, columns):
    generator = torch.Generator().manual_seed(columns)
    rewards_BT, values_BT = torch.randn(2, rows, columns, generator=generator, dtype=torch.float64)
    bootstrap_B = torch.randn(rows, generator=generator, dtype=torch.float64)
    return rewards_BT, values_BT, bootstrap_B


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("gamma", "lam"), COEFFICIENTS)
def test_parity_torchrl_gae_of_full_rows(gamma, lam, ended):
    rewards_BT, values_BT, bootstrap_B = _numbers(3, 7)
    mask_BT = torch.ones(3, 7, dtype=torch.bool)
    ours_BT = gae(rewards_BT, values_BT, mask_BT, torch.full((3,), ended), bootstrap_B, gamma=gamma, lam=lam)
    theirs = [
        _theirs(*row, gamma, lam) for row in zip(rewards_BT, values_BT, [ended] * 3, bootstrap_B, strict=True)
    ]
    torch.testing.assert_close(ours_BT, torch.stack(theirs), **TOLERANCE)


@pytest.mark.parametrize(("gamma", "lam"), COEFFICIENTS)
def test_parity_torchrl_gae_with_observations_is_gae_with_them_deleted(gamma, lam):
    rewards_BT, values_BT, bootstrap_B = _numbers(4, 9)
    mask_BT = torch.tensor(
        [
            [1, 1, 0, 0, 1, 1, 1, 0, 0],  # two turns, then padding
            [0, 1, 0, 1, 0, 1, 0, 1, 0],  # one token a turn
            [0, 0, 1, 1, 1, 0, 0, 0, 1],  # cut off right after an observation and one token
            [0, 0, 0, 0, 1, 0, 0, 0, 0],  # one token in all
        ]
    ).bool()
    finished_B = torch.tensor([True, False, False, True])
    ours_BT = gae(rewards_BT, values_BT, mask_BT, finished_B, bootstrap_B, gamma=gamma, lam=lam)
    for b in range(4):
        own_T = mask_BT[b]
        theirs_T = _theirs(
            rewards_BT[b][own_T], values_BT[b][own_T], finished_B[b], bootstrap_B[b], gamma, lam
        )
        torch.testing.assert_close(ours_BT[b][own_T], theirs_T, **TOLERANCE)
        assert (ours_BT[b][~own_T] == 0).all()
