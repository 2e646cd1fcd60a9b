"""TRL's GRPOTrainer, made to stop after each of its steps so that another learner can have its turn.

Its fast CPU settings: float32, no gradient checkpointing, fused AdamW, no logging, saving, evaluation or progress bar.
`GRPOTrainer.train` keeps the lead. A callback at the end of each step stops the clock, lets the others run, and starts
the clock again, so a step of TRL is everything between two such calls: drawing the rows from its loader, generating,
scoring, training, optimising.
"""

import logging
import tempfile
import warnings
from collections.abc import Callable

from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.clock import now
from grpo_lab.engine.policy import Policy
from grpo_lab.engine.tasks import Prompt, Task


class Judge:
    """The task's reward as TRL calls it. Keeps what came, to be looked at when the clock has stopped."""

    __name__ = "judge"

    def __init__(self, task: Task):
        self.task = task
        self.batches: list[tuple[list[str], list[float], list[int]]] = []  # prompts, rewards, lengths

    def __call__(self, prompts, completions, target, completion_ids, **_) -> list[float]:
        rewards = [
            self.task.reward(Prompt(prompt, wanted), [text])
            for prompt, text, wanted in zip(prompts, completions, target, strict=True)
        ]
        self.batches.append((prompts, rewards, [len(ids) for ids in completion_ids]))
        return rewards


class _Turns(TrainerCallback):
    def __init__(self, others_turn: Callable[[float], None], device: str):
        self.others_turn, self.device = others_turn, device
        self.begun = 0.0

    def on_train_begin(self, *_, **__) -> None:
        self.begun = now(self.device)

    def on_step_end(self, *_, **__) -> None:
        self.others_turn(now(self.device) - self.begun)
        self.begun = now(self.device)


class Peer:
    """`train(others_turn)` trains for `steps` steps and calls others_turn(seconds of this step) after each."""

    def __init__(
        self,
        policy: Policy,
        task: Task,
        prompts: list[Prompt],
        *,
        steps: int,
        group_size: int,
        batch_size: int,
        micro_batch: int,
        lr: float,
        device: str,
    ):
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        self.device, self.judge = device, Judge(task)
        self.folder = tempfile.TemporaryDirectory(prefix="benchmark-")
        config = GRPOConfig(
            output_dir=self.folder.name,
            max_steps=steps,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=batch_size // micro_batch,
            steps_per_generation=batch_size // micro_batch,
            num_generations=group_size,
            max_completion_length=task.max_tokens,
            temperature=1.0,
            beta=0.0,
            loss_type="grpo",
            scale_rewards="group",
            shuffle_dataset=False,  # so that step k sees the prompts that ours sees
            learning_rate=lr,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            use_cpu=device == "cpu",
            bf16=False,
            fp16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            eval_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        rows = Dataset.from_dict({"prompt": [p.text for p in prompts], "target": [p.target for p in prompts]})
        self.trainer = GRPOTrainer(
            model=policy.model,
            reward_funcs=self.judge,
            args=config,
            train_dataset=rows,
            processing_class=policy.tokenizer,
        )
        for callback in (PrinterCallback, ProgressCallback):
            self.trainer.remove_callback(callback)

    def train(self, others_turn: Callable[[float], None]) -> None:
        self.trainer.add_callback(_Turns(others_turn, self.device))
        self.trainer.train()
        self.folder.cleanup()
