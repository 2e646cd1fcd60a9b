"""data/ holds what its manifest says, made by commands that exist, within its limits."""

import tomllib
from pathlib import Path

import pytest

from grpo_lab.cli import parser
from grpo_lab.engine.arms import parse_arm
from grpo_lab.engine.experiment import read_curve
from grpo_lab.engine.manifest import BEGIN, END, command, rows, write_manifest
from grpo_lab.engine.policy import load_policy
from grpo_lab.engine.tasks import named_task
from grpo_lab.engine.warm_start import DATA, TARGET, note_of

MATRIX = tomllib.loads((DATA / "curves" / "experiments.toml").read_text(encoding="utf-8"))


def test_the_table_is_what_lies_there():
    text = (DATA / "README.md").read_text(encoding="utf-8")
    table = text[text.index(BEGIN) : text.index(END)].strip().splitlines()[3:]
    assert table == rows(DATA), "run `grpo-lab manifest`"


def test_data_stays_small_and_holds_no_pickle():
    files = [f for f in DATA.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) <= 20_000_000
    assert {f.suffix for f in files} <= {".md", ".toml", ".json", ".csv", ".safetensors"}


def test_every_command_of_the_table_is_one_that_the_program_takes():
    commands = {command(f.parent, DATA) for f in DATA.rglob("*") if f.is_file() and f.parent != DATA}
    for text in commands - {"written by hand"}:
        parser().parse_args(text.split()[1:])


@pytest.mark.parametrize("folder", sorted((DATA / "warm_starts").iterdir()), ids=lambda f: f.name)
def test_a_stored_warm_start_loads_and_was_within_its_band(folder):
    assert TARGET[0] <= note_of(folder)["pass_rate"] <= TARGET[1]
    load_policy(folder)


@pytest.mark.parametrize("name", MATRIX)
def test_an_experiment_of_the_matrix_can_be_run_and_its_recorded_curves_are_its_own(name):
    entry = MATRIX[name]
    named_task(entry["task"])
    labels = {parse_arm(text, **entry.get("defaults", {}))[0] for text in entry["arms"]}
    assert len(labels) == len(entry["arms"])
    assert entry["minutes"] > 0 and entry["chapters"] and entry["question"].endswith("?")
    for file in sorted((DATA / "curves" / name).glob("*.csv")):
        assert file.stem.rpartition("-seed")[0] in labels
        assert read_curve(file)["step"][-1] == entry["steps"]


def test_no_recorded_curve_is_outside_the_matrix():
    folders = {f.name for f in (DATA / "curves").iterdir() if f.is_dir()}
    assert folders <= set(MATRIX)


def test_writing_the_manifest_names_what_nobody_can_make(tmp_path):
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "x.csv").write_text("1")
    with pytest.raises(ValueError, match="nothing says how data/secrets is made"):
        write_manifest(tmp_path)
    (tmp_path / "README.md").write_text("no marks")
    with pytest.raises(ValueError, match="lacks the marks"):
        write_manifest(Path(tmp_path))
