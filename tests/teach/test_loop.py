"""The figure of the loop names every box and file, and only files that exist."""

import pytest

from grpo_lab.teach.loop import ARROWS, BOXES, loop
from tests.test_arrows import PACKAGE


def test_every_file_on_an_arrow_exists():
    there = {path.name for path in PACKAGE.rglob("*.py")}
    assert {file.replace("\n", "") for _, _, _, file in ARROWS} <= there


def test_every_box_is_reached_and_the_loop_closes():
    assert {start for start, *_ in ARROWS} | {"curves"} == set(BOXES)
    assert {end for _, end, *_ in ARROWS} | {"prompts"} == set(BOXES)
    assert ("optimizer", "rollout") in {(start, end) for start, end, *_ in ARROWS}


def test_what_is_lit_is_said_in_words():
    assert "Lit: box 5 (advantage), 6 (loss)." in loop("advantage", "loss").alt
    assert "this is the whole" in loop().alt
    assert loop("loss", "loss").alt == loop("loss").alt
    for wrong in ("critic", "Loss", ["loss"], None):
        with pytest.raises(ValueError, match=r"no box .*as in loop\('loss'\): prompts, rollout"):
            loop(wrong)
