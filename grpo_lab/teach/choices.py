"""A column of buttons, one a choice. Tab reaches each, Space and Enter press it.

Not radio buttons: their arrow keys are taken by the notebook itself, so that a keyboard reaches the first one only.
"""

from collections.abc import Callable, Sequence

import ipywidgets as widgets

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letter_of(choice: str | int, choices: Sequence[str], what: str) -> int:
    """Which choice is meant: its letter ("b"), its whole text, or its number from 0.

    Raises: ValueError if there is no such choice.
    """
    if isinstance(choice, int) and not isinstance(choice, bool) and 0 <= choice < len(choices):
        return choice
    if isinstance(choice, str):
        if choice in choices:
            return list(choices).index(choice)
        letter = choice.strip().lower()
        if len(letter) == 1 and letter in LETTERS[: len(choices)]:
            return LETTERS.index(letter)
    letters = ", ".join(f"{LETTERS[i]} ({text})" for i, text in enumerate(choices))
    raise ValueError(f"{what} has the choices {letters}, got {choice!r}. Give one of the letters.")


def column(choices: Sequence[str], chosen: Callable[[int], None]) -> widgets.VBox:
    """The buttons; a press marks its button in words and calls chosen(number)."""
    buttons = []

    def press(number: int) -> None:
        mark(buttons, choices, number)
        chosen(number)

    for number, text in enumerate(choices):
        button = widgets.Button(
            description=f"{LETTERS[number]}  {text}", layout=widgets.Layout(width="auto", max_width="680px")
        )
        button.on_click(lambda _, number=number: press(number))
        buttons.append(button)
    return widgets.VBox(buttons, layout=widgets.Layout(align_items="flex-start"))


def mark(buttons: Sequence[widgets.Button], choices: Sequence[str], number: int) -> None:
    """Write "your choice" on one button and take it off the others."""
    for i, (button, text) in enumerate(zip(buttons, choices, strict=True)):
        button.description = f"{LETTERS[i]}  {text}" + ("  (your choice)" if i == number else "")
