"""Explorer: dials move one picture and one sentence in place; what is stored is the same every time."""

import json
import re

import pytest

from grpo_lab.teach.explorer import Explorer, bars, line, number, text, whole
from grpo_lab.teach.pictures import BLUE, ORANGE, tidy


def dead(G, p):
    return p**G + (1 - p) ** G


def draw(fig, *, G, p):
    ax = fig.axes[0] if fig.axes else fig.subplots()
    grid = [i / 20 for i in range(21)]
    line(ax, "share", grid, [dead(G, x) for x in grid], color=BLUE)
    line(ax, "here", [p], [dead(G, p)], color=ORANGE, marker="o")
    bars(ax, "bars", [0.2, 0.8], [dead(G, 0.2), dead(G, 0.8)], width=0.02)
    text(ax, "value", p, dead(G, p), f"{dead(G, p):.0%}")
    tidy(ax, title=f"G = {G}", xlabel="pass rate", ylabel="share")


def describe(*, G, p):
    return f"With {G} answers a prompt and p = {p:g}, {dead(G, p):.1%} of the groups teach nothing."


def explorer(**kwargs):
    return Explorer(
        draw,
        describe,
        question="How many groups teach nothing?",
        G=whole(8, 1, 16, "answers a prompt"),
        p=number(0.4, 0, 1, "pass rate", step=0.05),
        **kwargs,
    )


def stored(one):
    bundle = dict(one._repr_mimebundle_())
    bundle.pop("application/vnd.jupyter.widget-view+json")  # taken out when a chapter is built
    return bundle


def test_what_is_stored_is_deterministic():
    assert json.dumps(stored(explorer())) == json.dumps(stored(explorer()))


def test_what_is_stored_shows_the_picture_with_alt_text_and_the_sentence():
    one = explorer()
    sentence = "With 8 answers a prompt and p = 0.4, 1.7% of the groups teach nothing."
    assert stored(one)["text/plain"] == repr(one) == sentence
    html = stored(one)["text/html"]
    assert 'src="data:image/png;base64,iVBOR' in html and f"<p>{sentence}</p>" in html
    assert re.search(r'alt="How many groups teach nothing\? At G = 8, p = 0.4: With 8 answers', html)


def test_moving_a_slider_changes_picture_and_sentence_in_place():
    one = explorer()
    before, widget = one._picture.value, one._picture
    one.sliders["G"].value = 2
    assert one._picture is widget and widget.value != before
    assert "With 2 answers" in widget.value and "52.0%" in one.sentence


def test_a_redraw_reuses_figure_and_artists():
    one = explorer()
    ax = one.figure.axes[0]
    before = [id(artist) for artist in (*ax.lines, *ax.patches, *ax.texts)]
    one.set(G=3, p=0.9).set(G=5)
    assert len(one.figure.axes) == 1
    assert [id(artist) for artist in (*ax.lines, *ax.patches, *ax.texts)] == before
    assert ax.patches[0].get_height() == pytest.approx(dead(5, 0.2))


def test_no_layout_engine_runs_in_the_redraw():
    assert explorer().figure.get_layout_engine() is None


def test_a_redraw_gives_the_same_picture_as_a_fresh_start():
    moved = explorer().set(G=16, p=1.0).set(G=8, p=0.4)
    assert stored(moved) == stored(explorer())


def test_there_is_no_output_widget():
    kinds = set()

    def walk(widget):
        kinds.add(type(widget).__name__)
        for child in getattr(widget, "children", ()):
            walk(child)

    walk(explorer().widget)
    assert kinds == {"VBox", "HBox", "HTML", "IntSlider", "FloatSlider", "BoundedIntText", "BoundedFloatText"}


def test_each_slider_has_a_named_box_that_follows_it():
    one = explorer()
    box, slider = one.widget.children[1].children
    assert box.description == "G, answers a prompt"
    slider.value = 4
    assert box.value == 4
    box.value = 6
    assert slider.value == 6 and one.values["G"] == 6


def test_decimals_stay_decimals():
    one = explorer()
    one.sliders["p"].value = 0.1 + 0.2
    assert one.values["p"] == 0.3
    assert explorer().set(p=1).values["p"] == 1.0


def test_without_a_front_end_dials_can_be_set():
    one = explorer()
    assert one.set(G=1) is one
    assert "100.0%" in repr(one)
    with pytest.raises(KeyError, match="there are G, p"):
        one.set(H=3)
    with pytest.raises(ValueError, match="goes from 1 to 16"):
        one.set(G=17)


def test_dials_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="between 1 and 4"):
        whole(8, 1, 4)
    with pytest.raises(ValueError, match="whole numbers"):
        whole(1.5, 1, 4)
    with pytest.raises(ValueError, match="upwards"):
        number(1, 2, 0, step=0.1)
    with pytest.raises(ValueError, match="at least one dial"):
        Explorer(draw, describe, question="?")
    with pytest.raises(TypeError, match="must be a dial"):
        Explorer(draw, describe, question="?", G=8)


def test_bars_keep_their_number():
    one = explorer()
    with pytest.raises(ValueError, match="Keep the"):
        bars(one.figure.axes[0], "bars", [0, 1, 2], [1, 1, 1])
