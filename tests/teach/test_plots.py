"""Plots: the course's colours, one look an arm, alt text, a reading with numbers, readable at 700 pixels."""

import io
import math

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from grpo_lab.engine.experiment import curve_csv, read_curve
from grpo_lab.teach import pictures, plots

STEPS = [0, 20, 40]


def recorded(last, *, steps=STEPS):
    """What read_curve gives: a row every ten steps, accuracy only where it was measured."""
    every = list(range(0, max(steps) + 1, 10))
    values = dict(zip(steps, np.linspace(0.4, last, len(steps)), strict=True))
    return {"step": [float(s) for s in every], "eval/accuracy": [values.get(s, math.nan) for s in every]}


def test_every_colour_can_be_seen_on_white():
    assert all(pictures.contrast(colour) >= 3 for colour in pictures.COLOURS)
    assert pictures.contrast(pictures.GREY) >= 4.5
    assert pictures.contrast("#000000") == pytest.approx(21)
    assert pictures.contrast("#F0E442") < 1.5  # and the measure can tell


def test_arms_of_the_table_all_look_different():
    assert len(set(pictures.ARMS.values())) == len(pictures.ARMS)
    assert {colour for colour, _ in pictures.ARMS.values()} <= set(pictures.COLOURS)


def test_an_arm_looks_the_same_in_every_figure():
    alone, together = pictures.looks(["grpo"]), pictures.looks(["grpo", "ppo", "stale"])
    assert alone["grpo"] == together["grpo"] == pictures.look("grpo-lag8")
    assert pictures.look("clip_stale") != pictures.look("clip")
    assert pictures.look("something new") == pictures.look("something new")


def test_two_arms_of_one_figure_never_look_the_same():
    names = [f"arm {i}" for i in range(20)]
    assert len(set(pictures.looks(names).values())) == 20


def test_curves_read_what_the_engine_recorded(tmp_path):
    history = [{"step": s, "optim/lr": 1e-3, "eval/accuracy": 0.5 + s / 100} for s in STEPS]
    (tmp_path / "a.csv").write_text(curve_csv(history), encoding="utf-8")
    picture = plots.curves({"grpo": [read_curve(tmp_path / "a.csv")]}, title="It climbs")
    assert picture.reading == "eval/accuracy, first → last: grpo 0.50 → 0.90."


def test_curves_show_seeds_band_and_names_at_the_ends():
    picture = plots.curves(
        {"grpo": [recorded(0.8), recorded(0.9), recorded(1.0)], "stale": [recorded(0.2), recorded(0.3)]},
        title="Stale data ruin it",
        ylabel="held-out accuracy",
    )
    ax = picture.figure.axes[0]
    assert ax.get_legend() is None
    thin = [line for line in ax.lines if line.get_linewidth() < 1]
    thick = {line.get_label(): line for line in ax.lines if line.get_linewidth() >= 2}
    assert len(thin) == 5 and set(thick) == {"grpo", "stale"}
    assert thick["grpo"].get_color() == pictures.BLUE and thick["stale"].get_linestyle() == "--"
    assert len(ax.collections) == 2  # the bands
    notes = [text.get_text() for text in picture.figure.texts]
    assert sum("95 % interval" in note for note in notes) == 1
    assert {text.get_text() for text in ax.texts} == {"grpo", "stale"}
    assert "grpo 0.40 → 0.90 ± 0.25" in picture.reading  # 4.303 * 0.1 / sqrt(3)


def test_names_at_line_ends_do_not_overlap():
    heights = plots.apart([0.90, 0.91, 0.905, 0.2], 0.07)
    assert np.diff(sorted(heights)).min() >= 0.07 - 1e-6
    assert np.argsort(heights).tolist() == np.argsort([0.90, 0.91, 0.905, 0.2]).tolist()


def test_seeds_with_other_steps_are_compared_where_both_are_measured():
    picture = plots.curves({"grpo": [recorded(0.8), recorded(0.9, steps=[0, 40])]}, title="x")
    assert len(picture.figure.axes[0].lines[-1].get_xdata()) == 2


def test_arrays_are_fine_and_bad_ones_are_named():
    picture = plots.curves({"mine": np.array([[0.1, 0.2, 0.3]])}, "reward", title="x", steps=STEPS)
    assert "mine 0.10 → 0.30" in picture.reading
    with pytest.raises(ValueError, match="has no column 'rewards'"):
        plots.curves({"grpo": [recorded(0.8)]}, "rewards", title="x")
    with pytest.raises(ValueError, match="3 values a seed but there are 2 steps"):
        plots.curves({"mine": np.ones((2, 3))}, title="x", steps=[0, 1])
    with pytest.raises(ValueError, match="no arm"):
        plots.curves({}, title="x")


@pytest.mark.parametrize(
    ("degrees", "right"), [(1, 12.706), (4, 2.776), (11, 2.201), (20, 2.086), (60, 2.000)]
)
def test_the_t_interval_has_the_books_quantiles(degrees, right):
    assert plots.t_quantile(degrees) == pytest.approx(right, abs=2e-3)


def test_a_ratio_histogram_says_what_lies_outside_the_band():
    ratio_BT = torch.tensor([[1.0, 1.0, 0.5, 2.0, 9.0]])
    mask_BT = torch.tensor([[True, True, True, True, False]])
    picture = plots.ratio_histogram(ratio_BT, mask_BT, title="Half have left")
    assert picture.reading == "4 own tokens: 25.0% below 0.8, 25.0% above 1.2, median 1.000, largest 2.00."
    with pytest.raises(ValueError, match="log ratio"):
        plots.ratio_histogram([-0.1, 0.2], title="x")
    with pytest.raises(ValueError, match="mask"):
        plots.ratio_histogram(ratio_BT, mask_BT & False, title="x")


def test_a_ratio_histogram_of_ones_and_of_zeros_can_be_drawn():
    for ratios in ([1.0, 1.0], [0.0, 1.0], [1e-9, 300.0]):
        assert plots.ratio_histogram(ratios, title="x")._repr_mimebundle_()


def test_an_advantage_histogram_says_how_many_teach_nothing():
    picture = plots.advantage_histogram(torch.tensor([0.625, -0.375, 0.0, 0.0]), title="Half teach nothing")
    assert picture.reading == (
        "4 advantages from -0.38 to 0.62, mean 0.062: 25% above 0, 25% below, 50% exactly 0."
    )
    assert plots.advantage_histogram([0.0, 0.0], title="all equal")._repr_mimebundle_()


def test_a_picture_carries_alt_text_with_title_and_numbers():
    picture = plots.advantage_histogram([1.0, -1.0], title='Half "up" & down')
    html = picture._repr_mimebundle_()["text/html"]
    assert '<img src="data:image/png;base64,' in html
    assert 'alt="Half &quot;up&quot; &amp; down. 2 advantages from -1.00 to 1.00' in html
    assert repr(picture) == picture.reading == picture._repr_mimebundle_()["text/plain"]


def test_a_picture_is_700_wide_and_the_same_every_time(tmp_path):
    first, again = (plots.advantage_histogram([1.0, -1.0], title="x") for _ in range(2))
    assert first._repr_mimebundle_() == again._repr_mimebundle_()
    assert 'width="700"' in first._repr_mimebundle_()["text/html"]
    assert imread(io.BytesIO(pictures.png(first.figure))).shape[1] == 700
    first.save(tmp_path / "x.png")
    assert imread(tmp_path / "x.png").shape[1] == 1400


@pytest.mark.parametrize(
    "picture",
    [
        plots.curves(
            {"grpo": [recorded(0.8), recorded(0.9)], "clip_stale": [recorded(0.85)]}, title="Short title"
        ),
        plots.ratio_histogram([0.5, 1.0, 1.5, 3.0], title="Short title"),
        plots.advantage_histogram([0.5, -0.5, 0.0], title="Short title"),
    ],
    ids=["curves", "ratios", "advantages"],
)
def test_every_label_lies_inside_the_picture_and_is_large_enough(picture):
    pictures.png(picture.figure)
    renderer = picture.figure.canvas.get_renderer()
    width, height = picture.figure.bbox.width, picture.figure.bbox.height
    ax = picture.figure.axes[0]
    labels = [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts, *picture.figure.texts]
    for label in (one for one in labels if one.get_text()):
        box = label.get_window_extent(renderer)
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, label.get_text()
        assert label.get_fontsize() >= 9


def test_a_token_strip_shows_tokens_numbers_and_readable_colours():
    strip = plots.token_strip([["3", "<end>"]], [[0.625, -0.375]], [[True, False]], title="Advantages")
    html = strip._repr_mimebundle_()["text/html"]
    assert "&lt;end&gt;" in html and "0.62" in html and "-0.38" not in html
    assert strip.reading == "Advantages: 2 tokens, lowest 0.62, highest 0.62."
    both = plots.token_strip(["a", "b", "c"], [1.0, -1.0, 0.0], title="x")
    assert all(pictures.contrast("#000000", both._colour(v)) >= 7 for v in (1.0, -1.0, 0.0, math.nan))
    assert both._colour(0.0) == "#FFFFFF" and both._colour(1.0) != both._colour(-1.0)
    with pytest.raises(ValueError, match="one value a token"):
        plots.token_strip(["a", "b"], [1.0], title="x")


def test_lines_name_each_line_at_its_end_and_keep_the_reading():
    picture = plots.lines(
        [2, 4, 8],
        {"one": [1.0, 2.0, 3.0], "two": ([3.0, 2.0, 3.0], [0.1, 0.1, 0.1])},
        title="Two lines meet",
        xlabel="G",
        ylabel="noise",
        reading="Both end at 3.",
        log_x=True,
    )
    ax = picture.figure.axes[0]
    assert {text.get_text() for text in ax.texts} == {"one", "two"}
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "4", "8"]
    assert picture.alt == "Two lines meet. Both end at 3."
    with pytest.raises(ValueError, match=r"'one' has values of shape \(2,\) for x of shape \(3,\)"):
        plots.lines([1, 2, 3], {"one": [1, 2]}, title="", xlabel="", ylabel="", reading="")
    with pytest.raises(ValueError, match="no line to draw"):
        plots.lines([1], {}, title="", xlabel="", ylabel="", reading="")


def test_lines_name_what_they_cannot_draw():
    words = {"title": "", "xlabel": "", "ylabel": "", "reading": ""}
    with pytest.raises(ValueError, match="Give series={'name': values}"):
        plots.lines([1], [[1.0]], **words)
    with pytest.raises(ValueError, match=r"x must be one row of numbers, got shape \(1, 2\)"):
        plots.lines([[1, 2]], {"a": [1.0, 2.0]}, **words)
    with pytest.raises(ValueError, match="log_x needs every x above 0"):
        plots.lines([0, 1], {"a": [1.0, 2.0]}, log_x=True, **words)
    with pytest.raises(ValueError, match="a tuple means"):
        plots.lines([1, 2, 3], {"a": (1.0, 2.0, 3.0)}, **words)
