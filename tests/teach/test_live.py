"""Watching a run: its rows pass through, an interrupt loses none, and what is left is one picture with alt text."""

import re
import signal

import pytest
from IPython.core.interactiveshell import InteractiveShell
from ipywidgets.widgets.widget import _instances

from grpo_lab.engine.recipes import grpo
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import start, step, train
from grpo_lab.engine.warm_start import warm_start
from grpo_lab.teach import live as module
from grpo_lab.teach.live import live

VIEW = "application/vnd.jupyter.widget-view+json"


def rows(last=5, *, then=None):
    """Rows as `train` gives them; after the last one `then` is raised."""
    for number in range(last + 1):
        row = {"step": number}
        if number % 2 == 0:
            row["eval/accuracy"] = 0.5 + number / 20
        if number:
            row["reward/mean"] = 0.4 + number / 50
        yield row
    if then is not None:
        raise then


@pytest.fixture
def page(monkeypatch):
    """A notebook's page: what is displayed on it, and no waiting between two redraws."""
    shown = []
    monkeypatch.setattr(module, "get_ipython", lambda: InteractiveShell)
    monkeypatch.setattr(module, "display", lambda bundle, raw: shown.append(bundle))
    monkeypatch.setattr(module, "EVERY", 0.0)
    return shown


def box_of(bundle):
    """The widget that stands on the page; its picture is the second child."""
    return _instances[bundle[VIEW]["model_id"]]


def picture_of(bundle):
    return box_of(bundle).children[1]


def test_rows_pass_through():
    watched = live(rows(), steps=5, title="It climbs")
    assert watched.rows == list(rows()) and not watched.stopped
    assert watched.reading == (
        "After 5 updates, first → last: eval/accuracy 0.50 → 0.70; reward/mean 0.42 → 0.50."
    )


def test_the_final_picture_has_alt_text_and_a_reading():
    bundle = live(rows(), steps=5, title="It climbs.")._repr_mimebundle_()
    assert re.search(r'<img [^>]*alt="It climbs\. After 5 updates, first', bundle["text/html"])
    assert bundle["text/plain"].startswith("After 5 updates") and VIEW not in bundle


def test_nothing_is_displayed_outside_a_notebook(monkeypatch):
    monkeypatch.setattr(module, "get_ipython", lambda: None)
    monkeypatch.setattr(module, "display", lambda _: pytest.fail("there is no page"))
    assert live(rows(), steps=5, title="x").rows


def test_the_page_has_one_view_with_bar_and_picture_and_no_output_widget(page):
    live(rows(), steps=5, title="x")
    (view,) = page
    assert set(view) == {VIEW}  # so nothing is stored of it
    kinds = [type(widget).__name__ for widget in (*box_of(view).children[0].children, picture_of(view))]
    assert kinds == ["IntProgress", "HTML", "HTML"]


def test_the_picture_moves_in_place_with_alt_text_and_a_sentence(page):
    values = []

    def watching():
        for row in rows():
            yield row
            values.append(picture_of(page[0]).value)  # as the page shows it when the next row is asked for

    live(watching(), steps=5, title="It climbs")
    assert len(set(values)) == 6
    assert re.search(r'alt="It climbs\. After 0 updates.*<p>After 0 updates', values[0], re.DOTALL)
    assert "eval/accuracy 0.50 → 0.70" in values[4]


def test_no_duplicate_of_the_final_picture_is_left(page):
    live(rows(), steps=5, title="x")
    assert picture_of(page[0]).value == "" and box_of(page[0]).layout.display == "none"


def test_the_figure_keeps_its_artists():
    drawing = module._Drawing(["eval/accuracy", "reward/mean"], 5, "x", (0.0, 1.0))
    every = list(rows())
    drawing.draw(every[:2])
    before = [id(artist) for artist in (*drawing.ax.lines, *drawing.ax.texts)]
    drawing.draw(every)
    assert [id(artist) for artist in (*drawing.ax.lines, *drawing.ax.texts)] == before
    assert list(drawing.ax.lines[0].get_xdata()) == [0, 2, 4]
    assert drawing.ax.get_xlim() == (0, 5)


def test_redraws_wait_for_their_time(page, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 1e9)
    drawn = []
    monkeypatch.setattr(module, "png", lambda figure: drawn.append(figure) or b"")
    live(rows(), steps=5, title="x")
    assert len(drawn) == 1  # the first row; the rest came too soon


def test_an_interrupt_keeps_the_rows_and_says_how_far_it_came(page):
    watched = live(rows(3, then=KeyboardInterrupt()), steps=5, title="It climbs")
    assert watched.stopped and [row["step"] for row in watched.rows] == [0, 1, 2, 3]
    assert watched.reading.startswith(
        "Stopped after 3 of 5 updates: nothing is lost, and running this cell again"
    )
    assert box_of(page[0]).layout.display == "none"


def test_an_interrupt_before_the_first_row_is_no_error():
    def never():
        raise KeyboardInterrupt
        yield

    watched = live(never(), steps=5, title="x")
    assert (
        watched.rows == []
        and "Stopped after 0 of 5" in watched.reading
        and "nothing measured" in watched.reading
    )


def test_another_error_passes_through_and_the_last_picture_stays(page):
    with pytest.raises(ValueError, match="your loss"):
        live(rows(3, then=ValueError("your loss")), steps=5, title="x")
    assert "After 3 updates" in picture_of(page[0]).value and box_of(page[0]).layout.display != "none"


def test_a_run_that_is_over_shows_what_it_was():
    watched = live(iter(()), steps=5, title="x", before=list(rows()))
    assert "eval/accuracy 0.50 → 0.70" in watched.reading and not watched.stopped


def test_nothing_to_see_and_too_much_of_it():
    assert "nothing measured yet" in live(iter(()), steps=5, title="x").reading
    with pytest.raises(ValueError, match="at most 4"):
        live(rows(), steps=5, title="x", also=list("abcde"))
    with pytest.raises(ValueError, match="steps"):
        live(rows(), steps=0, title="x")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": None}, r"rows must be the rows of a run.*NoneType.*Try train\("),
        ({"rows": {"step": 1}}, "rows must be the rows of a run, one dict an update, got dict"),
        ({"rows": [{"eval/accuracy": 0.5}]}, 'each row must be a dict with the number "step"'),
        ({"rows": [3]}, "each row must be a dict .* got 3"),
        ({"before": None}, "before must be the rows of a run.*Try run.history"),
        ({"before": {"step": 1}}, "before must be the rows of a run"),
        ({"also": "kl"}, r"also must be a list of names.*Try also=\['kl'\]"),
        ({"ylim": (1, 0)}, "ylim must be two numbers, the lower first"),
        ({"ylim": None}, "ylim must be two numbers"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_drawn(wrong, message):
    words = {"rows": rows(), "steps": 5, "title": "x", **wrong}
    with pytest.raises((TypeError, ValueError), match=message):
        live(words.pop("rows"), **words)


def test_names_at_the_lines_ends_stay_apart():
    drawing = module._Drawing(["eval/accuracy", "reward/mean"], 5, "x", (0.0, 1.0))
    drawing.draw([{"step": 1, "eval/accuracy": 0.7, "reward/mean": 0.7}])
    heights = [words.get_position()[1] for words in drawing.ax.texts]
    assert abs(heights[0] - heights[1]) >= 0.09 - 1e-6


def test_a_real_run_goes_on_after_a_real_interrupt():
    policy, task = warm_start(Sort(6), "S", seed=0), Sort(6)
    run = start(policy, task, seed=0, lr=3e-4, batch_size=16)
    recipe = grpo()

    def stopped_by_hand():
        for row in train(policy, task, recipe, run=run, steps=4, eval_every=None):
            yield row
            if row["step"] == 2:
                signal.raise_signal(signal.SIGINT)

    def watch(source):
        return live(source, steps=4, title="It climbs", before=run.history)

    first = watch(stopped_by_hand())
    assert first.stopped and run.version == 2
    step(run, recipe)  # the run is whole
    second = watch(train(policy, task, recipe, run=run, steps=4, eval_every=None))
    assert not second.stopped and [row["step"] for row in second.rows] == [0, 1, 2, 3, 4]
    assert [row["step"] for row in watch(train(policy, task, recipe, run=run, steps=4)).rows] == [
        0,
        1,
        2,
        3,
        4,
    ]
