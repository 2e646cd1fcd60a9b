"""Runs inside a chapter's kernel, before its first cell: training is real, but it is only a few steps."""

import functools
import importlib

MOST_STEPS = 3


def allow(most: int, calls: int = 1):
    """From now on train() makes at most `most` policy updates in all, shared out among the expected calls.

    A call that comes when they are used up still yields its row for step 0. Returns a function that says how many
    steps were made, those of a loop around step() included: such a loop must heed GRPO_LAB_FAST by itself.
    """
    engine = importlib.import_module("grpo_lab.engine.train")
    train, step = engine.train, engine.step
    share, left, made = max(1, most // max(1, calls)), most, 0

    @functools.wraps(step)
    def counted(*words, **more):
        nonlocal made
        made += 1
        return step(*words, **more)

    @functools.wraps(train)
    def short(*words, steps, run=None, **more):
        nonlocal left
        before = 0 if run is None else run.version
        granted = max(0, min(steps - before, share, left))
        left -= granted
        return train(*words, steps=before + granted, run=run, **more)

    engine.train, engine.step = short, counted
    return lambda: made
