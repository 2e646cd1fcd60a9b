"""Two learners go through every chapter; and a made-up chapter shows that what they look for can be missed."""

import types

import pytest

from tests.concepts.mutants import MUTANTS
from tests.notebooks import few_steps, learners
from tests.notebooks.learners import Day, Verdict, complaints, right, spend_a_day, wrong
from tools import rules
from tools.chapters import ROOT, CellFailed, chapters, read_source, skeleton

CHAPTERS = chapters(ROOT / "chapters")
WITH_EXERCISES = [
    one for one in CHAPTERS if any(rules.code_cells(skeleton(read_source(one.source)), "exercise"))
]


@pytest.mark.parametrize("author", [right, wrong], ids=["solved", "wrong"])
@pytest.mark.parametrize("chapter", WITH_EXERCISES, ids=lambda chapter: chapter.name)
def test_a_learner_reaches_the_end_and_hears_the_truth(chapter, author):
    nb = skeleton(read_source(chapter.source))
    day = spend_a_day(nb, author, cwd=chapter.notebook.parent)
    exercises = [rules.exercise_function(cell).name for _, cell in rules.code_cells(nb, "exercise")]
    assert {verdict.name for verdict in day.verdicts} == set(exercises)
    assert complaints(day, author) == []


# --- a made-up chapter: one honest check, one that accepts everything, one that turns everything down ----------------

HINT = next(iter(MUTANTS["group_mean_advantage"].values())).hint
MADE_UP = f"""# %% tags=["setup"]
import torch
from grpo_lab.concepts.group_advantage import group_mean_advantage as package
def check(mine, otherwise):
    good = torch.allclose(mine(torch.tensor([1.0, 0, 0, 0]), group_size=2), torch.tensor([0.5, -0.5, 0, 0]))
    print("Right." if good else {HINT!r})
    return mine if good else otherwise

# %% tags=["demo"]
raise SystemExit("a learner's run leaves demo, plot and widget cells out")

# %% tags=["exercise"]
def group_mean_advantage(rewards_B, *, group_size):
    raise NotImplementedError

# %% tags=["exercise"]
def k1(logp_BT, logp_ref_BT, mask_BT):
    raise NotImplementedError

# %% tags=["exercise"]
def k2(logp_BT, logp_ref_BT, mask_BT):
    raise NotImplementedError

# %% tags=["check"]
group_mean_advantage = check(group_mean_advantage, otherwise=package)

# %% tags=["check"]
k1 = k1

# %% tags=["check"]
print("No.")
k2 = package
"""


def test_the_solved_learner_keeps_what_an_honest_check_hands_back(tmp_path):
    day = spend_a_day(skeleton(MADE_UP), right, cwd=tmp_path)
    assert day == Day([("group_mean_advantage", True, "Right."), ("k1", True, ""), ("k2", False, "No.")], 0)
    assert complaints(day, right) == [
        "the check of k1 says nothing",
        "the check of k2 turns the package's own function down: No.",
    ]


def test_the_wrong_learner_is_told_the_mistake_and_gets_the_package(tmp_path):
    day = spend_a_day(skeleton(MADE_UP), wrong, cwd=tmp_path)
    assert day == Day([("group_mean_advantage", False, HINT), ("k1", True, ""), ("k2", False, "No.")], 0)
    first = {name: learners.mistake_in(name) for name in ("k1", "k2")}
    assert complaints(day, wrong) == [
        "the check of k1 says nothing",
        f"the check of k1 accepts {first['k1']}: ",
        f"the check of k2 turns {first['k2']} down without naming it: No.",
    ]


def test_a_chapter_that_stops_on_the_way_is_named(tmp_path):
    """What no check replaces is still the exercise: calling it stops Run All."""
    nb = skeleton(
        '# %% tags=["exercise"]\ndef k9(x):\n    raise NotImplementedError\n\n# %% tags=["check"]\nk9(1)\n'
    )
    with pytest.raises(CellFailed, match="NotImplementedError"):
        spend_a_day(nb, wrong, cwd=tmp_path)


def test_an_exercise_without_a_known_mistake_is_left_unwritten():
    (cell,) = skeleton('# %% tags=["exercise"]\ndef k9(x):\n    raise NotImplementedError\n').cells
    assert wrong(rules.exercise_function(cell), cell.source) == cell.source
    day = Day([Verdict("k9", True, "fine")], 4)
    assert complaints(day, wrong) == [
        "4 training steps; 3 at most",
        "the check of k9 accepts an unwritten exercise: fine",
    ]
    assert complaints(Day([Verdict("k9", False, "Not written yet.")], 3), wrong) == []


def test_a_check_that_sees_mistakes_everywhere_is_named():
    day = Day([Verdict("group_mean_advantage", True, f"Right. {HINT}")], 0)
    mistake = learners.mistake_in("group_mean_advantage")
    assert complaints(day, right) == [
        f"the check of group_mean_advantage sees the mistake {mistake} where none is"
    ]


def test_the_wrong_learners_function_has_the_arguments_of_the_exercise():
    signature = "def group_advantage(rewards_B, *, group_size, eps=1e-4):"
    source = f'# %% tags=["exercise"]\n{signature}\n    raise NotImplementedError\n'
    (cell,) = skeleton(source).cells
    space = {}
    exec(compile(wrong(rules.exercise_function(cell), cell.source), "<cell>", "exec"), space)
    mistake = MUTANTS["group_advantage"][learners.mistake_in("group_advantage")].function
    import torch

    rewards_B = torch.tensor([1.0, 0, 0, 1, 1, 0])
    ours = space["group_advantage"](rewards_B, group_size=3)
    assert torch.equal(ours, mistake(rewards_B, group_size=3))


@pytest.mark.parametrize(
    ("calls", "asked", "made"),
    [
        (1, [200], [3]),
        (2, [200, 200], [1, 1]),
        (3, [50, 50, 50], [1, 1, 1]),
        (1, [200, 200], [3, 0]),
        (1, [2], [2]),
    ],
)
def test_training_is_cut_to_a_few_steps_in_all(monkeypatch, calls, asked, made):
    def step(run):
        return {"step": 1}

    def train(policy, *, steps, run=None):
        yield {"step": 0}
        for _ in range(steps - (run.version if run else 0)):
            yield engine.step(run)

    engine = types.SimpleNamespace(train=train, step=step)
    monkeypatch.setattr(few_steps.importlib, "import_module", lambda name: engine)
    count = few_steps.allow(3, calls)
    assert [len(list(engine.train("policy", steps=steps))) - 1 for steps in asked] == made
    assert count() == sum(made)


def test_a_run_that_goes_on_is_cut_too(monkeypatch):
    engine = types.SimpleNamespace(train=lambda policy, *, steps, run: steps, step=None)
    engine.step = lambda run: None
    monkeypatch.setattr(few_steps.importlib, "import_module", lambda name: engine)
    few_steps.allow(3)
    assert engine.train("policy", steps=500, run=types.SimpleNamespace(version=100)) == 103
