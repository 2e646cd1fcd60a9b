"""Batches are cut, joined and moved without changing what a row says."""

import pytest
import torch

from grpo_lab.engine.batch import Batch, concatenate
from tests.engine.helpers import TASKS, small_policy, small_rollout


def row_facts(batch: Batch, b: int) -> dict:
    """All that one row says, free of padding."""
    p = int(batch.prompt_B[b])
    n = int(batch.attend_BT[b].sum())
    facts = {name: value[b, :n].tolist() for name, value in batch.tensors().items() if name.endswith("_BT")}
    prompt = batch.prompt_ids_PL[p][batch.prompt_mask_PL[p]].tolist()
    return facts | {
        "prompt": prompt,
        "text": batch.prompts[p],
        "turns": batch.turns[b],
        "ticket": int(batch.ticket_P[p]),
    }


@pytest.mark.parametrize("task_name", TASKS)
def test_chosen_rows_say_what_they_said(task_name):
    batch = small_rollout(small_policy("llama", TASKS[task_name]), TASKS[task_name], prompts=6, group_size=3)
    index = torch.tensor([16, 4, 5, 0])
    part = batch.rows(index)
    assert [row_facts(part, i) for i in range(4)] == [row_facts(batch, b) for b in index.tolist()]
    assert part.attend_BT.any(0).all() and part.prompt_mask_PL.any(0).all()  # no column is padding for all
    assert len(part.prompts) == len({int(batch.prompt_B[b]) for b in index})


@pytest.mark.parametrize("task_name", TASKS)
def test_halves_joined_are_the_whole(task_name):
    batch = small_rollout(small_policy("llama", TASKS[task_name]), TASKS[task_name], prompts=6, group_size=3)
    halves = [batch.rows(torch.arange(0, 9)), batch.rows(torch.arange(9, 18))]
    joined = concatenate(halves)
    assert [row_facts(joined, b) for b in range(18)] == [row_facts(batch, b) for b in range(18)]
    assert all(
        torch.equal(a, b) for a, b in zip(joined.tensors().values(), batch.tensors().values(), strict=True)
    )


def test_batches_that_cannot_be_one_are_refused():
    policy, task = small_policy(), TASKS["sort"]
    warm, cool = small_rollout(policy, task), small_rollout(policy, task, temperature=0.5)
    with pytest.raises(ValueError, match=r"different temperatures .* \[0.5, 1.0\]"):
        concatenate([warm, cool])
    with pytest.raises(ValueError, match="different fields"):
        concatenate([warm, warm.replace(rewards_BT=warm.logp_rollout_BT)])
    with pytest.raises(ValueError, match="no batch"):
        concatenate([])


def test_tensors_of_a_rollout_can_enter_the_training_pass():
    """Tensors made under inference_mode can't be saved for backward; a batch carries none."""
    batch = small_rollout(small_policy(), TASKS["sort"])
    assert not any(value.is_inference() for value in batch.tensors().values())
    assert not any(value.is_inference() for value in batch.to("cpu").tensors().values())


def test_rewards_of_a_row_are_the_sum_over_its_tokens():
    batch = small_rollout(small_policy(), TASKS["sort"], prompts=2, group_size=2)
    rewards_BT = torch.zeros_like(batch.logp_rollout_BT)
    rewards_BT[1, 0], rewards_BT[1, 1] = 0.25, 0.5
    assert batch.replace(rewards_BT=rewards_BT).rewards_B.tolist() == [0.0, 0.75, 0.0, 0.0]
