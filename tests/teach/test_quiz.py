"""Quiz: each choice explained, by mouse, by keyboard or by a call, and readable as text."""

import pytest

from grpo_lab.teach import progress
from grpo_lab.teach.quiz import Question, Quiz


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path))


def quiz():
    return Quiz(
        "05",
        [
            Question(
                "All right: what is learned?",
                ["much", "nothing"],
                right="b",
                why=["No spread.", "All A = 0."],
            ),
            Question("Is 2 < 3?", ["yes", "no"], right="yes", why=["It is.", "Count again."]),
        ],
    )


def test_a_press_explains_the_choice_right_or_wrong():
    one = quiz()
    _, buttons, said = one.widget.children[0].children
    buttons.children[0].click()
    assert said.value == "Not quite: No spread."
    buttons.children[1].click()
    assert said.value == "Right: All A = 0."
    assert "(your choice)" in buttons.children[1].description
    assert progress.load()["questions"] == {"05-1": {"right": True}}


def test_without_a_front_end_a_call_answers(capsys):
    quiz().answer(2, "b")
    assert capsys.readouterr().out == "Not quite: Count again.\n"
    assert progress.load()["questions"] == {"05-2": {"right": False}}


def test_the_stored_quiz_is_readable_with_answers_folded():
    bundle = quiz()._repr_mimebundle_()
    assert bundle["text/plain"].splitlines()[0] == "1. All right: what is learned?"
    assert "Right" not in bundle["text/plain"]
    assert "Is 2 &lt; 3?" in bundle["text/html"]
    before_fold = bundle["text/html"].split("<details>")[0]
    assert "A = 0" not in before_fold and bundle["text/html"].count("<details>") == 2


def test_a_keyboard_reaches_every_choice():
    """Buttons: Tab stops at each of them. Radio buttons would need arrow keys, which the notebook takes."""
    for row in quiz().widget.children:
        assert {type(child).__name__ for child in row.children[1].children} == {"Button"}


def test_questions_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="needs its explanation"):
        Question("?", ["a", "b"], right="a", why=["only one"])
    with pytest.raises(ValueError, match="has the choices"):
        Question("?", ["yes", "no"], right="maybe", why=["", ""])
    with pytest.raises(ValueError, match="numbered from 1 to 2"):
        quiz().answer(3, "a")
    with pytest.raises(ValueError, match="at least one question"):
        Quiz("05", [])
