"""Small policies and batches that the engine's tests share."""

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from grpo_lab.engine.policy import Policy
from grpo_lab.engine.rollout import rollout, row_noise
from grpo_lab.engine.tasks import Addition, Guess, Sort
from grpo_lab.engine.tokenizer import toy_tokenizer

CONFIGS = {
    "llama": lambda v: LlamaConfig(
        vocab_size=v, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ),
    "qwen2": lambda v: Qwen2Config(
        vocab_size=v, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ),
    "qwen3": lambda v: Qwen3Config(
        vocab_size=v, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ),
    "gpt2": lambda v: GPT2Config(
        vocab_size=v, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
        pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ),
}  # fmt: skip


def small_policy(
    kind: str = "llama",
    task=None,
    *,
    seed: int = 0,
    dtype=torch.float64,
    spread: float = 6.0,
    layers: int = 2,
) -> Policy:
    """Random weights, float64; the head scaled up so that the distribution is far from uniform."""
    tokenizer = toy_tokenizer((task or Sort()).alphabet)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = CONFIGS[kind](len(tokenizer))
        config.num_hidden_layers = layers
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        # GPT-2 ties its head to its embeddings, so there both grow
        model.get_output_embeddings().weight.mul_(spread if kind != "gpt2" else spread / 3)
    return Policy(model, tokenizer)


def prompts_of(task, n: int, *, seed: int = 0, split: str = "train"):
    return task.prompts(n, generator=torch.Generator().manual_seed(seed), split=split)


def small_rollout(
    policy, task, *, prompts: int = 5, group_size: int = 4, seed: int = 0, temperature: float = 1.0
):
    noise = row_noise(seed, range(prompts), group_size, task.max_turns * task.max_tokens)
    return rollout(
        policy,
        task,
        prompts_of(task, prompts, seed=seed),
        group_size=group_size,
        noise_BT=noise,
        temperature=temperature,
    )


# Prompts of one length, prompts of many lengths (left padding), and several turns (observations, holes while writing).
TASKS = {"sort": Sort(6), "addition": Addition(4), "guess": Guess()}
