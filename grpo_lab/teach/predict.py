"""Bet before you look: a guess first makes the answer stick, right or wrong.

    bet = Bet("05-dead-groups", "Of 100 groups of 8 at pass rate 0.1, how many teach nothing?", low=0, high=100)
    bet                                # in its own cell: the buttons, or a number box
    bet.reveal(43, within=5, because="0.9 to the power 8 is 0.43.")          # in a later cell; works without a bet

Without a front end: `bet.place(40)`, or `Bet(..., answer=40)`.
"""

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from grpo_lab.guard import require, require_range
from grpo_lab.teach import progress
from grpo_lab.teach.choices import LETTERS, column, letter_of, mark


class Bet:
    """One question to bet on before it is answered.

    name       under which the bet is remembered; one a question in the whole course, "05-dead-groups" say
    question   in words
    choices    the answers to choose from; or
    low, high  the range of a number
    answer     a bet placed at once: a letter or text of a choice, or a number

    Raises: ValueError unless there are either two choices or more, or a range.
    """

    def __init__(
        self,
        name: str,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        low: float | None = None,
        high: float | None = None,
        answer: Any = None,
    ):
        if choices is not None:
            require(len(choices) >= 2, f"a bet needs at least two choices, got {list(choices)}.")
        else:
            require(
                low is not None and high is not None and low < high,
                "a bet needs choices=[...], or a number's range: low=0, high=100.",
            )
        self.name, self.question = name, question
        self.choices, self.low, self.high = None if choices is None else list(choices), low, high
        self.placed: int | float | None = None
        self._said = widgets.HTML("No bet yet.")
        self._buttons = None
        if self.choices is not None:
            self._buttons = column(self.choices, self._set)
            parts = [self._buttons]
        else:
            self._box = widgets.BoundedFloatText(
                value=low, min=low, max=high, description="your bet", style={"description_width": "initial"}
            )
            place = widgets.Button(description="Place my bet")
            place.on_click(lambda _: self._set(self._box.value))
            parts = [widgets.HBox([self._box, place])]
        title = widgets.HTML(f"<b>Your bet:</b> {html.escape(question)}")
        self.widget = widgets.VBox([title, *parts, self._said])
        if answer is not None:
            self.place(answer)

    def place(self, answer: Any) -> "Bet":
        """Place a bet without a mouse: a letter or text of a choice, or a number. Returns itself.

        Raises: ValueError for a choice that isn't there or a number outside the range.
        """
        if self.choices is not None:
            number = letter_of(answer, self.choices, "the bet")
            mark(self._buttons.children, self.choices, number)
            self._set(number)
        else:
            require_range("the bet", answer, self.low, self.high)
            self._set(float(answer))
        return self

    def _set(self, value: int | float) -> None:
        self.placed = value
        self._said.value = (
            f"Your bet is placed: {html.escape(self._words(value))}. You may change it until you look."
        )

    def _words(self, value: int | float) -> str:
        return f"{LETTERS[value]}, {self.choices[value]}" if self.choices is not None else f"{value:g}"

    def reveal(self, truth: Any, *, because: str, within: float = 0.0) -> "Verdict":
        """The answer, whether the bet was right, and why; the bet is scored and remembered. Works without a bet.

        truth     the right choice (letter or text), or the number
        because   why, and why a wrong bet was reasonable
        within    how far off a number may be and still win
        """
        if self.choices is not None:
            truth = letter_of(truth, self.choices, "the bet")
        said = f"The answer: {self._words(truth)}."
        if self.placed is None:
            return Verdict(f"{said} {because}")
        right = self.placed == truth if self.choices is not None else abs(self.placed - truth) <= within
        off = "" if right or self.choices is not None else f", off by {abs(self.placed - truth):g}"
        bet = f"You bet {self._words(self.placed)}: {'won' if right else 'lost'}{off}."
        progress.record("bets", self.name, {"bet": self._words(self.placed), "right": bool(right)})
        return Verdict(f"{said} {bet} {because}")

    def __repr__(self) -> str:
        if self.choices is None:
            return f"Your bet: {self.question} (a number from {self.low:g} to {self.high:g})"
        listed = "\n".join(f"  {LETTERS[i]}  {text}" for i, text in enumerate(self.choices))
        return f"Your bet: {self.question}\n{listed}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {"text/plain": repr(self), "application/vnd.jupyter.widget-view+json": view}


class Verdict(str):
    """What `reveal` says: a text that is shown as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": f"<p>{html.escape(self)}</p>", "text/plain": str(self)}
