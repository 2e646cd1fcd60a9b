"""A bet comes before the reveal, is scored and remembered; the reveal works without one."""

import pytest

from grpo_lab.teach import progress
from grpo_lab.teach.predict import Bet


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path))


def choice(**kwargs):
    return Bet("05-equal", "Eight right answers: what happens?", choices=["they rise", "nothing"], **kwargs)


def guess(**kwargs):
    return Bet("05-dead", "How many of 100 groups teach nothing?", low=0, high=100, **kwargs)


def test_reveal_works_without_a_bet_and_notes_nothing():
    said = choice().reveal("b", because="Reward minus mean is 0.")
    assert said == "The answer: b, nothing. Reward minus mean is 0."
    assert progress.load()["bets"] == {}


def test_a_bet_on_a_choice_is_scored_and_remembered():
    assert "You bet a, they rise: lost." in choice(answer="a").reveal("nothing", because="...")
    assert progress.load()["bets"] == {"05-equal": {"bet": "a, they rise", "right": False}}
    assert "won" in choice().place("nothing").reveal("b", because="...")
    assert progress.load()["bets"]["05-equal"]["right"] is True


def test_a_number_wins_within_the_margin():
    assert "You bet 40: won." in guess(answer=40).reveal(43, within=5, because="...")
    assert "You bet 10: lost, off by 33." in guess(answer=10).reveal(43, within=5, because="...")


def test_buttons_place_the_bet_and_say_which():
    bet = choice()
    buttons = bet.widget.children[1].children
    buttons[0].click()
    buttons[1].click()
    assert bet.placed == 1
    assert [button.description for button in buttons] == ["a  they rise", "b  nothing  (your choice)"]
    number_bet = guess()
    box, place = number_bet.widget.children[1].children
    box.value = 43
    place.click()
    assert number_bet.placed == 43


def test_a_bet_reads_well_without_a_front_end():
    assert choice()._repr_mimebundle_()["text/plain"] == (
        "Your bet: Eight right answers: what happens?\n  a  they rise\n  b  nothing"
    )
    assert "from 0 to 100" in repr(guess())


def test_what_reveal_says_does_not_depend_on_stored_progress():
    first = choice(answer="b").reveal("b", because="...")
    assert choice(answer="b").reveal("b", because="...") == first
    assert choice().reveal("b", because="...") == "The answer: b, nothing. ..."


def test_bets_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="has the choices a"):
        choice(answer="z")
    with pytest.raises(ValueError, match="must lie in"):
        guess(answer=101)
    with pytest.raises(ValueError, match="at least two"):
        Bet("x", "?", choices=["one"])
    with pytest.raises(ValueError, match="range"):
        Bet("x", "?")
