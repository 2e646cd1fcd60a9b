"""The two forwards over a shared prefix are one full forward; weights go to disk and come back."""

import json

import pytest
import torch

from grpo_lab.concepts.token_logprobs import token_logprobs
from grpo_lab.engine.policy import PRESETS, Critic, Policy, build_policy, load_policy
from grpo_lab.engine.tasks import Addition, Sort
from tests.engine.helpers import CONFIGS, TASKS, small_policy, small_rollout


def full_pass(model, batch):
    """Every row in full, one forward, no cache: what the shared prefix must equal. Returns ids, output, width."""
    ids_BS = torch.cat([batch.prompt_ids_PL[batch.prompt_B], batch.tokens_BT], 1)
    mask_BS = torch.cat([batch.prompt_mask_PL[batch.prompt_B], batch.attend_BT], 1)
    positions_BS = (mask_BS.cumsum(1) - 1).clamp(min=0)
    out = model(input_ids=ids_BS, attention_mask=mask_BS.long(), position_ids=positions_BS)
    return ids_BS, out, batch.prompt_ids_PL.shape[1]


def weighted(logp_BT: torch.Tensor) -> torch.Tensor:
    """A scalar in which every token counts differently."""
    return (logp_BT * torch.linspace(-1, 2, logp_BT.numel(), dtype=logp_BT.dtype).view_as(logp_BT)).sum()


@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize("kind", CONFIGS)
def test_logp_entropy_and_gradients_equal_those_of_the_full_pass(kind, task_name):
    task = TASKS[task_name]
    policy = small_policy(kind, task)
    batch = small_rollout(policy, task, prompts=6, temperature=0.8)

    logp_BT, entropy_BT = policy.logp(batch)
    weighted(logp_BT).backward()
    shared = {name: p.grad.clone() for name, p in policy.model.named_parameters()}
    policy.model.zero_grad()

    ids_BS, out, width = full_pass(policy.model, batch)
    full_BT = token_logprobs(out.logits, ids_BS, temperature=0.8)[:, width - 1 :].where(batch.mask_BT, 0.0)
    weighted(full_BT).backward()

    torch.testing.assert_close(logp_BT, full_BT, atol=1e-10, rtol=0)
    plogp_BSV = torch.special.entr((out.logits / 0.8).softmax(-1)).sum(-1)
    wanted_BT = plogp_BSV[:, width - 1 : -1].where(batch.mask_BT, 0.0)
    torch.testing.assert_close(entropy_BT, wanted_BT.detach(), atol=1e-9, rtol=0)
    largest = max(float(g.abs().max()) for g in shared.values())
    assert largest > 1e-3
    # transformers' RMS norm computes in float32 whatever the weights are; GPT-2's layer norm doesn't
    exact = 1e-11 if kind == "gpt2" else 1e-6
    for name, parameter in policy.model.named_parameters():
        torch.testing.assert_close(shared[name], parameter.grad, atol=exact * largest, rtol=0, msg=name)


def test_gradients_equal_the_full_pass_to_1e6_of_the_largest_in_float32():
    task = TASKS["addition"]
    policy = small_policy("llama", task, dtype=torch.float32)
    batch = small_rollout(policy, task, prompts=6)
    weighted(policy.logp(batch)[0]).backward()
    shared = {name: p.grad.clone() for name, p in policy.model.named_parameters()}
    policy.model.zero_grad()
    ids_BS, out, width = full_pass(policy.model, batch)
    weighted(token_logprobs(out.logits, ids_BS)[:, width - 1 :].where(batch.mask_BT, 0.0)).backward()
    largest = max(float(g.abs().max()) for g in shared.values())
    for name, parameter in policy.model.named_parameters():
        torch.testing.assert_close(shared[name], parameter.grad, atol=2e-6 * largest, rtol=0, msg=name)


@pytest.mark.parametrize("task_name", TASKS)
def test_values_are_read_from_the_state_that_predicts_the_token(task_name):
    """Values off by one: V must be a function of what came before token t. Checked against the full pass, shifted."""
    task = TASKS[task_name]
    policy = small_policy("llama", task)
    critic = Critic(policy)
    with torch.no_grad():
        critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    batch = small_rollout(policy, task, prompts=6)
    values_BT, end_B = critic.values(batch)
    _, out, width = full_pass(critic.body, batch)
    states_BS = critic.head(out.last_hidden_state).squeeze(-1)[:, width - 1 :]
    torch.testing.assert_close(values_BT, states_BS[:, :-1].where(batch.mask_BT, 0.0), atol=1e-10, rtol=0)
    last_B = states_BS.gather(1, batch.attend_BT.sum(1, keepdim=True)).squeeze(1)
    torch.testing.assert_close(end_B, last_B, atol=1e-10, rtol=0)
    changed = batch.tokens_BT.clone()
    changed[:, 1] = (changed[:, 1] + 1) % 5 + 2
    with torch.no_grad():
        moved_BT, moved_end_B = critic.values(batch.replace(tokens_BT=changed))
    assert torch.equal(moved_BT[:, :2], values_BT[:, :2])  # values of the states before tokens 0 and 1
    assert (moved_end_B - end_B)[batch.attend_BT[:, 1]].abs().min() > 1e-9  # the state after it has seen it


def test_a_new_critic_says_zero_and_draws_no_random_number():
    policy = small_policy()
    state = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        critic = Critic(policy)
    assert torch.equal(state, torch.get_rng_state())
    batch = small_rollout(policy, Sort())
    assert not critic.values(batch)[0].any()


def test_frozen_modules_of_the_critic_are_not_trained():
    critic = Critic(small_policy(), frozen=("self_attn",))
    names = [name for name, p in critic.named_parameters() if p.requires_grad]
    assert not any("self_attn" in n for n in names) and any("mlp" in n for n in names)
    assert len(critic.parameters()) == len(names)


@pytest.mark.parametrize("task_name", TASKS)
def test_part_of_a_batch_gives_what_the_whole_gives(task_name):
    task = TASKS[task_name]
    policy = small_policy("llama", task)
    batch = small_rollout(policy, task, prompts=6)
    with torch.no_grad():
        whole_BT = policy.logp(batch)[0]
        index = torch.tensor([7, 3, 20, 2])
        part = batch.rows(index)
        part_BT = policy.logp(part)[0]
    columns = part.tokens_BT.shape[1]
    torch.testing.assert_close(part_BT, whole_BT[index, :columns], atol=1e-10, rtol=0)
    assert not whole_BT[index, columns:].any()


def test_dropout_of_a_foreign_model_is_off_so_the_ratio_to_itself_is_one():
    policy = small_policy("gpt2")  # configured with dropout 0.1
    batch = small_rollout(policy, Sort())
    with torch.no_grad():
        assert torch.equal(policy.logp(batch)[0], policy.logp(batch)[0])


def test_a_copy_shares_no_memory():
    policy = small_policy()
    other = policy.copy()
    with torch.no_grad():
        other.parameters()[0].add_(1.0)
    assert not torch.equal(other.parameters()[0], policy.parameters()[0])


@pytest.mark.parametrize("kind", CONFIGS)
def test_saved_and_loaded_policies_are_the_same(kind, tmp_path):
    policy = small_policy(kind, dtype=torch.float32)
    policy.save(tmp_path, {"seed": 3})
    assert sorted(p.suffix for p in tmp_path.iterdir() if "model" in p.name) == [".safetensors"]
    loaded = load_policy(tmp_path)
    for (name, a), (_, b) in zip(
        policy.model.named_parameters(), loaded.model.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert loaded.end_ids == policy.end_ids
    text = "315042="
    assert loaded.encode_text(text) == policy.encode_text(text)
    assert loaded.decode([loaded.encode_text(text)]) == [text]
    assert json.loads((tmp_path / "grpo_lab.json").read_text())["seed"] == 3


def test_missing_and_corrupt_weights_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="grpo-lab warm-start"):
        load_policy(tmp_path / "nowhere")
    small_policy(dtype=torch.float32).save(tmp_path / "p")
    weights = tmp_path / "p" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(ValueError, match="can't be read .* delete the folder"):
        load_policy(tmp_path / "p")


def test_building_a_policy_leaves_the_global_random_numbers_alone_and_follows_its_seed():
    state = torch.get_rng_state()
    a, b, c = (build_policy(Sort(), "XS", seed=s) for s in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    same = [torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True)]
    other = [torch.equal(x, y) for x, y in zip(a.parameters(), c.parameters(), strict=True)]
    assert all(same) and not all(other)


def test_presets_grow_and_have_no_dropout():
    sizes = []
    for preset in PRESETS:
        policy = build_policy(Sort(), preset)
        sizes.append(sum(p.numel() for p in policy.parameters()))
        config = policy.model.config
        assert (config.resid_pdrop, config.embd_pdrop, config.attn_pdrop) == (0, 0, 0)
    assert sizes == sorted(sizes) and 5e3 < sizes[0] < 3e4 and 2e6 < sizes[-1] < 6e6
    with pytest.raises(ValueError, match="no preset 'XXL'; the presets are XS, S, M, L"):
        build_policy(Sort(), "XXL")


def test_prompts_are_padded_on_the_left_and_the_mask_says_so():
    policy = small_policy("llama", Addition())
    ids_PL, mask_PL = policy.encode(["1+2=", "1234+5="])
    assert mask_PL.tolist() == [[False] * 3 + [True] * 4, [True] * 7]
    assert ids_PL[0, :3].tolist() == [policy.pad_id] * 3
    assert policy.decode([ids_PL[0][mask_PL[0]].tolist()]) == ["1+2="]


def test_a_policy_without_an_end_token_is_refused():
    policy = small_policy()
    policy.model.generation_config.eos_token_id = None
    policy.tokenizer.eos_token = None
    with pytest.raises(ValueError, match="no end token"):
        Policy(policy.model, policy.tokenizer)


def test_weights_with_a_tensor_missing_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    small_policy(dtype=torch.float32).save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"the weights lack \['model.norm.weight'\]"):
        load_policy(tmp_path)
