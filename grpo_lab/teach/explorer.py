"""Dials that redraw a figure: two or three sliders, one picture, one sentence with the numbers.

    def draw(fig, *, G, p):
        ax = fig.axes[0] if fig.axes else fig.subplots()
        line(ax, "dead", x, y, color=BLUE)            # made once, moved from then on
        if not ax.get_xlabel(): tidy(ax, title=..., xlabel=..., ylabel=...)
    def describe(*, G, p):
        return f"With {G} answers a prompt and p = {p}, {share:.0%} of the groups teach nothing."

    Explorer(draw, describe, question="How many groups teach nothing?", G=whole(8, 1, 16, "answers a prompt"), p=...)

The picture is an <img> with alt text inside one HTML widget whose value changes: no Output widget, no clear_output, so
nothing jumps and nbval can compare the sentence. What is stored for a page without a kernel is the same picture, with
its alt text, and the sentence.
Each dial is a slider and, beside it, a number box that follows it. The box carries the dial's name for a screen
reader (ipywidgets can't give one to a slider); both work by keyboard.
"""

import html
import math
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets

from grpo_lab.guard import require
from grpo_lab.teach.pictures import blank, captioned, png, small


class Dial:
    """One number that a reader may turn: where it starts, from where to where, in which steps, its name in words."""

    def __init__(self, start: float, low: float, high: float, step: float, words: str):
        require(low < high, f"a dial must run upwards, got {low} to {high}. Swap them.")
        require(low <= start <= high, f"a dial must start between {low} and {high}, got {start}.")
        require(step > 0, f"a dial's step must be above 0, got {step}.")
        self.start, self.low, self.high, self.step, self.words = start, low, high, step, words

    @property
    def is_whole(self) -> bool:
        return all(isinstance(x, int) for x in (self.start, self.low, self.high, self.step))


def whole(start: int, low: int, high: int, words: str = "", *, step: int = 1) -> Dial:
    """A dial of whole numbers."""
    require(
        all(isinstance(x, int) for x in (start, low, high, step)),
        f"whole() takes whole numbers, got {(start, low, high, step)}. For others take number().",
    )
    return Dial(start, low, high, step, words)


def number(start: float, low: float, high: float, words: str = "", *, step: float) -> Dial:
    """A dial of decimal numbers."""
    return Dial(float(start), float(low), float(high), float(step), words)


def line(ax, name: str, x, y, **style):
    """The line called `name` of these axes with these points: made the first time, moved afterwards."""
    for artist in ax.lines:
        if artist.get_gid() == name:
            artist.set_data(x, y)
            return artist
    (artist,) = ax.plot(x, y, **style)
    artist.set_gid(name)
    return artist


def bars(ax, name: str, x, heights, **style):
    """The bars called `name` of these axes with these heights: made the first time, stretched afterwards."""
    for container in ax.containers:
        if container.get_label() == name:
            require(
                len(container.patches) == len(heights),
                f"bars {name!r} were {len(container.patches)}, now there are {len(heights)} heights. Keep the "
                f"number of bars: draw those that are not there with height 0.",
            )
            for patch, height in zip(container.patches, heights, strict=True):
                patch.set_height(float(height))
            return container
    return ax.bar(x, heights, label=name, **style)


def text(ax, name: str, x: float, y: float, words: str, **style):
    """The text called `name` of these axes: made the first time, moved and rewritten afterwards."""
    for artist in ax.texts:
        if artist.get_gid() == name:
            artist.set_position((x, y))
            artist.set_text(words)
            return artist
    artist = ax.text(x, y, words, **style)
    artist.set_gid(name)
    return artist


class Explorer:
    """A figure with dials. Put it on the last line of a cell.

    draw(fig, **values)    draws the figure, or moves what it drew before: `line`, `bars` and `text` do that
    describe(**values)     the reading, one sentence with the numbers; also the end of the alt text
    question               what the dials answer; stands above them
    height                 of the figure, in inches; it is 7 inches (700 pixels) wide
    dials                  name=whole(...) or name=number(...); the names are the keywords of draw and describe

    Without a front end: `explorer.set(G=4)` turns a dial, `print(explorer)` gives the sentence.
    """

    def __init__(
        self,
        draw: Callable[..., None],
        describe: Callable[..., str],
        *,
        question: str,
        height: float = 3.2,
        **dials: Dial,
    ):
        require(len(dials) > 0, "an Explorer needs at least one dial, G=whole(8, 1, 16) say.")
        for name, dial in dials.items():
            if not isinstance(dial, Dial):
                raise TypeError(
                    f"{name} must be a dial, whole(...) or number(...), got {type(dial).__name__}."
                )
        self.draw, self.describe, self.question, self.dials = draw, describe, question, dict(dials)
        self.figure = blank(height)
        self.sliders = {name: _slider(name, dial) for name, dial in dials.items()}
        self._picture = widgets.HTML()
        self._quiet = False
        rows = []
        for name, slider in self.sliders.items():
            box = _box(name, self.dials[name])
            widgets.link((slider, "value"), (box, "value"))
            slider.observe(self._redraw, names="value")
            rows.append(widgets.HBox([box, slider]))
        question_html = widgets.HTML(f"<b>{html.escape(question)}</b>")
        self.widget = widgets.VBox([question_html, *rows, self._picture])
        self._redraw()

    @property
    def values(self) -> dict[str, Any]:
        """What each dial stands at. A decimal is rounded to its step: 0.3, not 0.30000000000000004."""
        return {name: _rounded(self.dials[name], slider.value) for name, slider in self.sliders.items()}

    @property
    def sentence(self) -> str:
        """The reading at the present values."""
        return self.describe(**self.values)

    @property
    def alt(self) -> str:
        """What a screen reader says instead of the picture."""
        values = ", ".join(f"{name} = {value:g}" for name, value in self.values.items())
        return f"{self.question} At {values}: {self.sentence}"

    def set(self, **values: float) -> "Explorer":
        """Turn dials without a mouse; returns itself, so that it can stand on a cell's last line.

        Raises: KeyError for a dial that isn't there; ValueError outside its range.
        """
        for name, value in values.items():
            if name not in self.dials:
                raise KeyError(f"there is no dial {name!r}; there are {', '.join(self.dials)}")
            dial = self.dials[name]
            require(
                dial.low <= value <= dial.high, f"{name} goes from {dial.low} to {dial.high}, got {value}."
            )
        self._quiet = True
        try:
            for name, value in values.items():
                self.sliders[name].value = value
        finally:
            self._quiet = False
        self._redraw()
        return self

    def _redraw(self, change: Mapping | None = None) -> None:
        if self._quiet:
            return
        self.draw(self.figure, **self.values)
        self._picture.value = captioned(png(self.figure), self.alt, self.sentence)

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        return {
            "text/plain": self.sentence,
            "text/html": f"<div>{captioned(small(png(self.figure)), self.alt, self.sentence)}</div>",
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.widget.model_id,
            },
        }


def _rounded(dial: Dial, value: float) -> float:
    if dial.is_whole:
        return int(value)
    steps = round((value - dial.low) / dial.step)
    digits = max(0, 2 - math.floor(math.log10(dial.step)))
    return min(round(dial.low + steps * dial.step, digits), dial.high)


def _slider(name: str, dial: Dial):
    kind = widgets.IntSlider if dial.is_whole else widgets.FloatSlider
    return kind(
        value=dial.start,
        min=dial.low,
        max=dial.high,
        step=dial.step,
        readout=False,
        layout=widgets.Layout(width="300px"),
    )


def _box(name: str, dial: Dial):
    kind = widgets.BoundedIntText if dial.is_whole else widgets.BoundedFloatText
    words = f"{name}, {dial.words}" if dial.words else name
    return kind(
        value=dial.start,
        min=dial.low,
        max=dial.high,
        step=dial.step,
        description=words,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="280px"),
    )
