"""A few questions at the end of a chapter. Every answer is explained, the wrong ones too.

    Quiz("05", [
        Question("All eight answers are right. What does GRPO learn from them?",
                 ["to do it again", "nothing", "to be shorter"], right="b",
                 why=["Each advantage is reward minus mean, and that is 0.", "...", "..."]),
    ])

Without a front end: `quiz.answer(1, "b")` prints the explanation; as text the quiz lists questions and choices.
"""

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from grpo_lab.guard import require
from grpo_lab.teach import progress
from grpo_lab.teach.choices import LETTERS, column, letter_of, mark


class Question:
    """A question, its choices, which one is right, and one explanation a choice.

    Raises: ValueError unless there are two choices or more and as many explanations.
    """

    def __init__(self, text: str, choices: Sequence[str], *, right: str | int, why: Sequence[str]):
        require(len(choices) >= 2, f"a question needs at least two choices, got {list(choices)}.")
        require(
            not isinstance(why, str) and len(why) == len(choices),
            f"every choice needs its explanation: {len(choices)} choices, got {len(why)} explanations in `why`.",
        )
        self.text, self.choices, self.why = text, list(choices), list(why)
        self.right = letter_of(right, self.choices, "the question")

    def explain(self, number: int) -> str:
        """What is said to the one who chose this."""
        return f"{'Right' if number == self.right else 'Not quite'}: {self.why[number]}"


class Quiz:
    """Questions with buttons, each answered on the spot. Put it on the last line of a cell.

    name        of the chapter, "05"; the answers are remembered as "05-1", "05-2", ...
    """

    def __init__(self, name: str, questions: Sequence[Question]):
        require(len(questions) > 0, "a quiz needs at least one question.")
        self.name, self.questions = name, list(questions)
        self._said, self._columns, rows = [], [], []
        for number, question in enumerate(self.questions, start=1):
            said = widgets.HTML()
            buttons = column(question.choices, lambda choice, number=number: self._set(number, choice))
            self._said.append(said)
            self._columns.append(buttons)
            title = widgets.HTML(f"<b>{number}.</b> {html.escape(question.text)}")
            rows.append(widgets.VBox([title, buttons, said]))
        self.widget = widgets.VBox(rows)

    def _set(self, number: int, choice: int) -> str:
        question = self.questions[number - 1]
        said = question.explain(choice)
        self._said[number - 1].value = html.escape(said)
        progress.record("questions", f"{self.name}-{number}", {"right": choice == question.right})
        return said

    def answer(self, number: int, choice: str | int) -> None:
        """Answer question `number` (from 1) by a letter or the text of a choice; prints the explanation.

        Raises: ValueError if there is no such question or choice.
        """
        require(
            isinstance(number, int) and 1 <= number <= len(self.questions),
            f"the questions are numbered from 1 to {len(self.questions)}, got {number}.",
        )
        question = self.questions[number - 1]
        chosen = letter_of(choice, question.choices, f"question {number}")
        mark(self._columns[number - 1].children, question.choices, chosen)
        print(self._set(number, chosen))

    def __repr__(self) -> str:
        parts = []
        for number, question in enumerate(self.questions, start=1):
            listed = "\n".join(f"   {LETTERS[i]}  {text}" for i, text in enumerate(question.choices))
            parts.append(f"{number}. {question.text}\n{listed}")
        return "\n".join(parts)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        folded = []
        for number, question in enumerate(self.questions, start=1):
            items = "".join(
                f"<li>{html.escape(text)}<br><small>{html.escape(question.explain(i))}</small></li>"
                for i, text in enumerate(question.choices)
            )
            listed = "".join(f"<li>{html.escape(text)}</li>" for text in question.choices)
            folded.append(
                f'<p><b>{number}.</b> {html.escape(question.text)}</p><ol type="a">{listed}</ol>'
                f'<details><summary>Answers to {number}</summary><ol type="a">{items}</ol></details>'
            )
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {
            "text/plain": repr(self),
            "text/html": "".join(folded),
            "application/vnd.jupyter.widget-view+json": view,
        }
