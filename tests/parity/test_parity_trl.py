"""Value and gradient against TRL 1.16.0, on numbers where every branch is taken. README.md here lists the definitions.

TRL's loss is called on a stand-in for the trainer that has the attributes the loss reads, so that log-probabilities
can be chosen freely: ratios far from 1 on both sides, answers of different length, a dead group, both signs of A.
What a trainer computes inside its own loop (advantages, log-probabilities, entropy) is captured from real runs.
"""

import copy
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from grpo_lab.concepts.aggregate import constant_mean, sequence_mean, token_mean, weighted_sum
from grpo_lab.concepts.clipped_surrogate import clipped_surrogate
from grpo_lab.concepts.diagnostics import clip_fraction, entropy
from grpo_lab.concepts.group_advantage import (
    batch_std_advantage,
    group_advantage,
    group_mean_advantage,
    leave_one_out_advantage,
)
from grpo_lab.concepts.importance_ratio import importance_ratio, product_ratio, sequence_ratio
from grpo_lab.concepts.kl import corrected_k3, k3
from grpo_lab.concepts.token_logprobs import token_logprobs

TOLERANCE = {"rtol": 1e-6, "atol": 1e-8}  # weights are float32, everything else here is float64
MAX_LENGTH = 9
GROUP = 4


def test_parity_is_measured_against_the_version_the_texts_name():
    assert trl.__version__ == "1.16.0"


def _case() -> dict[str, torch.Tensor]:
    """Three groups of four answers, the second one dead; lengths 1 to 6; ratios from 0.12 to 6.7."""
    generator = torch.Generator().manual_seed(0)
    shape = (3 * GROUP, 6)
    rewards_B = torch.tensor([1.0, 0, 0, 2.5, 1, 1, 1, 1, -1, 0.25, 3, 0], dtype=torch.float64)
    lengths_B1 = torch.tensor([6, 1, 3, 5, 2, 6, 4, 1, 6, 5, 2, 3]).unsqueeze(1)
    logp_BT = -torch.rand(shape, generator=generator, dtype=torch.float64) * 3
    # Every answer as a whole has drifted up, down or hardly, so that its sequence ratio leaves the band as well.
    drift_B1 = torch.tensor([1.0, -1, 1, -0.1, 1, -1, 0, 1, -1, 0.05, 1, -1], dtype=torch.float64).unsqueeze(
        1
    )
    return {
        "logp_BT": logp_BT,
        "logp_old_BT": logp_BT
        - drift_B1
        - 0.8 * torch.randn(shape, generator=generator, dtype=torch.float64),
        "logp_ref_BT": logp_BT - torch.randn(shape, generator=generator, dtype=torch.float64),
        "mask_BT": torch.arange(6) < lengths_B1,
        "advantages_B": group_advantage(rewards_B, group_size=GROUP),
    }


CASE = _case()
LOSSES = {  # TRL's loss_type -> our weights
    "grpo": sequence_mean,
    "bnpo": token_mean,
    "dapo": token_mean,
    "dr_grpo": lambda mask_BT: constant_mean(mask_BT, length=MAX_LENGTH),
}
RATIOS = {"token": importance_ratio, "sequence": sequence_ratio}
BOUNDS = {
    "symmetric": {"eps_low": 0.2, "eps_high": 0.2, "delta": None},
    "clip-higher": {"eps_low": 0.2, "eps_high": 0.28, "delta": None},
    "two-sided": {"eps_low": 0.2, "eps_high": 0.28, "delta": 1.5},
}
KL_COEF = 0.1


def _peer_trainer(loss_type, logp_BT, bounds, *, level="token", kl=None, accumulation=1):
    """The attributes that GRPOTrainer._compute_loss and RLOOTrainer._compute_loss read."""
    return SimpleNamespace(
        loss_type=loss_type,
        epsilon_low=bounds["eps_low"],
        epsilon_high=bounds["eps_high"],
        beta=0.0 if kl is None else KL_COEF,
        importance_sampling_level=level,
        max_completion_length=MAX_LENGTH,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=accumulation,
        args=SimpleNamespace(
            delta=bounds["delta"], use_bias_correction_kl=kl == "corrected", steps_per_generation=accumulation
        ),
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp_BT, torch.zeros_like(logp_BT), None),
    )


def _peer_loss(trainer, case, tokens_in_batch):
    rows, columns = case["mask_BT"].shape
    inputs = {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.long),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.long),
        "completion_ids": torch.zeros(rows, columns, dtype=torch.long),
        "completion_mask": case["mask_BT"].long(),
        "advantages": case["advantages_B"],
        "old_per_token_logps": case["logp_old_BT"],
        "ref_per_token_logps": case["logp_ref_BT"],
        "num_items_in_batch": tokens_in_batch,
    }
    return GRPOTrainer._compute_loss(trainer, None, inputs)


def _our_loss(logp_BT, case, weights_BT, ratio, bounds, kl):
    mask_BT = case["mask_BT"]
    ratio_BT = ratio(logp_BT, case["logp_old_BT"], mask_BT)
    advantages_BT = case["advantages_B"].unsqueeze(1).expand_as(mask_BT)
    loss_BT = clipped_surrogate(ratio_BT, advantages_BT, **bounds)
    if kl == "plain":
        loss_BT = loss_BT + KL_COEF * k3(logp_BT, case["logp_ref_BT"], mask_BT)
    if kl == "corrected":
        loss_BT = loss_BT + KL_COEF * corrected_k3(ratio_BT, logp_BT, case["logp_ref_BT"], mask_BT)
    return weighted_sum(loss_BT, weights_BT, mask_BT)


def _value_and_gradient(loss_of):
    logp_BT = CASE["logp_BT"].clone().requires_grad_()
    loss = loss_of(logp_BT)
    (grad_BT,) = torch.autograd.grad(loss, logp_BT)
    return loss.detach(), grad_BT


@pytest.mark.parametrize("ratio", [importance_ratio, sequence_ratio, product_ratio])
def test_the_parity_case_takes_every_branch(ratio):
    """Otherwise parity would prove little: for both signs of A there are ratios above, below and inside the band."""
    ratio_BT = ratio(CASE["logp_BT"], CASE["logp_old_BT"], CASE["mask_BT"])
    for sign in (1, -1):
        ratios = ratio_BT[CASE["mask_BT"] & (sign * CASE["advantages_B"].unsqueeze(1) > 0)]
        assert (ratios > 1.5).any()  # beyond delta, too
        assert (ratios < 0.8).any()
        assert ((ratios > 0.8) & (ratios < 1.2)).any()
    assert (CASE["advantages_B"][GROUP : 2 * GROUP] == 0).all()


@pytest.mark.parametrize("kl", [None, "plain", "corrected"])
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("level", RATIOS)
@pytest.mark.parametrize("loss_type", LOSSES)
def test_parity_trl_grpo_loss_and_gradient(loss_type, level, bounds, kl):
    bounds = BOUNDS[bounds]
    tokens = CASE["mask_BT"].sum()
    weights_BT = LOSSES[loss_type](CASE["mask_BT"])

    def theirs(logp_BT):
        return _peer_loss(_peer_trainer(loss_type, logp_BT, bounds, level=level, kl=kl), CASE, tokens)

    def ours(logp_BT):
        return _our_loss(logp_BT, CASE, weights_BT, RATIOS[level], bounds, kl)

    torch.testing.assert_close(_value_and_gradient(ours), _value_and_gradient(theirs), **TOLERANCE)


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
def test_parity_trl_accumulated_micro_batches(loss_type):
    """TRL splits the batch in two and lets the gradients add up. We weigh the whole, then split."""
    bounds = BOUNDS["clip-higher"]
    tokens = CASE["mask_BT"].sum()
    halves = [slice(0, 6), slice(6, 12)]

    def theirs(logp_BT):
        total = 0.0
        for half in halves:
            trainer = _peer_trainer(loss_type, logp_BT[half], bounds, accumulation=2)
            total = total + _peer_loss(trainer, {key: x[half] for key, x in CASE.items()}, tokens)
        return total

    def ours(logp_BT):
        weights_BT = LOSSES[loss_type](CASE["mask_BT"])
        total = 0.0
        for half in halves:
            part = {key: x[half] for key, x in CASE.items()}
            total = total + _our_loss(logp_BT[half], part, weights_BT[half], importance_ratio, bounds, None)
        return total

    torch.testing.assert_close(_value_and_gradient(ours), _value_and_gradient(theirs), **TOLERANCE)


def test_parity_trl_clip_fraction():
    trainer = _peer_trainer("dapo", CASE["logp_BT"], BOUNDS["clip-higher"])
    _peer_loss(trainer, CASE, CASE["mask_BT"].sum())
    (theirs,) = trainer._metrics["train"]["clip_ratio/region_mean"]

    ratio_BT = importance_ratio(CASE["logp_BT"], CASE["logp_old_BT"], CASE["mask_BT"])
    advantages_BT = CASE["advantages_B"].unsqueeze(1).expand_as(ratio_BT)
    ours = clip_fraction(ratio_BT, advantages_BT, CASE["mask_BT"], eps_low=0.2, eps_high=0.28)
    assert ours.item() == pytest.approx(theirs, rel=1e-6)
    assert 0.2 < theirs < 0.8


def test_parity_trl_rloo_loss_and_gradient():
    """RLOO clips the ratio of the whole answer: the product over its tokens."""
    bounds = BOUNDS["symmetric"]
    mask_BT = CASE["mask_BT"]
    weights_BT = sequence_mean(mask_BT)

    def theirs(logp_BT):
        inputs = {
            "prompt_ids": torch.zeros(12, 1, dtype=torch.long),
            "prompt_mask": torch.ones(12, 1, dtype=torch.long),
            "completion_ids": torch.zeros(12, 6, dtype=torch.long),
            "completion_mask": mask_BT.long(),
            "old_logps": (CASE["logp_old_BT"] * mask_BT).sum(dim=1),
            "advantages": CASE["advantages_B"],
        }
        return RLOOTrainer._compute_loss(_peer_trainer("rloo", logp_BT, bounds), None, inputs)

    def ours(logp_BT):
        return _our_loss(logp_BT, CASE, weights_BT, product_ratio, bounds, None)

    torch.testing.assert_close(_value_and_gradient(ours), _value_and_gradient(theirs), **TOLERANCE)


# ---- real runs -------------------------------------------------------------------------------------------

REWARDS = [
    1.0,
    0,
    0,
    2.5,
    1,
    1,
    1,
    1,
    -1,
    0.25,
    3,
    0,
]  # three prompts, four answers each, the second one dead


def _tokenizer():
    words = {word: i for i, word in enumerate(["<pad>", "<eos>", *"abcdefghij"])}
    core = Tokenizer(WordLevel(words, unk_token="<pad>"))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")


def _model():
    config = LlamaConfig(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.5,  # logits far from uniform, so that a wrong temperature shows
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


# TRL 1.16.0 still asks a model for `is_gradient_checkpointing`, which transformers 5.24 calls by another name.
old_name_in_trl = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def _recording(trainer_class):
    """The trainer, writing down what it hands to its loss."""

    class Recorder(trainer_class):
        def _generate_and_score_completions(self, inputs):
            self.recorded = super()._generate_and_score_completions(inputs)
            return self.recorded

    return Recorder


def _one_step(trainer_class, config_class, folder, **settings):
    disable_progress_bars()
    config = config_class(
        output_dir=str(folder),
        per_device_train_batch_size=12,
        num_generations=GROUP,
        max_completion_length=5,
        max_steps=1,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        **settings,
    )
    trainer = _recording(trainer_class)(
        model=_model(),
        reward_funcs=lambda completions, **_: REWARDS,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text} for text in ("a", "b c d", "e f")]),
        processing_class=_tokenizer(),
    )
    with torch.random.fork_rng():
        trainer.train()
    return trainer


@old_name_in_trl
@pytest.mark.parametrize(
    ("scale_rewards", "advantage"),
    [("group", group_advantage), ("batch", batch_std_advantage), ("none", group_mean_advantage)],
)
def test_parity_trl_advantages_of_a_real_step(scale_rewards, advantage, tmp_path):
    trainer = _one_step(GRPOTrainer, GRPOConfig, tmp_path, scale_rewards=scale_rewards)
    theirs_B = trainer.recorded["advantages"]
    ours_B = advantage(torch.tensor(REWARDS), group_size=GROUP)
    torch.testing.assert_close(ours_B, theirs_B, rtol=1e-5, atol=1e-6)
    assert (theirs_B[GROUP : 2 * GROUP] == 0).all()
    assert theirs_B.unique().numel() > 5


@old_name_in_trl
def test_parity_trl_rloo_advantages_of_a_real_step(tmp_path):
    trainer = _one_step(RLOOTrainer, RLOOConfig, tmp_path)
    ours_B = leave_one_out_advantage(torch.tensor(REWARDS), group_size=GROUP)
    torch.testing.assert_close(ours_B, trainer.recorded["advantages"], rtol=1e-5, atol=1e-6)


@old_name_in_trl
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_parity_trl_logprobs_and_entropy_of_a_real_step(temperature, tmp_path):
    """The same tokens, left-padded prompts included, scored by the trainer and by us at the sampling temperature."""
    trainer = _one_step(GRPOTrainer, GRPOConfig, tmp_path, temperature=temperature)
    recorded = trainer.recorded
    ids_BS = torch.cat([recorded["prompt_ids"], recorded["completion_ids"]], dim=1)
    attend_BS = torch.cat([recorded["prompt_mask"], recorded["completion_mask"]], dim=1)
    columns = recorded["completion_ids"].shape[1]
    own_BT = recorded["completion_mask"].bool()
    assert (recorded["prompt_mask"] == 0).any()

    with torch.no_grad():
        theirs_BT, their_entropy_BT, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids_BS, attend_BS, columns, compute_entropy=True
        )
        plain = copy.deepcopy(_model())
        plain.load_state_dict(trainer.model.state_dict())
        logits_BSV = plain(input_ids=ids_BS, attention_mask=attend_BS).logits.float()

    ours_BT = token_logprobs(logits_BSV, ids_BS, temperature=temperature)[:, -columns:]
    torch.testing.assert_close(ours_BT[own_BT], theirs_BT[own_BT], rtol=1e-5, atol=1e-5)
    our_entropy_BT = entropy(logits_BSV[:, -columns - 1 : -1], temperature=temperature)
    torch.testing.assert_close(our_entropy_BT[own_BT], their_entropy_BT[own_BT], rtol=1e-5, atol=1e-5)
