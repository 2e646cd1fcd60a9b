"""`make chapters` builds one way, the same bytes each time, and never loses what it cannot replace."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.notebooks.helpers import PIXEL, good_source, stored
from tools import chapters as builder
from tools import rules

ROOT = builder.ROOT
LIVELY = f"""# %% [markdown]
# # What differs from run to run

# %% tags=["setup"]
import os
import sys

import ipywidgets
from IPython.display import HTML
from tqdm import tqdm

# %% tags=["demo"]
for _ in tqdm(range(3)):
    pass
print(0.375)
print("a message", file=sys.stderr)
object()

# %% tags=["demo"]
print(os.environ["OMP_NUM_THREADS"], os.environ["HF_HUB_OFFLINE"], os.environ["GRPO_LAB_HOME"])
print(sorted(name for name in os.environ if name.startswith("GRPO_LAB_")))

# %% [markdown]
# Twice the same words.

# %% [markdown]
# Twice the same words.

# %% tags=["widget"]
ipywidgets.VBox([ipywidgets.IntSlider(8, description="G"), ipywidgets.FloatText(0.5)])

# %% tags=["plot"]
HTML('<img alt="a dot" src="data:image/png;base64,{PIXEL}"><p>One dot at 0 and 1.</p>')

# %% tags=["demo", "raises-exception"]
1 / 0
"""


@pytest.fixture
def folder(tmp_path):
    """An empty chapters/ with src/ in it."""
    (tmp_path / "chapters/src").mkdir(parents=True)
    return tmp_path / "chapters"


def add(folder, name, source):
    (folder / f"src/{name}.py").write_text(source, encoding="utf-8")
    return next(one for one in builder.chapters(folder) if one.name == name)


@pytest.fixture
def instant(monkeypatch):
    """Execution by hand instead of a kernel; the list of what was executed."""
    executed = []

    def execute(nb, **more):
        executed.append(nb.cells[0].source)
        source = good_source().replace("A made-up chapter", nb.cells[0].source.splitlines()[0][2:])
        done = stored(source)
        assert [cell.source for cell in done.cells] == [cell.source for cell in nb.cells]
        return done

    monkeypatch.setattr(builder, "execute", execute)
    return executed


# --- with a kernel ---------------------------------------------------------------------------------------------------


def test_two_builds_give_the_same_bytes_and_nbval_agrees(folder, monkeypatch, capfd):
    """A build, a second build, and the stored notebook under a bare `pytest --nbval`, in one go: kernels are slow."""
    monkeypatch.setenv("GRPO_LAB_FAST", "1")
    chapter = add(folder, "98_lively", LIVELY)
    assert builder.main([], folder) == 0, capfd.readouterr().out
    first = chapter.notebook.read_bytes()
    assert builder.main(["--force"], folder) == 0
    assert chapter.notebook.read_bytes() == first
    assert sorted(path.name for path in folder.iterdir()) == ["98_lively.ipynb", "src"], (
        "nothing is left lying about"
    )

    nb = nbformat.reads(first.decode(), as_version=4)
    text = first.decode()
    assert first.endswith(b"}\n") and b"\r" not in first
    assert not any(word in text for word in ("jupytext", "iopub", "widget-view", "IPython-input", "3.1"))
    assert nb.metadata.kernelspec.name == "python3"
    assert [cell.execution_count for _, cell in rules.code_cells(nb)] == [1, 2, 3, 4, 5, 6]
    assert len({cell.id for cell in nb.cells}) == len(nb.cells)
    said = [rules.text_of(output) for _, cell in rules.code_cells(nb) for output in cell.outputs]
    assert "1 1 TEMP\n['GRPO_LAB_HOME']\n" in said[3], (
        "one thread, offline, a progress folder for once; not fast"
    )
    assert "<object at 0xADDRESS>" in said and any("3/3 [...]" in one for one in said)
    assert said[-1] == "ZeroDivisionError: division by zero"

    # as a learner's clone has it: the conftest.py beside make.py, called from somewhere else
    (folder.parent / "tools").mkdir()
    shutil.copy(ROOT / "conftest.py", folder.parent)
    shutil.copy(ROOT / "tools/nbval_sanitize.cfg", folder.parent / "tools")
    (folder.parent / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n'
    )
    said = nbval(chapter.notebook, cwd=folder.parent.parent)
    assert "6 passed" in said, said

    # a stored number that is not what comes out is noticed; another picture in HTML is not
    changed = first.decode().replace("0.375\\n", "0.374\\n").replace(PIXEL, PIXEL.replace("AAAA", "BBBB"))
    chapter.notebook.write_text(changed, encoding="utf-8", newline="\n")
    said = nbval(chapter.notebook, cwd=folder)
    assert "1 failed, 5 passed" in said and "0.374" in said, said


def nbval(path, cwd):
    words = ["-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=300)
    return done.stdout


def test_a_cell_that_fails_is_named_and_the_old_notebook_stays(folder, capfd):
    source = LIVELY.replace("print(0.375)\n", "def half(x):\n    return x / nothing\nprint(half(0.375))\n")
    chapter = add(folder, "98_lively", source)
    chapter.notebook.write_text("what was there")
    assert builder.main([], folder) == 1
    said = capfd.readouterr().out
    line = source.splitlines().index("print(half(0.375))") + 1
    assert f"98_lively.py:{line}: cell 3 (demo): NameError: name 'nothing' is not defined" in said
    assert "return x / nothing" in said, "the traceback"
    assert "\x1b" not in said and "the old notebook is as it was" in said
    assert chapter.notebook.read_text() == "what was there"
    assert sorted(path.name for path in folder.iterdir()) == ["98_lively.ipynb", "src"]


@pytest.mark.parametrize(
    ("code", "message"),
    [("while True:\n    pass", "ran longer than 2 s"), ("import os\nos._exit(1)", "the kernel died")],
)
def test_a_cell_that_never_ends_and_a_kernel_that_dies_are_named(folder, code, message):
    source = f'# %% [markdown]\n# # Stuck\n\n# %% tags=["demo"]\n{code}\n'
    with pytest.raises(builder.BuildError, match=rf"98_stuck.py:5: cell 2 \(demo\): {message}"):
        builder.build(add(folder, "98_stuck", source), timeout=2)


# --- without one -----------------------------------------------------------------------------------------------------


def test_only_what_changed_is_executed(folder, instant, capsys):
    add(folder, "01_one", good_source())
    add(folder, "02_two", good_source().replace("A made-up chapter", "Two"))
    assert builder.main([], folder) == 0 and len(instant) == 2
    assert builder.main([], folder) == 0 and len(instant) == 2
    assert "01_one: up to date\n02_two: up to date\n" in capsys.readouterr().out
    add(folder, "02_two", good_source().replace("A made-up chapter", "Two, again"))
    assert builder.main([], folder) == 0 and instant[2:] == [instant[1].replace("Two", "Two, again")]
    assert builder.main(["--force", "01"], folder) == 0 and len(instant) == 4


def test_check_says_what_is_stale_and_builds_nothing(folder, instant, capsys):
    chapter = add(folder, "01_one", good_source())
    assert builder.main(["--check"], folder) == 1
    assert "01_one: not built yet\nnot up to date: 01_one\n" in capsys.readouterr().out
    assert instant == [] and not chapter.notebook.exists()
    builder.main([], folder)
    assert builder.main(["--check"], folder) == 0
    assert builder.main(["--check", "--force"], folder) == 0 and len(instant) == 1


def test_a_notebook_that_was_touched_is_stale(folder, instant, monkeypatch):
    chapter = add(folder, "01_one", good_source())
    builder.build(chapter)
    whole = chapter.notebook.read_text(encoding="utf-8")
    assert builder.why_stale(chapter) == ""
    for old, new, why in [
        ("Eight answers", "Nine answers", "the notebook was edited: edit the source"),
        ('"demo"', '"train"', "the notebook was edited: edit the source"),
        ('"execution_count": 5', '"execution_count": null', "not executed"),
        ("sha256:", "sha256:0", "the source has changed"),
        ('"cells"', '"cell"', "its notebook can't be read"),
        ("{", "", "its notebook can't be read"),
    ]:
        assert old in whole
        chapter.notebook.write_text(whole.replace(old, new, 1), encoding="utf-8")
        assert builder.why_stale(chapter) == why
    chapter.notebook.write_text(whole, encoding="utf-8")
    chapter.source.write_bytes(chapter.source.read_bytes().replace(b"\n", b"\r\n"))
    assert builder.why_stale(chapter) == "", "line endings are no change"
    monkeypatch.setattr(builder, "VERSION", builder.VERSION + 1)
    assert builder.why_stale(chapter) == "the source has changed"


def test_a_notebook_without_a_source_is_named(folder, instant, capsys):
    (folder / "07_left.ipynb").write_text("{}")
    assert builder.main(["--check"], folder) == 1
    assert "07_left.ipynb: no source becomes this notebook" in capsys.readouterr().out


def test_a_course_without_chapters_is_up_to_date(folder, tmp_path, capsys):
    for place in (folder, tmp_path / "nowhere"):
        assert builder.main([], place) == 0
        assert "no chapters yet" in capsys.readouterr().out


def test_names_may_be_short_but_not_ambiguous(folder, instant, capsys):
    for name in ("05_group", "06_ratio", "06_ratio_again"):
        add(folder, name, good_source())
    everything = builder.chapters(folder)
    for word in ("05", "05_group", "chapters/src/05_group.py", "chapters/05_group.ipynb"):
        assert [one.name for one in builder.chosen(everything, [word])] == ["05_group"]
    assert [one.name for one in builder.chosen(everything, ["06_ratio"])] == ["06_ratio"]
    assert builder.main(["06"], folder) == 2
    assert "06 names 2 chapters. There are: 06_ratio, 06_ratio_again." in capsys.readouterr().err
    assert builder.main(["11"], folder) == 2
    assert "11 names 0 chapters. There are: 05_group, 06_ratio, 06_ratio_again." in capsys.readouterr().err
    assert instant == []


def test_a_source_that_breaks_a_rule_is_not_executed(folder, instant, capsys):
    source = good_source().replace("import math", "import trl")
    add(folder, "01_one", source)
    assert builder.main([], folder) == 1
    line = source.splitlines().index("import trl") + 1
    assert f"01_one.py:{line}: cell 2: imports trl, which a learner does not have" in capsys.readouterr().out
    assert instant == []


def test_outputs_that_break_a_rule_leave_the_old_notebook(folder, instant, capsys, monkeypatch):
    chapter = add(folder, "01_one", good_source())
    chapter.notebook.write_text("what was there")
    fine = builder.execute

    def execute(nb, **more):
        done = fine(nb, **more)
        cell = next(cell for cell in done.cells if cell.source.startswith("print"))
        cell.outputs[0].text = "/".join(["saved in ", "home", "me"])
        return done

    monkeypatch.setattr(builder, "execute", execute)
    assert builder.main([], folder) == 1
    assert "cell 6: a path of one machine" in capsys.readouterr().out
    assert chapter.notebook.read_text() == "what was there"


def test_a_header_or_text_before_the_first_cell_is_refused(folder, instant):
    chapter = add(folder, "01_one", "import math\n" + good_source())
    with pytest.raises(builder.BuildError, match="the file starts with one"):
        builder.build(chapter)
    header = "# ---\n# jupyter:\n#   jupytext:\n#     formats: ipynb,py:percent\n# ---\n\n"
    nb = builder.skeleton(header + good_source())
    assert "jupytext" not in nb.metadata and set(nb.metadata) == {"kernelspec", "language_info", "grpo_lab"}


def test_an_edit_changes_the_id_of_its_own_cell_only():
    before = builder.skeleton(good_source())
    after = builder.skeleton(good_source().replace("mean {", "the mean {"))
    differ = [a.source for a, b in zip(before.cells, after.cells, strict=True) if a.id != b.id]
    assert len(differ) == 1 and differ[0].startswith("print")


def test_a_write_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.ipynb"
    path.write_text("what was there")

    def full(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        builder.write(path, stored())
    assert [one.name for one in tmp_path.iterdir()] == ["a.ipynb"] and path.read_text() == "what was there"


# --- the sanitiser and the settings of nbval -------------------------------------------------------------------------


def nbval_sanitize(text):
    from nbval.plugin import get_sanitize_patterns

    for pattern, new in get_sanitize_patterns(builder.SANITIZE.read_text(encoding="ascii")):
        text = re.sub(pattern, new, text)
    return text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('<img alt="a line" src="data:image/png;base64,iVBOR/+0==">', '<img alt="a line" src="data:image">'),
        ('<img src="data:image/svg+xml;base64,iVBOR" alt="b">', '<img src="data:image" alt="b">'),
        ("<Clip object at 0x7f3a5c1e2d90>", "<Clip object at 0xADDRESS>"),
        ("the mask 0x1F stays", "the mask 0x1F stays"),
        ("/".join(["", "tmp", "ipykernel_12", "345.py:3: UserWarning"]), "CELL:3: UserWarning"),
        ("C:\\Users\\me\\AppData\\Local\\Temp\\ipykernel_1\\2.py", "CELL"),
        ("in '" + "/".join(["", "tmp", "tmpab12", "runs"]) + "'", "in 'TEMP'"),
        ("/".join(["", "private", "var", "folders", "x1", "T", "a.csv"]) + " written", "TEMP written"),
        ("C:\\Users\\me\\AppData\\Local\\Temp\\a.csv", "TEMP"),
        ("20/20 [00:03<00:00,  6.51it/s]", "20/20 [...]"),
        ("20/20 [1:00:03<00:00,  1.51s/it, reward=0.51]", "20/20 [..., reward=0.51]"),
        ("0/20 [00:00<?, ?it/s]", "0/20 [...]"),
        ("reward 0.375 at 12:30, ratio 3/8", "reward 0.375 at 12:30, ratio 3/8"),
    ],
)
def test_the_sanitiser_blanks_what_differs_and_nothing_else(text, wanted):
    assert nbval_sanitize(text) == wanted
    assert nbval_sanitize(wanted) == wanted, "what is stored was sanitised once already"
    assert builder.sanitize(text) == (text if "data:image" in text else wanted)


def test_the_root_conftest_sets_nbval_up_and_heeds_what_was_asked_for(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("course_conftest", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Config:
        def __init__(self, **options):
            defaults = {"nbval": True, "nbval_lax": False, "nbval_current_env": False}
            defaults |= {"nbval_sanitize_with": None, "nbval_cell_timeout": 2000}
            self.option, self.stash = type("Option", (), defaults | options)(), pytest.Stash()

    monkeypatch.setattr(module.os, "environ", dict(os.environ))
    config = Config()
    module.pytest_configure(config)
    assert config.option.nbval_sanitize_with == str(builder.SANITIZE)
    assert config.option.nbval_cell_timeout == builder.TIMEOUT and config.option.nbval_current_env
    assert module.os.environ["OMP_NUM_THREADS"] == "1" and module.os.environ["CUDA_VISIBLE_DEVICES"] == ""
    home = config.stash[module.HOMES]
    assert os.path.isdir(home)
    homes = set()
    for name in ("00.ipynb", "01.ipynb", "00.ipynb"):
        item = type("Item", (), {"config": config, "path": tmp_path / name})()
        module.pytest_runtest_setup(item)
        homes.add(module.os.environ["GRPO_LAB_HOME"])
    assert len(homes) == 2, "each chapter has a progress folder of its own"
    module.pytest_unconfigure(config)
    assert not os.path.exists(home)

    asked = Config(nbval=False, nbval_lax=True, nbval_cell_timeout=7, nbval_sanitize_with="mine.cfg")
    module.pytest_configure(asked)
    module.pytest_unconfigure(asked)
    assert asked.option.nbval_cell_timeout == 7 and asked.option.nbval_sanitize_with == "mine.cfg"
    idle = Config(nbval=False)
    module.pytest_configure(idle)
    module.pytest_unconfigure(idle)
    assert idle.option.nbval_sanitize_with is None and module.HOMES not in idle.stash
