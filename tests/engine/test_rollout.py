"""Sampling: the tokens are those of `generate`, and every shortcut leaves each row as it was."""

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from grpo_lab.engine.policy import Policy
from grpo_lab.engine.rollout import rollout, row_noise, sample
from grpo_lab.engine.tasks import Addition, Bandit, Guess, Prompt, Sort
from tests.engine.helpers import CONFIGS, TASKS, prompts_of, small_policy, small_rollout


class ForcedNoise(LogitsProcessor):
    """Lets `generate` choose by inverse CDF from given noise: everything but the chosen token becomes impossible."""

    def __init__(self, noise_BT: torch.Tensor, temperature: float):
        self.noise_BT, self.temperature, self.t = noise_BT, temperature, 0

    def __call__(self, input_ids, scores):
        cdf = (scores.double() / self.temperature).softmax(-1).cumsum(-1)
        chosen = (cdf <= self.noise_BT[:, self.t : self.t + 1] * cdf[:, -1:]).sum(-1, keepdim=True)
        self.t += 1
        return torch.full_like(scores, -float("inf")).scatter(1, chosen, 0.0)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("task_name", ["sort", "addition"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_same_noise_gives_the_same_tokens_as_generate_in_every_row(kind, task_name, temperature):
    task = TASKS[task_name]
    policy = small_policy(kind, task)
    batch = small_rollout(policy, task, prompts=8, group_size=4, temperature=temperature)
    noise = row_noise(0, range(8), 4, task.max_tokens)
    ids_PL, mask_PL = policy.encode(prompts_of(task, 8))
    written = policy.model.generate(
        input_ids=ids_PL.repeat_interleave(4, 0),
        attention_mask=mask_PL.repeat_interleave(4, 0).long(),
        max_new_tokens=task.max_tokens,
        do_sample=False,
        logits_processor=LogitsProcessorList([ForcedNoise(noise, temperature)]),
    )[:, ids_PL.shape[1] :]
    assert len({tuple(row) for row in batch.tokens_BT.tolist()}) > 8  # the rows do differ
    for b in range(len(batch)):
        own = batch.mask_BT[b]
        length = int(own.sum())
        assert batch.tokens_BT[b][own].tolist() == written[b, :length].tolist()
        # after the end token `generate` writes padding only
        assert set(written[b, length:].tolist()) <= {policy.pad_id}


@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize("kind", CONFIGS)
def test_recomputed_logp_equals_logp_rollout(kind, task_name):
    task = TASKS[task_name]
    policy = small_policy(kind, task)
    batch = small_rollout(policy, task, prompts=8, temperature=0.7)
    logp_BT, _ = policy.logp(batch)
    torch.testing.assert_close(logp_BT, batch.logp_rollout_BT, atol=1e-10, rtol=0)


def test_recomputed_logp_equals_logp_rollout_to_1e5_in_float32():
    policy = small_policy("llama", TASKS["guess"], dtype=torch.float32)
    batch = small_rollout(policy, TASKS["guess"], prompts=16)
    logp_BT, _ = policy.logp(batch)
    torch.testing.assert_close(logp_BT, batch.logp_rollout_BT, atol=1e-5, rtol=0)


@pytest.mark.parametrize("task_name", TASKS)
def test_each_row_is_the_same_alone_and_in_the_batch(task_name):
    task = TASKS[task_name]
    policy = small_policy("llama", task)
    batch = small_rollout(policy, task, prompts=6, group_size=3)
    prompts = prompts_of(task, 6)
    for p, prompt in enumerate(prompts):
        alone = rollout(
            policy,
            task,
            [prompt],
            group_size=3,
            noise_BT=row_noise(0, [p], 3, task.max_turns * task.max_tokens),
        )
        for g in range(3):
            row, one = 3 * p + g, alone
            n = int(one.attend_BT[g].sum())
            assert int(batch.attend_BT[row].sum()) == n
            assert batch.tokens_BT[row, :n].tolist() == one.tokens_BT[g, :n].tolist()
            assert batch.turns[row] == one.turns[g]
            torch.testing.assert_close(batch.logp_rollout_BT[row, :n], one.logp_rollout_BT[g, :n])


def test_a_prompts_first_answers_do_not_depend_on_the_group_size():
    policy = small_policy("llama", TASKS["sort"])
    four = small_rollout(policy, TASKS["sort"], prompts=3, group_size=4)
    two = small_rollout(policy, TASKS["sort"], prompts=3, group_size=2)
    for p in range(3):
        assert four.turns[4 * p : 4 * p + 2] == two.turns[2 * p : 2 * p + 2]


def test_noise_of_a_ticket_is_the_same_in_any_launch():
    together = row_noise(7, range(10), 2, 5)
    apart = torch.cat([row_noise(7, range(4), 2, 5), row_noise(7, range(4, 10), 2, 5)])
    assert torch.equal(together, apart)
    assert not torch.equal(row_noise(7, [0], 2, 5), row_noise(8, [0], 2, 5))


def test_sampled_frequencies_are_the_softmax_at_the_temperature():
    logits_V = torch.tensor([0.0, 1.0, -1.0, 2.0])
    noise_B = torch.arange(0.5, 40_000) / 40_000  # every quantile once: frequencies are exact to 1 / 40,000
    for temperature in (0.5, 1.0, 2.0):
        tokens_B, logp_B = sample(logits_V.expand(40_000, 4), noise_B.double(), temperature=temperature)
        wanted_V = (logits_V / temperature).softmax(-1)
        torch.testing.assert_close(tokens_B.bincount(minlength=4) / 40_000, wanted_V, atol=1e-4, rtol=0)
        torch.testing.assert_close(logp_B, wanted_V.log()[tokens_B])


def test_a_token_of_probability_zero_is_never_chosen_not_even_at_the_ends():
    logits_BV = torch.tensor([[-float("inf"), 0.0, -float("inf"), 0.0, -float("inf")]]).expand(4, 5)
    noise_B = torch.tensor([0.0, 0.5 - 1e-12, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sample(logits_BV, noise_B, temperature=1.0)[0].tolist() == [1, 1, 3, 3]


def test_greedy_takes_the_most_likely_token_and_its_logp_at_the_temperature():
    tokens_B, logp_B = sample(torch.tensor([[0.0, 2.0]]), None, temperature=2.0)
    assert tokens_B.tolist() == [1]
    torch.testing.assert_close(logp_B, torch.tensor([[0.0, 1.0]]).log_softmax(-1)[:, 1])


def test_first_end_token_is_counted_and_nothing_after_it():
    policy = small_policy("llama", TASKS["sort"], spread=2.0)
    batch = small_rollout(policy, TASKS["sort"], prompts=32)
    end = policy.end_ids[0]
    ended = 0
    for b in range(len(batch)):
        own = batch.tokens_BT[b][batch.mask_BT[b]].tolist()
        assert end not in own[:-1]
        assert bool(batch.finished_B[b]) == (own[-1] == end)
        ended += own[-1] == end
        assert len(own) == TASKS["sort"].max_tokens or own[-1] == end
        assert not batch.mask_BT[b, len(own) :].any() and not batch.attend_BT[b, len(own) :].any()
    assert 0 < ended < len(batch)  # both kinds were seen


def test_end_token_is_learned_from_even_where_it_is_also_the_padding():
    """Question 18: with pad = eos a mask made of `ids != pad` loses the end token. Ours is kept by position."""
    policy = small_policy("llama", TASKS["sort"], spread=2.0)
    policy.tokenizer.pad_token = policy.tokenizer.eos_token
    shared = Policy(policy.model, policy.tokenizer, policy.end_ids)
    assert shared.pad_id in shared.end_ids
    batch = small_rollout(shared, TASKS["sort"], prompts=32)
    own_ends = (batch.tokens_BT == shared.pad_id) & batch.mask_BT
    assert torch.equal(own_ends.any(1), batch.finished_B) and bool(batch.finished_B.any())


def test_fixed_length_tasks_end_by_rule_and_are_not_cut_off():
    task = Bandit()
    batch = small_rollout(small_policy("llama", task), task, prompts=4)
    assert batch.tokens_BT.shape[1] == 1 and bool(batch.finished_B.all())
    assert policy_logp_matches(small_policy("llama", task), batch)


def policy_logp_matches(policy, batch) -> bool:
    return bool(torch.allclose(policy.logp(batch)[0], batch.logp_rollout_BT, atol=1e-10))


def scripted_guess(policy, *answers):
    """Multi-turn rows of known text, through the same code as sampled ones."""
    from grpo_lab.engine.warm_start import demonstration_batch

    task = Guess()
    prompt = Prompt("4-j?", {"low": 4, "secret": 7})
    return demonstration_batch(policy, task, [prompt] * len(answers), list(answers))


def test_observations_are_attended_and_not_the_policys_own():
    policy = small_policy("llama", Guess())
    batch = scripted_guess(policy, ["a", "5", "7"], ["7"])
    text = [
        policy.tokenizer.convert_ids_to_tokens(row[keep].tolist())
        for row, keep in zip(batch.tokens_BT, batch.attend_BT, strict=True)
    ]
    assert "".join(text[0]) == "a<eos><5<eos>>7<eos>"
    own = batch.mask_BT[0].tolist()
    assert [t for t, o in zip(text[0], own, strict=True) if not o] == ["<", ">"]
    assert batch.turn_BT[0][batch.mask_BT[0]].tolist() == [0, 0, 1, 1, 2, 2]


def test_changing_an_observation_changes_what_the_policy_thinks_next():
    policy = small_policy("llama", Guess())
    batch = scripted_guess(policy, ["a", "5", "7"])
    at = int(torch.nonzero(~batch.mask_BT[0])[0])
    other = batch.tokens_BT.clone()
    other[0, at] = policy.encode_text(">")[0]
    with torch.no_grad():
        before, after = policy.logp(batch)[0], policy.logp(batch.replace(tokens_BT=other))[0]
    assert torch.equal(before[0, :at], after[0, :at])
    assert float((before[0, at + 1 :] - after[0, at + 1 :]).abs().max()) > 1e-3


def test_multi_turn_rows_play_by_the_rules():
    task = Guess()
    policy = small_policy("llama", task, spread=1.0)
    with torch.no_grad():  # digits first, end tokens often: enough well-formed guesses in a random policy
        policy.model.get_output_embeddings().weight.mul_(0.5)
    batch = small_rollout(policy, task, prompts=40, group_size=2)
    turns = [len(t) for t in batch.turns]
    assert max(turns) > 1 and min(turns) >= 1 and max(turns) <= task.max_turns
    for b, said in enumerate(batch.turns):
        prompt = batch.prompts[int(batch.prompt_B[b])]
        for i in range(len(said) - 1):
            assert task.reply(prompt, list(said[: i + 1])) is not None
        assert len(set(batch.turn_BT[b][batch.mask_BT[b]].tolist())) == len(said)
        assert (
            int((batch.attend_BT[b] & ~batch.mask_BT[b]).sum()) == len(said) - 1
        )  # one reply token between two turns
        first_hole = (
            int((~batch.attend_BT[b]).float().argmax())
            if not batch.attend_BT[b].all()
            else batch.attend_BT.shape[1]
        )
        assert not batch.attend_BT[b, first_hole:].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"temperature": 0.0}, "temperature must lie in"),
        ({"noise_BT": torch.zeros(3, 7, dtype=torch.float64)}, r"noise must be \(4, 7\)"),
    ],
)
def test_bad_arguments_are_named(change, message):
    task = Sort()
    arguments = {"group_size": 2, "noise_BT": row_noise(0, range(2), 2, 7), "temperature": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        rollout(small_policy(), task, prompts_of(task, 2), **arguments)


@pytest.mark.parametrize("prompts", [[], [Prompt("")]])
def test_no_prompt_and_an_empty_prompt_are_refused(prompts):
    with pytest.raises(ValueError, match="no prompt to encode|is empty"):
        rollout(small_policy(), Sort(), prompts, group_size=1, noise_BT=None)


def test_a_character_outside_the_alphabet_is_named():
    with pytest.raises(ValueError, match=r"\['\+'\], which this policy's alphabet lacks"):
        small_policy("llama", Sort()).encode(["1+2="])


def test_rollout_leaves_the_global_random_numbers_alone():
    state = torch.get_rng_state()
    small_rollout(small_policy("llama", Addition()), Addition())
    assert torch.equal(state, torch.get_rng_state())


def test_a_sampled_padding_token_is_part_of_the_answer_that_the_judge_sees():
    policy = small_policy("llama", Sort(3))
    ids = policy.encode_text("12")
    (said,) = policy.decode([[ids[0], policy.pad_id, ids[1], policy.end_ids[0]]])
    assert said == "1<pad>2" and Sort(3).reward(Prompt("21=", "12"), [said]) == 0.0
