"""What carries the ideas of `grpo_lab.concepts` through a real training run."""
