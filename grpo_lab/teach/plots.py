"""The plots of the course. Each returns a Picture: figure, alt text, and a one-line reading with the numbers.

Colours and line styles belong to arms, not to figures: `pictures.ARMS`.
"""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grpo_lab.guard import require
from grpo_lab.teach.pictures import BLUE, GREY, ORANGE, Picture, blank, looks, tidy

T_TABLE = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def t_quantile(degrees: int) -> float:
    """The 97.5 % point of Student's t: half the width of a 95 % interval, in standard errors."""
    require(degrees >= 1, f"an interval needs at least 2 seeds, got {degrees + 1}. Run more seeds.")
    if degrees <= len(T_TABLE):
        return T_TABLE[degrees - 1]
    z = 1.959964
    # The usual expansion around the normal quantile; beyond 10 degrees it is right to three digits.
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def band(runs_SN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds, and half the width of its 95 % t-interval, for each column; one seed has no width (nan)."""
    mean_N = runs_SN.mean(axis=0)
    seeds = runs_SN.shape[0]
    if seeds < 2:
        return mean_N, np.full_like(mean_N, np.nan)
    error_N = runs_SN.std(axis=0, ddof=1) / math.sqrt(seeds)
    return mean_N, t_quantile(seeds - 1) * error_N


def _numbers(values: Any) -> np.ndarray:
    """A float array of a tensor, an array or lists."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=float)


def _runs(arm: str, runs: Any, metric: str, steps: Sequence[float] | None) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values[seed, step]) of one arm, from recorded curves or from an array."""
    if isinstance(runs, Mapping):
        runs = [runs]
    if not (isinstance(runs, Sequence) and len(runs) > 0 and isinstance(runs[0], Mapping)):
        values = np.atleast_2d(_numbers(runs))
        require(
            values.ndim == 2 and values.size > 0,
            f"{arm!r} must hold one row a seed, got an array of shape {values.shape}. Use x[None, :] for one seed.",
        )
        columns = np.arange(values.shape[1]) if steps is None else _numbers(steps)
        require(
            len(columns) == values.shape[1],
            f"{arm!r} has {values.shape[1]} values a seed but there are {len(columns)} steps. Give one step a value.",
        )
        return columns, values
    tables = []
    for run in runs:
        require(
            metric in run,
            f"a curve of {arm!r} has no column {metric!r}; it has {', '.join(run)}. Take one of these.",
        )
        pairs = zip(run["step"], run[metric], strict=True)
        tables.append({step: value for step, value in pairs if not math.isnan(value)})
    common = sorted(set.intersection(*(set(table) for table in tables)))
    require(
        len(common) > 0,
        f"the seeds of {arm!r} share no step at which {metric!r} is recorded. Record them with the same eval_every.",
    )
    return np.array(common), np.array([[table[step] for step in common] for table in tables])


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights, pushed apart until no two are closer than gap; the order stays."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = [float(heights[i]) for i in order]
    for _ in range(200):
        moved = False
        for i in range(1, len(placed)):
            short = gap - (placed[i] - placed[i - 1])
            if short > 1e-9:
                placed[i - 1] -= short / 2
                placed[i] += short / 2
                moved = True
        if not moved:
            break
    result = [0.0] * len(heights)
    for place, i in zip(placed, order, strict=True):
        result[i] = place
    return result


def curves(
    arms: Mapping[str, Any],
    metric: str = "eval/accuracy",
    *,
    title: str,
    ylabel: str | None = None,
    xlabel: str = "policy updates",
    steps: Sequence[float] | None = None,
    ylim: tuple[float, float] | None = None,
) -> Picture:
    """One line an arm, its mean over seeds; the seeds thin behind it, and the 95 % t-interval as a band.

    arms     name -> what `read_curve` gives for each seed (a list of dicts), or an array with one row a seed
    metric   the column of the recorded curves; for arrays only a name
    title    the finding, not the topic
    steps    the x values of arrays; 0, 1, 2, ... if left out

    Raises: ValueError where an arm has no such column, or steps and values don't fit.
    """
    require(len(arms) > 0, "there is no arm to draw. Give {'grpo': [read_curve(path), ...]}.")
    figure = blank(3.6)
    figure.subplots_adjust(right=0.76)
    ax = figure.subplots()
    chosen = looks(arms)
    ends, words, banded, most = [], [], False, 1
    for arm, runs in arms.items():
        x_N, runs_SN = _runs(arm, runs, metric, steps)
        mean_N, half_N = band(runs_SN)
        colour, line = chosen[arm]
        if len(runs_SN) > 1:
            ax.plot(x_N, runs_SN.T, color=colour, linewidth=0.7, alpha=0.35)
            ax.fill_between(x_N, mean_N - half_N, mean_N + half_N, color=colour, alpha=0.15, linewidth=0)
            banded, most = True, max(most, len(runs_SN))
        ax.plot(x_N, mean_N, color=colour, linestyle=line, linewidth=2, label=arm)
        ends.append((arm, colour, x_N[-1], mean_N[-1]))
        spread = f" ± {half_N[-1]:z.2f}" if len(runs_SN) > 1 else ""
        words.append(f"{arm} {mean_N[0]:z.2f} → {mean_N[-1]:z.2f}{spread}")
    if ylim is None:  # a band of two seeds can be wider than any value: the lines decide, not the bands
        lines = np.concatenate([line.get_ydata() for line in ax.lines])
        low, high = float(np.nanmin(lines)), float(np.nanmax(lines))
        pad = 0.06 * (high - low) or 0.5
        ylim = (low - pad, high + pad)
    ax.set_ylim(*ylim)
    last = max(end[2] for end in ends)
    heights = apart([end[3] for end in ends], 0.07 * (ylim[1] - ylim[0]))
    for (arm, colour, _, value), height in zip(ends, heights, strict=True):
        ax.annotate(
            arm,
            (last, value),
            xytext=(1.03, (height - ylim[0]) / (ylim[1] - ylim[0])),
            textcoords="axes fraction",
            color=colour,
            fontsize=10,
            va="center",
            annotation_clip=False,
        )
    if banded:
        note = f"thin: {most} seeds\nband: 95 % interval"
        figure.text(0.785, 0.02, note, ha="left", va="bottom", fontsize=9, color=GREY)
    tidy(ax, title=title, xlabel=xlabel, ylabel=ylabel or metric)
    what = "first → last"
    if banded:
        what += f", mean of {most} seeds ± 95 % interval"
    return Picture(figure, title=title, reading=f"{ylabel or metric}, {what}: {'; '.join(words)}.")


def ratio_histogram(
    ratio_BT: Any,
    mask_BT: Any = None,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    title: str,
) -> Picture:
    """How far the ratios have spread, with the clip's band marked and the shares outside it in the reading.

    The x axis is logarithmic (0.5 and 2 are equally far from 1), and so is y: the tail is what matters.

    Raises: ValueError where no token is left, or a ratio is negative or not finite.
    """
    ratios = _numbers(ratio_BT)
    ratios = ratios[np.asarray(mask_BT, dtype=bool)] if mask_BT is not None else ratios.ravel()
    require(ratios.size > 0, "no own token is left to draw. Is the mask all False?")
    require(
        bool(np.isfinite(ratios).all() and (ratios >= 0).all()),
        "ratios must be finite and not negative. Did exp overflow, or is it still a log ratio?",
    )
    low, high = 1 - eps_low, 1 + eps_high
    reach = max(1.5, float(ratios.max()) * 1.05, 1 / max(float(ratios.min()), 0.02) * 1.05)
    edges = np.geomspace(1 / reach, reach, 62)  # an even number of edges: one bin has 1 in its middle
    figure = blank()
    ax = figure.subplots()
    ax.axvspan(max(low, 1 / reach), min(high, reach), color=BLUE, alpha=0.10, linewidth=0)
    ax.hist(np.clip(ratios, 1 / reach, reach), edges, color=BLUE)
    for bound, side in ((low, "right"), (high, "left")):
        if 1 / reach < bound < reach:
            ax.axvline(bound, color=GREY, linestyle="--", linewidth=1)
            text = f" {bound:g} "
            ax.text(bound, 0.97, text, transform=ax.get_xaxis_transform(), ha=side, va="top", fontsize=10)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1 / reach, reach)
    ticks = (
        (0.5, 0.7, 1, 1.4, 2) if reach < 4 else (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
    )
    ticks = [t for t in ticks if 1 / reach <= t <= reach]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter("{x:g}")
    tidy(ax, title=title, xlabel="ratio (1 = as likely as before)", ylabel="own tokens")
    below, above = float((ratios < low).mean()), float((ratios > high).mean())
    reading = (
        f"{ratios.size} own tokens: {below:.1%} below {low:g}, {above:.1%} above {high:g}, "
        f"median {np.median(ratios):.3f}, largest {ratios.max():.2f}."
    )
    return Picture(figure, title=title, reading=reading)


def advantage_histogram(advantages: Any, mask_BT: Any = None, *, title: str, bins: int = 41) -> Picture:
    """Which advantages a batch has: below 0 (lowered), above 0 (raised), and exactly 0 (teaches nothing).

    advantages   one a row or one a token; with mask_BT only the own tokens count

    Raises: ValueError where nothing is left to draw or a value is not finite.
    """
    values = _numbers(advantages)
    values = values[np.asarray(mask_BT, dtype=bool)] if mask_BT is not None else values.ravel()
    require(values.size > 0, "no advantage is left to draw. Is the mask all False?")
    require(bool(np.isfinite(values).all()), "advantages must be finite. Which reward was nan?")
    reach = float(np.abs(values).max()) * 1.05 or 1.0
    edges = np.linspace(-reach, reach, bins + 1 - bins % 2 + 1)  # odd number of bins: 0 has one of its own
    figure = blank()
    ax = figure.subplots()
    parts = (
        (values < 0, ORANGE, "//", "lowered"),
        (values == 0, GREY, "", "0"),
        (values > 0, BLUE, "", "raised"),
    )
    for chosen, colour, hatch, _ in parts:
        ax.hist(values[chosen], edges, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3)
    for place, (chosen, colour, _, name) in zip((0.02, 0.5, 0.98), parts, strict=True):
        ha = {0.02: "left", 0.5: "center", 0.98: "right"}[place]
        text = f"{name}: {chosen.mean():.0%}"
        ax.text(place, 1.02, text, transform=ax.transAxes, ha=ha, va="bottom", color=colour, fontsize=10)
    tidy(ax, xlabel="advantage", ylabel="count")
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=20)
    figure.subplots_adjust(top=0.8)
    reading = (
        f"{values.size} advantages from {values.min():.2f} to {values.max():.2f}, mean {values.mean():z.3f}: "
        f"{(values > 0).mean():.0%} above 0, {(values < 0).mean():.0%} below, {(values == 0).mean():.0%} exactly 0."
    )
    return Picture(figure, title=title, reading=reading)


class TokenStrip:
    """Tokens in a row, each on the colour of its value and above its number: text, so it can be read aloud."""

    def __init__(
        self, rows: Sequence[Sequence[str]], values: Sequence[Sequence[float]], *, title: str, digits: int
    ):
        self.rows, self.values, self.title, self.digits = rows, values, title, digits
        shown = [v for row in values for v in row if math.isfinite(v)]
        self.reach = max((abs(v) for v in shown), default=0.0) or 1.0
        least, most = (min(shown), max(shown)) if shown else (math.nan, math.nan)
        self.reading = (
            f"{title.rstrip('.')}: {sum(len(row) for row in rows)} tokens, "
            f"lowest {least:z.{digits}f}, highest {most:z.{digits}f}."
        )

    def _number(self, value: float) -> str:
        return f"{value:z.{self.digits}f}" if math.isfinite(value) else "–"

    def _colour(self, value: float) -> str:
        """White at 0, towards blue above and orange below, never so dark that black text can't be read."""
        share = min(abs(value) / self.reach, 1.0) if math.isfinite(value) else 0.0
        end = (86, 160, 211) if value > 0 else (240, 145, 85)
        red, green, blue = (round(255 + share * (part - 255)) for part in end)
        return f"#{red:02X}{green:02X}{blue:02X}"

    def __repr__(self) -> str:
        lines = []
        for row, values in zip(self.rows, self.values, strict=True):
            lines.append("  ".join(f"{t}:{self._number(v)}" for t, v in zip(row, values, strict=True)))
        return "\n".join([self.reading, *lines])

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        box = "display:inline-block;margin:1px;padding:2px 5px;border:1px solid #767676;text-align:center;color:#000"
        out = []
        for row, values in zip(self.rows, self.values, strict=True):
            cells = [
                f'<span style="{box};background-color:{self._colour(v)}">'
                f'<code style="color:#000;background-color:transparent">{html.escape(t) or "&nbsp;"}</code><br>'
                f"<small>{self._number(v)}</small></span>"
                for t, v in zip(row, values, strict=True)
            ]
            out.append(f'<div style="max-width:700px">{"".join(cells)}</div>')
        return {"text/html": f"<p>{html.escape(self.reading)}</p>{''.join(out)}", "text/plain": repr(self)}


def token_strip(
    tokens: Sequence, values: Any, mask_BT: Any = None, *, title: str, digits: int = 2
) -> TokenStrip:
    """Colour each token by a value (an advantage, a ratio minus 1, a log-probability) and write the number below.

    tokens    one list of texts, or one list a row
    values    as many numbers; nan and tokens off the mask are shown without one

    Raises: ValueError where tokens and values don't fit.
    """
    one_row = len(tokens) > 0 and isinstance(tokens[0], str)
    rows = [list(tokens)] if one_row else [list(row) for row in tokens]
    numbers = np.atleast_2d(_numbers(values))
    if mask_BT is not None:
        numbers = np.where(np.atleast_2d(np.asarray(mask_BT, dtype=bool)), numbers, np.nan)
    fits = len(rows) == len(numbers) and all(len(row) <= numbers.shape[1] for row in rows)
    require(
        fits and len(rows) > 0,
        f"{len(rows)} rows of tokens and values of shape {numbers.shape} don't fit. Give one value a token.",
    )
    cut = [list(map(float, numbers[i, : len(row)])) for i, row in enumerate(rows)]
    return TokenStrip(rows, cut, title=title, digits=digits)


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    reading: str,
    log_x: bool = False,
    ylim: tuple[float, float] | None = None,
) -> Picture:
    """One line a name over the same x, its name at its end; for what is no training curve.

    series    name -> values, or (values, errors): the errors are drawn as bars of one standard error to each side
    log_x     x is drawn on a logarithmic axis, with a tick at each x
    reading   one sentence with the numbers, printed under the picture

    Raises: ValueError where a line has not as many values as there are x.
    """
    named = isinstance(series, Mapping) and all(isinstance(name, str) for name in series)
    require(named and len(series) > 0, "there is no line to draw. Give series={'name': values}.")
    x_N = _numbers(x)
    require(x_N.ndim == 1 and x_N.size > 0, f"x must be one row of numbers, got shape {x_N.shape}.")
    require(not log_x or bool((x_N > 0).all()), "log_x needs every x above 0. Leave out log_x.")
    figure = blank(3.4)
    figure.subplots_adjust(right=0.74)
    ax = figure.subplots()
    chosen, ends = looks(series), []
    for name, values in series.items():
        pair = isinstance(values, tuple)
        require(
            not pair or len(values) == 2, f"{name!r}: a tuple means (values, errors). Use a list for values."
        )
        y_N, error_N = values if pair else (values, None)
        y_N, error_N = _numbers(y_N), None if error_N is None else _numbers(error_N)
        require(
            y_N.shape == x_N.shape and (error_N is None or error_N.shape == x_N.shape),
            f"{name!r} has values of shape {y_N.shape} for x of shape {x_N.shape}. Give one value for each x.",
        )
        colour, style = chosen[name]
        ax.plot(x_N, y_N, color=colour, linestyle=style, linewidth=2)
        if error_N is not None:
            ax.errorbar(x_N, y_N, error_N, fmt="none", ecolor=colour, capsize=3)
        ends.append((name, colour, y_N[-1]))
    if log_x:
        ax.set_xscale("log")
        ax.set_xticks(x_N, [f"{value:g}" for value in x_N])
        ax.minorticks_off()
    if ylim is not None:
        ax.set_ylim(*ylim)
    low, high = ax.get_ylim()
    # A line that leaves the axes still has its name beside them.
    heights = apart([min(max(end[2], low), high) for end in ends], 0.08 * (high - low))
    for (name, colour, _), height in zip(ends, heights, strict=True):
        place = (1.02, (height - low) / (high - low))
        ax.text(*place, name, transform=ax.transAxes, color=colour, fontsize=10, va="center")
    tidy(ax, title=title, xlabel=xlabel, ylabel=ylabel)
    return Picture(figure, title=title, reading=reading)
