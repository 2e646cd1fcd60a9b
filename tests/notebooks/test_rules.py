"""Every rule for chapters can be broken: each is, on a made-up notebook, one by one."""

import copy

import nbformat
import pytest

from tests.notebooks.helpers import PIXEL, good_source, stored
from tools import rules, solutions
from tools.chapters import skeleton

EXERCISE = 'def policy_gradient(logp_BT, advantages_BT, mask_BT):\n    """Your turn."""'
FIGURE = 'HTML(\'<img alt="a line that climbs"'

# rule, what is replaced in the source, by what, what is said
IN_THE_SOURCE = [
    ("one_role_a_cell", '# %% tags=["demo"]', "# %%", "this one has none"),
    ("one_role_a_cell", 'tags=["demo"]', 'tags=["demo", "plot"]', "this one has demo and plot"),
    ("one_role_a_cell", 'tags=["demo"]', 'tags=["demo", "nbval-skip"]', "unknown tag nbval-skip"),
    ("one_role_a_cell", "# %% [markdown]", '# %% [markdown] tags=["demo"]', "unknown tag demo"),
    ("one_role_a_cell", "# %% [markdown]", "# %% [raw]", "cells are code or markdown, not raw"),
    ("only_known_metadata", 'tags=["demo"]', 'tags=["demo"] slideshow="skip"', "a chapter: slideshow"),
    ("plain_python", "print(", "print((", "not plain Python"),
    ("plain_python", 'print(f"mean {3 / 8:.3f}")', "", "an empty cell"),
    ("no_trailing_semicolon", '3 / 8:.3f}")', '3 / 8:.3f}");', "trailing `;`"),
    ("no_trailing_semicolon", '3 / 8:.3f}")', '3 / 8:.3f}"); # quiet', "trailing `;`"),
    (
        "short_cells",
        "import math\n",
        "import math\nimport json\nimport re\nimport ast\nimport io\n",
        "9 lines; a setup cell",
    ),
    ("short_cells", "print(", "print()\n" * 30 + "print(", "31 lines; a demo cell has at most 30"),
    ("plots_and_training_define_nothing", "rows =", "def f():\n    pass\nrows =", "a train cell defines f"),
    ("plots_and_training_define_nothing", "HTML('", "class F:\n    pass\nHTML('", "a plot cell defines F"),
    ("exercises_are_signatures", EXERCISE, EXERCISE + "\n    x = 1", "`raise NotImplementedError`"),
    ("exercises_are_signatures", 'raise NotImplementedError("yours")', "pass", "`raise NotImplementedError`"),
    ("exercises_are_signatures", EXERCISE, "x = 1\n" + EXERCISE, "one function and nothing else"),
    ("exercises_are_signatures", "def policy_gradient(", "def policy_slope(", "no function policy_slope"),
    (
        "exercises_are_signatures",
        "def policy_gradient(logp_BT,",
        "def policy_gradient(logits,",
        "is not the package's",
    ),
    ("every_exercise_is_checked", "policy_gradient = check_", "_ = check_", "no later check cell"),
    (
        "given_is_the_package",
        "return -advantages_BT * logp_BT",
        "return advantages_BT * logp_BT",
        "copy it anew",
    ),
    ("given_is_the_package", "mask_BT: Tensor) ->", "mask_BT: Tensor, x=0) ->", "copy it anew"),
    (
        "given_is_the_package",
        "def given_policy_gradient",
        "def given_slope",
        "the package has no given_slope",
    ),
    (
        "given_is_the_package",
        "def given_policy_gradient",
        "x = 1\ndef given_policy_gradient",
        "imports at most",
    ),
    (
        "imports_within_the_base_list",
        "import math",
        "import trl",
        "imports trl, which a learner does not have",
    ),
    ("imports_within_the_base_list", "rows =", "from tools.rules import small\nrows =", "imports tools"),
    ("imports_within_the_base_list", "import math", "from math import *", "imports everything from math"),
    ("imports_within_the_base_list", "import math", "from . import math", "imports ."),
    ("ignored_outputs_say_why", "# output not compared: it shows the time of day\n", "", "say why"),
    ("ignored_outputs_say_why", "it shows the time of day", "", "say why"),
    ("ignored_outputs_say_why", "print(", "# NBVAL_SKIP\nprint(", "an nbval comment"),
    ("pictures_in_text_have_alt", "![the loop]", "![]", "without alt text"),
    ("pictures_in_text_have_alt", "Eight answers", "<img src='a.png'> Eight answers", "without alt text"),
]


def said_by(nb):
    return [
        (rule.__name__, str(problem))
        for rule in (*rules.SOURCE_RULES, *rules.STORED_RULES)
        for problem in rule(nb)
    ]


def test_the_made_up_chapter_breaks_no_rule():
    assert said_by(stored()) == []
    assert said_by(nbformat.reads(nbformat.writes(stored()), as_version=4)) == []


@pytest.mark.parametrize(("name", "old", "new", "message"), IN_THE_SOURCE)
def test_a_source_that_breaks_a_rule_is_named(name, old, new, message):
    source = good_source()
    assert old in source
    problems = rules.problems(skeleton(source.replace(old, new, 1)), (getattr(rules, name),))
    assert len(problems) == 1 and message in str(problems[0]), problems
    assert str(problems[0]).startswith("cell ")


def of(nb, last):
    """The code cell whose last line begins like this."""
    return next(
        cell
        for cell in nb.cells
        if cell.cell_type == "code" and cell.source.splitlines()[-1].startswith(last)
    )


def never_run(nb):
    of(nb, "print").execution_count = None


def stripped(nb):
    for _, cell in rules.code_cells(nb):
        cell.execution_count, cell.outputs = None, []


def run_out_of_order(nb):
    of(nb, "rows").execution_count, of(nb, "print").execution_count = 5, 6


def result_of_another_run(nb):
    of(nb, "HTML").outputs[0].execution_count = 3


def stored_error(nb):
    of(nb, "print").outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])]


def no_error_where_one_is_promised(nb):
    of(nb, "print").metadata.tags.append("raises-exception")


def stored_warning(nb):
    of(nb, "print").outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="CELL:3: UserWarning: old\n")
    ]


def widget_state(nb):
    nb.metadata["widgets"] = {}


def widget_view(nb):
    of(nb, "HTML").outputs[0].data[rules.WIDGET_VIEW] = {"model_id": "1"}


def timing(nb):
    of(nb, "print").metadata["execution"] = {"iopub.execute_input": "2026"}


def pairing(nb):
    nb.metadata["jupytext"] = {"formats": "ipynb,py"}


def someones_kernel(nb):
    nb.metadata.kernelspec["name"] = "conda-env-mine"


def printed_path(nb):
    of(nb, "print").outputs[0].text = "saved in " + "/".join(["", "home", "me", "runs"])


def windows_path(nb):
    of(nb, "HTML").outputs[0].data["text/html"] += "<p>saved the 3 curves in C:" + "\\Users\\me</p>"


def path_in_a_traceback(nb):
    of(nb, "print").outputs[0].text = "/".join(["File ", "tmp", "ipykernel_12", "3.py"])


def path_in_a_source(nb):
    of(nb, "rows").source += "\nopen('" + "/".join(["", "root", "x"]) + "')"


def too_large(nb):
    of(nb, "print").outputs[0].text = "x" * rules.MOST_BYTES


def no_alt(nb):
    data = of(nb, "HTML").outputs[0].data
    data["text/html"] = data["text/html"].replace('alt="a line that climbs"', "")


def empty_alt(nb):
    data = of(nb, "HTML").outputs[0].data
    data["text/html"] = data["text/html"].replace("a line that climbs", " ")


def bare_picture(nb):
    data = {"image/png": PIXEL, "text/plain": "<Figure size 640x480 with 1 Axes>"}
    of(nb, "HTML").outputs = [nbformat.v4.new_output("display_data", data=data, metadata={"alt": "ignored"})]


def no_reading(nb):
    nb.cells = [cell for cell in nb.cells if "climbs from" not in cell.source]


def reading_without_a_number(nb):
    cell = next(cell for cell in nb.cells if "climbs from" in cell.source)
    cell.source = "The line climbs.\n\nNow 3 more words."


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("executed_in_order", never_run, "its execution count is None, not 5"),
        ("executed_in_order", stripped, "its execution count is None, not 1"),
        ("executed_in_order", run_out_of_order, "its execution count is 6, not 5"),
        ("executed_in_order", result_of_another_run, "an output has the execution count 3, not 7"),
        ("no_errors", stored_error, "a stored error: ValueError: no"),
        ("no_errors", no_error_where_one_is_promised, "it stored no error"),
        ("no_errors", stored_warning, "a stored warning"),
        ("no_widget_state", widget_state, "the state of widgets"),
        ("no_widget_state", widget_view, "the view of a widget"),
        ("only_known_metadata", widget_state, "widgets"),
        ("only_known_metadata", timing, "execution"),
        ("only_known_metadata", pairing, "jupytext"),
        ("only_known_metadata", someones_kernel, "not python3"),
        ("no_machine_paths", printed_path, "a path of one machine"),
        ("no_machine_paths", windows_path, "a path of one machine"),
        ("no_machine_paths", path_in_a_traceback, "a path of one machine"),
        ("no_machine_paths", path_in_a_source, "a path of one machine"),
        ("small", too_large, "KB; at most 500 KB"),
        ("pictures_have_alt", no_alt, "an <img> without alt text"),
        ("pictures_have_alt", empty_alt, "an <img> without alt text"),
        ("pictures_have_alt", bare_picture, "a bare picture"),
        ("figures_have_a_reading", no_reading, "a figure without a reading"),
        ("figures_have_a_reading", reading_without_a_number, "a figure without a reading"),
    ],
)
def test_a_stored_notebook_that_breaks_a_rule_is_named(name, spoil, message):
    nb = stored()
    spoil(nb)
    problems = rules.problems(nb, (getattr(rules, name),))
    assert problems and message in str(problems[0]), problems


def test_every_rule_is_broken_above():
    broken = {case[0] for case in IN_THE_SOURCE}
    mark = test_a_stored_notebook_that_breaks_a_rule_is_named.pytestmark[0]
    broken |= {case[0] for case in mark.args[1]}
    assert broken == {rule.__name__ for rule in (*rules.SOURCE_RULES, *rules.STORED_RULES)}


@pytest.mark.parametrize("where", ["html", "plain", "printed", "below"])
def test_a_reading_may_stand_in_the_picture_beside_it_or_below(where):
    nb = stored()
    reading = "It climbs from 0 to 1.41."
    cell = of(nb, "HTML")
    if where != "below":
        no_reading(nb)
    if where == "html":
        cell.outputs[0].data["text/html"] += f"<p>{reading}</p>"
    if where == "plain":
        cell.outputs[0].data["text/plain"] = reading
    if where == "printed":
        cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=reading))
    assert rules.problems(nb, (rules.figures_have_a_reading,)) == []


def test_the_data_of_a_picture_are_no_path():
    nb = stored()
    of(nb, "HTML").outputs[0].data["text/html"] = (
        f'<img alt="a" src="data:image/png;base64,AAAA{"/tmp/"}AAA=">'
    )
    assert rules.problems(nb, (rules.no_machine_paths,)) == []


def test_a_docstring_and_a_prefix_do_not_count_in_a_given_cell():
    source = good_source().replace('"""The book\'s own words."""', "")
    assert rules.problems(skeleton(source), (rules.given_is_the_package,)) == []
    same = source.replace("def given_policy_gradient", "def policy_gradient", 1)
    assert rules.problems(skeleton(same), (rules.given_is_the_package,)) == []


def test_a_solution_brings_the_imports_and_helpers_it_needs_and_no_others():
    text = solutions.solution("group_advantage")
    assert "def _grouped" in text and "def _require_finite" in text and "import torch" in text
    assert "def leave_one_out_advantage" not in text
    space = {}
    exec(compile(text, "<solution>", "exec"), space)
    import torch

    advantages_B = space["group_advantage"](torch.tensor([1.0, 0, 0, 1]), group_size=2)
    assert [round(x, 2) for x in advantages_B.tolist()] == [0.71, -0.71, -0.71, 0.71]
    with pytest.raises(LookupError, match="no function nonsense"):
        solutions.solution("nonsense")


def test_a_name_that_is_defined_twice_is_refused(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("def twice():\n    pass\n")
    with pytest.raises(LookupError, match=r"twice is defined in .*\.a and .*\.b"):
        solutions.find("twice", tmp_path)


def test_rules_change_nothing():
    nb = stored()
    before = copy.deepcopy(nb)
    rules.problems(nb)
    assert nb == before
