"""Checks accept the package's function, name each mistake of the table, and never stop a Run All."""

import re
import subprocess
import sys
import textwrap

import pytest
import torch

from grpo_lab.teach import checks, progress
from grpo_lab.teach.deadline import TooManyLines, call_within
from grpo_lab.teach.judge import MOST_LINES, judge
from grpo_lab.teach.probes import PROBES
from tests.concepts.mutants import MUTANTS
from tests.concepts.registry import CONCEPTS

CASES = [(name, mistake) for name, mistakes in MUTANTS.items() for mistake in mistakes]

# Mistakes that no input can tell apart: one sentence names both. And one whose own words fit less well.
INSTEAD = {
    "surrogate_with_max_for_bad_tokens": "Did you choose max there, or take the min of the ratios",
    "surrogate_min_before_multiplying": "Did you choose max there, or take the min of the ratios",
    "value_loss_without_clip": "clip changes nothing. Is it used",
    "value_loss_clipped_around_the_return": "does the value move around the return",
    "quadrants_with_one_bound": "it should be 1 + eps_high",
}


def given(*args, **kwargs):
    """Stands for the package's function, which a check hands back after a failure."""


def heard(capsys):
    """What was printed, in one line: where lines are broken doesn't matter."""
    return " ".join(capsys.readouterr().out.split())


def check_of(name):
    return getattr(checks, f"check_{name}")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path))


def test_every_concept_has_a_check_and_every_check_a_concept():
    assert set(PROBES) == set(CONCEPTS)
    assert {name for name in vars(checks) if name.startswith("check_")} == {
        f"check_{name}" for name in PROBES
    }
    assert all(check_of(name).__doc__ and check_of(name).__name__ == f"check_{name}" for name in PROBES)


@pytest.mark.parametrize("name", sorted(CONCEPTS))
def test_the_package_passes_its_check(name, capsys):
    function = CONCEPTS[name][1]
    assert check_of(name)(function, otherwise=given) is function
    assert heard(capsys).startswith(f"{name} is right")
    assert progress.load()["checks"] == {name: {"passed": True}}


@pytest.mark.parametrize(("name", "mistake"), CASES)
def test_a_check_names_the_mistake(name, mistake, capsys):
    wrong, hint = MUTANTS[name][mistake]
    assert check_of(name)(wrong, otherwise=given) is given
    said = heard(capsys)
    assert INSTEAD.get(mistake, hint) in said
    assert "right:" in said or "right for" in said  # the numbers stand beside it
    assert progress.load()["checks"] == {}


def test_a_mistake_nobody_has_named_gets_its_numbers_and_no_guess(capsys):
    def group_mean_advantage(rewards_B, *, group_size):
        return rewards_B * 17

    checks.check_group_mean_advantage(group_mean_advantage, otherwise=given)
    said = heard(capsys)
    assert "Do this example by hand" in said
    assert "yours: [0, 0, 0, 17" in said and "right: [-0.25, -0.25, -0.25, 0.75" in said


def test_where_only_some_numbers_differ_the_first_is_pointed_out(capsys):
    def masked_sum(x_BT, mask_BT, *, dim=None):
        right = torch.where(mask_BT, x_BT, 0).sum(dim=dim)
        return right + torch.tensor([0.0, 1.0]) if dim == 1 else right

    checks.check_masked_sum(masked_sum, otherwise=given)
    assert "dim=1 asks for one sum a row" in heard(capsys)
    finding = judge(lambda mask_BT: CONCEPTS["token_mean"][1](mask_BT).cumsum(1), PROBES["token_mean"])
    assert finding.sentence == "6 of 8 numbers differ, the first at index [0, 1]."


def test_a_side_effect_of_a_wrong_function_is_not_taken_for_its_mistake():
    """A later probe finds a nan too, but the first numbers were wrong already."""
    finding = judge(lambda rewards_BT, *rest, **kw: rewards_BT * 2 + 1, PROBES["gae"])
    assert not finding.named and "nan" not in finding.sentence


def test_a_constant_factor_is_said():
    assert (
        "times 3"
        in judge(lambda mask_BT: 3 * CONCEPTS["token_mean"][1](mask_BT), PROBES["token_mean"]).sentence
    )


def test_an_unwritten_exercise_goes_on_with_the_package(capsys):
    def gae(*args, **kwargs):
        raise NotImplementedError

    assert checks.check_gae(gae, otherwise=given) is given
    assert "not written yet" in heard(capsys)


def test_after_a_failure_the_package_does_not_pass_for_the_learner(capsys):
    package = CONCEPTS["gae"][1]
    gae = checks.check_gae(lambda *args, **kwargs: None, otherwise=package)
    assert gae is package
    assert checks.check_gae(gae, otherwise=package) is package
    assert "Run your own cell first" in heard(capsys)
    assert progress.load()["checks"] == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x_BT, mask_BT, *, dim=None: None, "returned None. Is the `return` missing?"),
        (lambda x_BT, mask_BT, *, dim=None: 9.0, "returned a float, but a torch tensor"),
        (lambda x_BT, mask_BT, *, dim=None: "nine", "returned a str, but a torch tensor"),
        (lambda x_BT, mask_BT, *, dim=None: torch.tensor([9.0]), "shape (1,), but () is wanted"),
        (lambda x_BT, mask_BT, *, dim=None: torch.tensor(9), "whole numbers"),
        (lambda x_BT, mask_BT, *, dim=None: torch.tensor(True), "torch.bool"),
        (lambda x_BT, *, dim=None: x_BT.sum(), "can't be called as asked"),
        (lambda x_BT, mask_BT, *, dim=None: x_BT @ mask_BT, "stopped with an error: RuntimeError"),
        (lambda x_BT, mask_BT, *, dim=None: x_BT.mul_(0).sum(), "in place"),
    ],
)
def test_wrong_kinds_of_results_are_named(wrong, said, capsys):
    assert checks.check_masked_sum(wrong, otherwise=given) is given
    assert said in heard(capsys)


def test_something_that_is_no_function_is_named(capsys):
    assert checks.check_gae(3, otherwise=given) is given
    assert "should be a function" in heard(capsys)


def test_the_line_that_failed_is_shown(capsys):
    def masked_sum(x_BT, mask_BT, *, dim=None):
        return x_BT.reshape(77)

    checks.check_masked_sum(masked_sum, otherwise=given)
    assert "in the line `return x_BT.reshape(77)`" in heard(capsys)


def test_an_endless_loop_is_stopped_and_named(capsys):
    ran = 0

    def masked_sum(x_BT, mask_BT, *, dim=None):
        nonlocal ran
        while True:
            ran += 1

    assert checks.check_masked_sum(masked_sum, otherwise=given) is given
    assert "still going. Which condition ends your loop?" in heard(capsys)
    assert ran <= MOST_LINES


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "while True:\n  try:\n    1 / 0\n  except Exception:\n    pass",
        "for i in iter(int, 1): i",
    ],
)
def test_every_shape_of_endless_loop_is_stopped(source):
    scope = {}
    exec(f"def loop():\n{textwrap.indent(source, '  ')}", scope)
    with pytest.raises(TooManyLines):
        call_within(1000, scope["loop"])


def test_endless_recursion_is_named(capsys):
    def masked_sum(x_BT, mask_BT, *, dim=None):
        return masked_sum(x_BT, mask_BT, dim=dim)

    checks.check_masked_sum(masked_sum, otherwise=given)
    assert "calls itself without end" in heard(capsys)


def test_tracing_is_put_back():
    def mine(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(mine)
    try:
        assert call_within(10, lambda: 3) == 3
        with pytest.raises(ZeroDivisionError):
            call_within(10, lambda: 1 / 0)
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)


def test_what_a_check_prints_does_not_depend_on_progress(capsys):
    function = CONCEPTS["gae"][1]
    said = []
    for _ in range(2):
        checks.check_gae(function, otherwise=given)
        checks.check_gae(MUTANTS["gae"]["gae_trace_without_gamma"].function, otherwise=given)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_wrong_answer_does_not_take_a_pass_away(capsys):
    checks.check_gae(CONCEPTS["gae"][1], otherwise=given)
    checks.check_gae(lambda *args, **kwargs: None, otherwise=given)
    assert progress.load()["checks"] == {"gae": {"passed": True}}


def test_judging_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    for name, (_, function) in CONCEPTS.items():
        judge(function, PROBES[name])
    assert torch.equal(before, torch.get_rng_state())


def test_checks_never_load_a_concept():
    """A check that imports the answer judges it by itself. Seen in a fresh interpreter, and a learner's gae judged."""
    script = """
        import sys, torch
        from grpo_lab.teach.checks import check_masked_sum
        def masked_sum(x_BT, mask_BT, *, dim=None):
            return torch.where(mask_BT, x_BT, 0).sum(dim=dim)
        assert check_masked_sum(masked_sum, otherwise=None) is masked_sum
        assert not [name for name in sys.modules if name.startswith(("grpo_lab.concepts", "grpo_lab.engine"))]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_hint_is_a_sentence_without_an_answer_in_code():
    hints = {hint for probes in PROBES.values() for probe in probes for hint in probe.tells}
    assert all(hint.endswith((".", "?")) and len(hint) > 30 for hint in hints)
    assert not any(re.search(r"torch\.|\w+\(.*\)\s*/", hint) for hint in hints)
