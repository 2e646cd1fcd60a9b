"""From a matplotlib figure to a picture in a page: always with alt text, always in the course's colours.

A PNG output can't carry alt text in JupyterLab, an <img alt="..."> in HTML can. So a picture is shown as HTML.
"""

import base64
import html
import io
import zlib
from collections.abc import Iterable

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

WIDTH = 700  # CSS pixels: what a notebook's column can show
DPI = 100

# Okabe and Ito's colours that reach a contrast of 3 on white. Never told apart by colour alone: see ARMS.
BLACK, BLUE, ORANGE, GREEN, PINK = COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7")
LINES = ("-", "--", "-.", ":")
GREY = "#595959"  # text and guide lines beside the data; contrast 7

# One look for each arm, in the whole course. The longest name that a label starts with counts.
ARMS = {
    "grpo": (BLUE, "-"),
    "fresh": (BLUE, "--"),
    "grpo_recomputed": (ORANGE, "-"),
    "stale": (ORANGE, "--"),
    "clip": (PINK, "-"),
    "no_clip": (ORANGE, ":"),
    "clip_stale": (PINK, "--"),
    "ppo": (GREEN, "-"),
    "dis": (GREEN, "--"),
    "sao": (BLACK, "-"),
    "single": (BLACK, "--"),
    "reinforce": (BLACK, ":"),
    "rloo": (BLUE, "-."),
    "dr_grpo": (BLUE, ":"),
    "dapo": (ORANGE, "-."),
    "gspo": (PINK, "-."),
    "cispo": (PINK, ":"),
    "tis": (GREEN, "-."),
    "icepop": (GREEN, ":"),
    "mine": (BLACK, "-."),
}


def look(arm: str) -> tuple[str, str]:
    """(colour, line style) of an arm, the same wherever it is drawn; an unknown name gets one from its letters."""
    known = [name for name in ARMS if arm == name or arm.startswith((name + "-", name + "_", name + " "))]
    if known:
        return ARMS[max(known, key=len)]
    number = zlib.crc32(arm.encode())
    return COLOURS[number % 5], LINES[number // 5 % 4]


def looks(arms: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A look for each arm of one figure. Where two would look the same, the later one takes the next free look."""
    chosen: dict[str, tuple[str, str]] = {}
    every = [(colour, line) for line in LINES for colour in COLOURS]
    for arm in arms:
        wanted = look(arm)
        if wanted in chosen.values():
            wanted = next((one for one in every if one not in chosen.values()), wanted)
        chosen[arm] = wanted
    return chosen


def contrast(colour: str, background: str = "#FFFFFF") -> float:
    """The contrast of two colours as the web's accessibility rules (WCAG 2) count it, from 1 to 21."""

    def light(code: str) -> float:
        parts = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(colour), light(background)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def blank(height: float = 3.2) -> Figure:
    """An empty figure, 7 inches (700 pixels) wide, outside pyplot: nothing is shown twice, nothing stays open."""
    figure = Figure(figsize=(WIDTH / DPI, height), dpi=DPI)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.1, right=0.97, bottom=0.55 / height, top=1 - 0.45 / height)
    return figure


def tidy(ax, *, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Names and units on the axes, the finding as the title, no frame above and right."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", wrap=True)
    ax.set_xlabel(xlabel, fontsize=10)
    ax.set_ylabel(ylabel, fontsize=10)
    ax.tick_params(labelsize=10)


def png(figure: Figure, *, dpi: int = DPI) -> bytes:
    """The figure as PNG; the same figure gives the same bytes (no date, no version inside)."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def small(data: bytes) -> bytes:
    """The same PNG with a palette of 64 colours: about a third of the bytes, and no difference that an eye can see.

    For what a notebook stores. A redraw doesn't do it: it takes as long as a drawing.
    """
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.quantize(64, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def img(data: bytes, alt: str) -> str:
    """An <img> element with the picture inside it and its alt text."""
    code = base64.b64encode(data).decode("ascii")
    return (
        f'<img src="data:image/png;base64,{code}" alt="{html.escape(alt)}" width="{WIDTH}" '
        'style="max-width:100%;height:auto;background:#fff">'
    )


def captioned(data: bytes, alt: str, sentence: str) -> str:
    """A picture with alt text, and under it the sentence that reads it, as HTML."""
    return f"{img(data, alt)}<p>{html.escape(sentence)}</p>"


class Picture:
    """A finished figure and its one-line reading. The last line of a cell shows both.

    figure     the matplotlib figure
    reading    one sentence with the numbers, printed under the picture
    alt        what a screen reader says: the title and the reading
    """

    def __init__(self, figure: Figure, *, title: str, reading: str):
        self.figure, self.reading = figure, reading
        self.alt = f"{title.rstrip('.')}. {reading}" if title else reading

    def __repr__(self) -> str:
        return self.reading

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        picture = small(png(self.figure, dpi=2 * DPI))
        return {
            "text/html": f"<div>{captioned(picture, self.alt, self.reading)}</div>",
            "text/plain": self.reading,
        }

    def save(self, path) -> None:
        """Write the figure as a PNG file."""
        with open(path, "wb") as file:
            file.write(png(self.figure, dpi=2 * DPI))
