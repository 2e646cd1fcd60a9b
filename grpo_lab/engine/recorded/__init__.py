"""What is recorded, one file a recording. `grpo_lab.engine.recording` makes and reads them."""
