"""The loop of reinforcement learning as this course builds it, with the boxes of a chapter lit.

Names stand on the boxes; on each arrow stands what travels along it, and the file that makes it.
"""

from matplotlib.patches import FancyBboxPatch

from grpo_lab.guard import require
from grpo_lab.teach.pictures import BLUE, GREY, Picture, blank

# name -> (column, row, what it does)
BOXES = {
    "prompts": (0, 1, "draw tasks"),
    "rollout": (1, 1, "write answers"),
    "reward": (2, 1, "judge them"),
    "score": (3, 1, "how likely?"),
    "advantage": (3, 0, "how good?"),
    "loss": (2, 0, "which way?"),
    "optimizer": (1, 0, "change weights"),
    "curves": (0, 0, "watch"),
}
# from, to, what travels, the file that makes it
ARROWS = (
    ("prompts", "rollout", "texts", "tasks.py"),
    ("rollout", "reward", "tokens", "rollout.py"),
    ("reward", "score", "rewards", "tasks.py"),
    ("score", "advantage", "log-probs, values", "policy.py"),
    ("advantage", "loss", "advantages", "group_\nadvantage.py"),
    ("loss", "optimizer", "one number", "clipped_\nsurrogate.py"),
    ("optimizer", "rollout", "new weights", "train.py"),
    ("optimizer", "curves", "metrics", "metrics.py"),
)
WIDE, HIGH = 1.4, 0.66  # of a box
APART = 2.78, 1.75  # columns and rows
LIT, DARK = "#CFE5F3", "#FFFFFF"


def _place(box: str) -> tuple[float, float]:
    column, row, _ = BOXES[box]
    return APART[0] * column, APART[1] * row


def loop(*lit: str) -> Picture:
    """The loop's figure, with these boxes lit. None lit: the figure of the whole.

    Raises: ValueError for a box that isn't there.
    """
    for name in lit:
        known = isinstance(name, str) and name in BOXES
        require(
            known, f"the loop has no box {name!r}. Name some of them, as in loop('loss'): {', '.join(BOXES)}."
        )
    figure = blank(2.7)
    figure.subplots_adjust(left=0.0, right=1.0, bottom=0.0, top=1.0)
    ax = figure.subplots()
    ax.set_axis_off()
    ax.set_xlim(-0.8, 3 * APART[0] + 0.95)
    ax.set_ylim(-0.5, APART[1] + 0.5)
    for name, (_, _, does) in BOXES.items():
        x, y = _place(name)
        on = name in lit
        ax.add_patch(
            FancyBboxPatch(
                (x - WIDE / 2, y - HIGH / 2),
                WIDE,
                HIGH,
                boxstyle="round,pad=0.02,rounding_size=0.12",
                facecolor=LIT if on else DARK,
                edgecolor=BLUE if on else GREY,
                linewidth=2.5 if on else 1,
            )
        )
        weight = "bold" if on or not lit else "normal"
        ax.text(x, y + 0.13, name, ha="center", va="center", fontsize=10.5, fontweight=weight)
        ax.text(x, y - 0.15, does, ha="center", va="center", fontsize=8, color=GREY)
    for start, end, what, file in ARROWS:
        _arrow(ax, start, end, what, file)
    names = list(BOXES)
    here = ", ".join(f"{names.index(name) + 1} ({name})" for name in dict.fromkeys(lit))
    about = f"Lit: box {here}." if lit else "Nothing is lit: this is the whole."
    title = "The loop, in 8 boxes"
    chain = " → ".join(name for name in BOXES if name != "curves")
    return Picture(figure, title=title, reading=f"The loop has 8 boxes: {chain} → rollout again. {about}")


def _arrow(ax, start: str, end: str, what: str, file: str) -> None:
    (x0, y0), (x1, y1) = _place(start), _place(end)
    along, up = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    tail = (x0 + along * (WIDE / 2 + 0.06), y0 + up * (HIGH / 2 + 0.06))
    head = (x1 - along * (WIDE / 2 + 0.06), y1 - up * (HIGH / 2 + 0.06))
    ax.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 1.2})
    x, y = (tail[0] + head[0]) / 2, (tail[1] + head[1]) / 2
    mono = {"fontsize": 8, "family": "monospace", "color": BLUE, "linespacing": 0.95}
    if along:
        ax.text(x, y + 0.08, what, ha="center", va="bottom", fontsize=8.5)
        ax.text(x, y - 0.09, file, ha="center", va="top", **mono)
    else:
        ax.text(x - 0.08, y, what, ha="right", va="center", fontsize=8.5)
        ax.text(x + 0.08, y, file, ha="left", va="center", **mono)
