"""Watch a run while it trains: a progress bar, one moving picture, and a stop button that loses nothing.

    run = start(policy, task, seed=0, lr=3e-4)          # in an earlier cell, so that it outlives an interrupt
    watched = live(train(policy, task, grpo(), run=run, steps=80), steps=80, before=run.history, title="It climbs")
    watched                                              # the last line of the cell: the final picture

The picture is an <img> with alt text inside one HTML widget whose value changes: no Output widget, no clear_output.
When the run ends the widgets go, and the `Watched` that comes back shows the final picture, so that none is seen
twice. Jupyter's stop button ends the watching, not the run: the rows so far are kept, and the same cell goes on where
it was. Outside a notebook nothing is drawn on the way.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import ipywidgets as widgets
from IPython import get_ipython
from IPython.display import display

from grpo_lab.guard import require, require_count
from grpo_lab.teach.explorer import line, text
from grpo_lab.teach.pictures import BLUE, COLOURS, GREY, LINES, Picture, blank, captioned, png, tidy
from grpo_lab.teach.plots import apart

EVERY = 0.5  # seconds, at least, from one redraw to the next


class Watched(Picture):
    """What was seen of a run: its final picture, and

    rows       the dicts that the run gave, those of before included
    stopped    True where an interrupt ended the watching
    """

    def __init__(self, figure, *, title: str, reading: str, rows: list[dict[str, Any]], stopped: bool):
        super().__init__(figure, title=title, reading=reading)
        self.rows, self.stopped = rows, stopped

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        """As it was drawn on the way, and half the size of a still picture: nothing jumps at the end."""
        return {
            "text/html": f"<div>{captioned(png(self.figure), self.alt, self.reading)}</div>",
            "text/plain": self.reading,
        }


def live(
    rows: Iterable[dict[str, Any]],
    *,
    metric: str = "eval/accuracy",
    also: Sequence[str] = ("reward/mean",),
    steps: int,
    title: str,
    before: Iterable[dict[str, Any]] = (),
    ylim: tuple[float, float] = (0.0, 1.0),
) -> Watched:
    """Take the rows as they come, drawing `metric` thick and `also` thin; returns the final picture and the rows.

    rows     the generator of `train`; each row is a dict with "step"
    steps    where the run ends: the right end of the x axis and of the bar
    title    of the picture
    before   rows of the same run from before an interrupt, `run.history`

    An interrupt is caught, and the reading says how far it came. Any other error passes through, and the picture of
    what had come until then stays.
    """
    require_count("steps", steps)
    _require_rows("rows", rows)
    _require_rows("before", before)
    require(
        not isinstance(also, str),
        f"also must be a list of names, got the text {also!r}. Try also=[{also!r}].",
    )
    require(len(also) <= 4, f"one picture shows at most 4 other metrics, got {len(also)}. Leave some out.")
    require(
        isinstance(ylim, Sequence) and len(ylim) == 2 and ylim[0] < ylim[1],
        f"ylim must be two numbers, the lower first, got {ylim!r}. Try (0.0, 1.0).",
    )
    drawing = _Drawing([metric, *also], steps, title, ylim)
    seen, stopped, screen = list(before), False, _Screen(steps)
    try:
        for row in rows:
            _require_row(row)
            # After an interrupt `train` may hand out its last row again, now with the evaluation that was missing.
            if not (seen and seen[-1] is row):
                seen.append(row)
            screen.show(drawing, seen)
    except KeyboardInterrupt:
        stopped = True
    drawing.draw(seen)
    reading = drawing.reading(seen)
    if stopped:
        reading = (
            f"Stopped after {_last_step(seen)} of {steps} updates: nothing is lost, and running this cell again "
            f"goes on from there. {reading}"
        )
    screen.close()
    return Watched(drawing.figure, title=title, reading=reading, rows=seen, stopped=stopped)


def _require_rows(name: str, rows: Any) -> None:
    """Raise TypeError unless these can be rows: something to go through, and not one row by itself."""
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
        wanted = "train(policy, task, recipe, run=run, steps=steps)" if name == "rows" else "run.history"
        raise TypeError(
            f"{name} must be the rows of a run, one dict an update, got {type(rows).__name__}. Try {wanted}."
        )


def _require_row(row: Any) -> None:
    """Raise TypeError unless this is a row as `train` gives it: a dict that says at which step it was measured."""
    if not (isinstance(row, Mapping) and isinstance(row.get("step"), Real)):
        raise TypeError(
            f'each row must be a dict with the number "step", got {row!r}. Hand over what train() gives, unchanged.'
        )


def _last_step(rows: Sequence[Mapping[str, Any]]) -> int:
    return int(rows[-1]["step"]) if rows else 0


def _points(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[list[float], list[float]]:
    """The steps at which a metric was measured, and its values there."""
    found = [(row["step"], row[metric]) for row in rows if not math.isnan(row.get(metric, math.nan))]
    return [float(step) for step, _ in found], [float(value) for _, value in found]


class _Drawing:
    """The figure: its lines and names are made once and moved from then on."""

    def __init__(self, metrics: Sequence[str], steps: int, title: str, ylim: tuple[float, float]):
        self.metrics, self.title, self.ylim = list(metrics), title, ylim
        self.figure = blank(3.0)
        self.figure.subplots_adjust(right=0.76)
        self.ax = self.figure.subplots()
        self.ax.set_xlim(0, steps)
        self.ax.set_ylim(*ylim)
        tidy(self.ax, title=title, xlabel="policy updates")
        self.looks = [{"color": BLUE, "linestyle": "-", "linewidth": 2.2, "marker": "o"}]
        thin = zip((GREY, *COLOURS[2:]), LINES, strict=True)
        self.looks += [{"color": colour, "linestyle": style, "linewidth": 1.0} for colour, style in thin]

    def draw(self, rows: Sequence[Mapping[str, Any]]) -> None:
        points = [(metric, *_points(rows, metric)) for metric in self.metrics]
        shown = [(look, *point) for look, point in zip(self.looks, points, strict=False) if point[1]]
        low, high = self.ylim
        ends = [min(max(values[-1], low), high) for *_, values in shown]
        heights = apart(ends, 0.09 * (high - low))
        for (look, metric, x, y), height in zip(shown, heights, strict=True):
            line(self.ax, metric, x, y, markersize=4, clip_on=False, **look)
            words = {"color": look["color"], "fontsize": 10, "va": "center", "transform": self.ax.transAxes}
            text(self.ax, metric, 1.02, (height - low) / (high - low), f"{metric} {y[-1]:z.2f}", **words)

    def reading(self, rows: Sequence[Mapping[str, Any]]) -> str:
        words = []
        for metric in self.metrics:
            _, y = _points(rows, metric)
            if len(y) == 1:
                words.append(f"{metric} {y[0]:z.2f}")
            elif y:
                words.append(f"{metric} {y[0]:z.2f} → {y[-1]:z.2f}")
        said = "; ".join(words) or "nothing measured yet"
        return f"After {_last_step(rows)} updates, first → last: {said}."


class _Screen:
    """Bar and picture on the page while the run goes on; nothing outside a notebook."""

    def __init__(self, steps: int):
        self.steps, self.begun, self.drawn = steps, time.monotonic(), -math.inf
        self.there = get_ipython() is not None
        if not self.there:
            return
        wide = {"description_width": "initial"}
        self.bar = widgets.IntProgress(max=steps, description="policy updates", style=wide)
        self.said, self.picture = widgets.HTML(), widgets.HTML()
        self.box = widgets.VBox([widgets.HBox([self.bar, self.said]), self.picture])
        # The view alone, without a text: where widgets can't be shown, and in a stored notebook, there is nothing.
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        display({"application/vnd.jupyter.widget-view+json": view}, raw=True)

    def show(self, drawing: _Drawing, rows: Sequence[Mapping[str, Any]]) -> None:
        if not self.there or time.monotonic() - self.drawn < EVERY:
            return
        done = _last_step(rows)
        self.bar.value = done
        seconds = time.monotonic() - self.begun
        self.said.value = f"{done} of {self.steps}, {seconds:.0f} s. ■ stops it, nothing is lost."
        drawing.draw(rows)
        sentence = drawing.reading(rows)
        alt = f"{drawing.title.rstrip('.')}. {sentence}"
        self.picture.value = captioned(png(drawing.figure), alt, sentence)
        self.drawn = time.monotonic()  # after the work: a slow machine draws less often

    def close(self) -> None:
        if self.there:
            self.picture.value = ""
            self.box.layout.display = "none"
