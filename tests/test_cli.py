"""The command line: what works prints what it did; what can't is one clear line on stderr and exit code 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_lab import __version__, cli
from grpo_lab.cli import main, seeds_of, summary
from grpo_lab.engine import experiment as experiment_module
from grpo_lab.engine import warm_start as warm_start_module
from grpo_lab.engine.metrics import GLOSSARY
from grpo_lab.engine.policy import build_policy
from grpo_lab.engine.tasks import Sort

REPOSITORY = Path(__file__).resolve().parents[1]


def shell(*words, **more) -> subprocess.CompletedProcess:
    """As a user runs it: another process, another folder."""
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "grpo_lab.cli", *words],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}, **more,
    )  # fmt: skip


@pytest.fixture
def in_this_process(monkeypatch):
    """Workers cost seconds of imports: here a job runs where it was asked for."""

    def run(jobs, processes, quiet):
        for job in jobs:
            experiment_module.work(job)

    monkeypatch.setattr(experiment_module, "_run_processes", run)


def refused(capsys, *words) -> str:
    """The one line that a wrong command gets."""
    try:
        code = main(list(words))
    except SystemExit as stop:  # argparse's own
        code = stop.code
    output, errors = capsys.readouterr()
    assert code == 2 and output == "" and "Traceback" not in errors
    lines = [line for line in errors.splitlines() if not line.startswith((" ", "usage:"))]
    assert len(lines) == 1 and lines[0].startswith("grpo-lab")
    return lines[0]


# ---- run


def test_run_in_a_shell_records_a_curve_and_prints_a_summary(tmp_path):
    words = (
        "run a=grpo:lag=1 --task bandit --seeds 4-4 --steps 3 --preset XS --batch-size 16 --out runs".split()
    )
    done = shell(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["a-seed4.csv", "a-seed4.json"]
    head, line = done.stdout.splitlines()
    assert head.split() == ["run", "eval/accuracy", "first", "lowest", "last"]
    assert line.split()[0] == "a-seed4" and len(line.split()) == 4
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr


def test_run_hands_everything_on(tmp_path, monkeypatch, capsys):
    given = {}
    monkeypatch.setattr(cli, "experiment", lambda arms, **keywords: given.update(arms=arms, **keywords) or [])
    words = "run grpo b=ppo:lag=2 --task sort8 --seeds 100-102 --steps 7 --eval-every 3 --processes 4 --lag 8".split()
    words += "--lr 1.5e-4 --preset M --batch-size 64 --temperature 0.9 --max-grad-norm none --out".split()
    assert main([*words, str(tmp_path)]) == 0
    assert given == {
        "arms": ["grpo", "b=ppo:lag=2"], "task": "sort8", "seeds": [100, 101, 102], "steps": 7, "eval_every": 3,
        "processes": 4, "out": str(tmp_path),
        "defaults": {
            "lag": 8, "lr": 1.5e-4, "preset": "M", "batch_size": 64, "temperature": 0.9, "max_grad_norm": None
        },
    }  # fmt: skip
    given.clear()
    assert main(["run", "grpo"]) == 0
    assert given == {
        "arms": ["grpo"], "task": "sort", "seeds": [0, 1, 2], "steps": 300, "eval_every": 20, "processes": 2,
        "out": "runs", "defaults": {},
    }  # fmt: skip
    capsys.readouterr()


def test_run_again_leaves_what_is_there(tmp_path, in_this_process, capsys):
    words = f"run grpo --task tree --seeds 2 --steps 2 --preset XS --batch-size 16 --out {tmp_path}".split()
    assert main(words) == 0
    first = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split()[0] for line in first] == ["run", "grpo-seed0", "grpo-seed1"]
    before = (tmp_path / "grpo-seed0.csv").stat().st_mtime_ns
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == first
    assert (tmp_path / "grpo-seed0.csv").stat().st_mtime_ns == before


RUN = ["run", "--task", "tree", "--steps", "1", "--preset", "XS", "--batch-size", "16"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "gropo"],
            "grpo-lab: there is no arm 'gropo' (did you mean 'grpo'?); the arms are reinforce",
        ),
        (["run", "grpo", "--task", "chess"], "grpo-lab: there is no task 'chess'; the tasks are sort, sort6"),
        (["run", "grpo:lagg=3"], "has no key ['lagg'] (did you mean 'lag'?); it knows lag, lr"),
        (["run", "grpo:aggregate=mean"], "'mean' is no number, no preset, and no concept's function"),
        (["run", "grpo", "--lag", "-1"], "lag counts policy updates: a whole number of at least 0, not -1"),
        (["run", "grpo:lag=-1"], "lag counts policy updates: a whole number of at least 0, not -1"),
        (["run", "grpo", "--lag", "much"], "grpo-lab: 'much' is no number, no preset"),
        (["run", "grpo", "--lr", "-1"], "lr must lie in"),
        (["run", "grpo", "--preset", "XXL"], "'XXL' is no number, no preset"),
        (["run", "grpo", "--batch-size", "12"], "a batch of 12 answers can't be cut into groups of 8"),
        (["run", "grpo:eps_low=1.2"], "eps_low must lie in [0, 1], got 1.2"),
        (["run", "grpo:group_size=1"], "group_size is 1: every advantage would be 0"),
        (["run", "ppo:critic=none"], "ppo needs a critic"),
        (["run", "grpo", "--temperature", "0"], "temperature must lie in"),
        (["run", "grpo", "--seeds", "x"], "grpo-lab: --seeds takes a count (3) or a range (0-9), not 'x'"),
        (
            ["run", "grpo", "--seeds", "5-2"],
            "--seeds takes a count of at least 1 or a range upwards, not '5-2'",
        ),
        (["run", "grpo", "--steps", "-1"], "steps must be at least 0, got -1"),
        (
            ["run", "grpo", "--steps", "many"],
            "grpo-lab run: error: argument --steps: invalid int value: 'many'",
        ),
        (["run", "grpo", "--eval-every", "0"], "eval_every must be at least 1, got 0"),
        (["run", "grpo", "--processes", "0"], "processes must be at least 1, got 0"),
        (["run", "grpo", "grpo:lag=1"], "two runs would be called"),
        (["run", "a/b=grpo"], "the label 'a/b' becomes a file name"),
        (["run"], "grpo-lab run: error: the following arguments are required: ARM"),
        ([], "grpo-lab: error: the following arguments are required: command"),
        (["fly"], "grpo-lab: error: argument command: invalid choice: 'fly'"),
        (["glossary", "reward/median"], "grpo-lab: there is no metric 'reward/median'; the metrics are step"),
        (["warm-start", "--task", "chess"], "there is no task 'chess'"),
        (["warm-start", "--preset", "XXL", "--seeds", "1"], "there is no preset 'XXL'"),
        (["warm-start", "--task", "tree"], "tree starts from random weights: there is no warm start to make"),
    ],
)
def test_a_slip_is_one_clear_line_and_nothing_is_written(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_one_clear_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    line = refused(capsys, *RUN, "--out", str(tmp_path / "file" / "runs"), "grpo")
    assert "can't be made" in line and "take another --out" in line


def test_any_other_trouble_with_a_file_is_one_clear_line(capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "runs/x.csv")

    monkeypatch.setattr(cli, "experiment", full)
    assert refused(capsys, "run", "grpo") == "grpo-lab: [Errno 28] No space left on device: 'runs/x.csv'"


def test_another_run_of_the_same_name_is_one_clear_line(capsys, tmp_path, in_this_process):
    assert main([*RUN, "--seeds", "1", "--out", str(tmp_path), "grpo"]) == 0
    capsys.readouterr()
    line = refused(capsys, *RUN, "--seeds", "1", "--out", str(tmp_path), "grpo=grpo_recomputed")
    assert "grpo-seed0.json is of another run" in line and "take another --out or another label" in line


def test_ctrl_c_is_130_and_says_how_to_go_on(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "experiment", interrupted)
    assert main(["run", "grpo"]) == 130
    assert capsys.readouterr().err == "interrupted; the same command goes on where it stopped\n"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1", [0]), ("3", [0, 1, 2]), ("0-0", [0]), ("4-4", [4]), ("100-102", [100, 101, 102])],
)
def test_seeds_are_a_count_or_a_range(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "-1", "-3", "3-", "2-1", "1.5", "a-b", "1-2-3", "0,1"])
def test_other_seeds_are_refused(text):
    with pytest.raises(ValueError, match="--seeds takes a count"):
        seeds_of(text)


def test_a_summary_has_first_lowest_and_last_and_skips_what_was_never_evaluated(tmp_path):
    (tmp_path / "a-seed0.csv").write_text("step,eval/accuracy\n0,0.5\n1,\n2,0.25\n3,0.75\n")
    (tmp_path / "b-seed0.csv").write_text("step,reward/mean\n0,0.5\n")
    lines = summary([tmp_path / "a-seed0.csv", tmp_path / "b-seed0.csv"]).splitlines()
    assert [line.split() for line in lines[1:]] == [["a-seed0", "0.500", "0.250", "0.750"]]


# ---- the others


def test_arms_lists_every_recipe_with_its_first_sentence(capsys):
    assert main(["arms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["reinforce", "ppo", "grpo", "grpo_recomputed"]
    assert "no critic" in lines[2] and lines[-1].startswith("keys of every arm: lag, lr, preset")


def test_glossary_prints_all_or_the_metrics_asked_for(capsys):
    assert main(["glossary"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(GLOSSARY)
    assert main(["glossary", "policy/ess"]) == 0
    assert capsys.readouterr().out.startswith("policy/ess ")


def test_version_and_help(capsys):
    for words, wanted in (
        (["--version"], __version__),
        (["--help"], "reproduce"),
        (["run", "--help"], "--max-grad-norm"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0 and wanted in capsys.readouterr().out


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data/ of our own, and a cache of our own."""
    for module in (cli, warm_start_module):
        monkeypatch.setattr(module, "DATA", tmp_path / "data")
    monkeypatch.setattr(cli, "MATRIX", tmp_path / "data" / "curves" / "experiments.toml")
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path / "home"))
    (tmp_path / "data" / "curves").mkdir(parents=True)
    return tmp_path / "data"


def stored_warm_start(data: Path) -> Path:
    folder = data / "warm_starts" / "sort1-XS-seed0"
    build_policy(Sort(1), "XS").save(folder, {"seed": 0, "pass_rate": 0.45})
    return folder


def test_doctor_is_content_when_all_is_there(capsys, data):
    stored_warm_start(data)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    text = "\n".join(lines)
    assert all(
        word in text
        for word in (
            "Python 3.",
            "torch ",
            "training runs on",
            str(data.parent / "home"),
            "1 warm starts in data/",
        )
    )
    assert [p.name for p in (data.parent / "home").iterdir()] == []  # its probe is gone


@pytest.mark.parametrize(
    ("spoil", "problem", "mend"),
    [
        (lambda data, _: (data / "warm_starts" / "sort1-XS-seed0" / "grpo_lab.json").write_text("{"),
         "sort1-XS-seed0 can't be read", "git checkout data/"),
        (lambda data, _: (data / "warm_starts" / "sort1-XS-seed0" / "model.safetensors").unlink(),
         "0 warm starts in data/", "grpo-lab warm-start"),
        (lambda data, _: (data / "warm_starts" / "sort1-XS-seed0" / "model.safetensors").write_bytes(b"half"),
         "sort1-XS-seed0 can't be read", "git checkout data/"),
        (lambda data, _: (data.parent / "home").write_text("a file"), "can't be written", "set GRPO_LAB_HOME"),
        (lambda _, patch: patch.setattr(cli.importlib.metadata, "version", missing),
         "torch is not installed", "make setup"),
    ],
)  # fmt: skip
def test_doctor_says_what_is_wrong_and_how_to_mend_it(capsys, data, monkeypatch, spoil, problem, mend):
    stored_warm_start(data)
    spoil(data, monkeypatch)
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("PROBLEM") and problem in line]
    assert mend in lines[at + 1]


def missing(name: str):
    raise cli.importlib.metadata.PackageNotFoundError(name)


def test_warm_start_finds_what_is_stored_says_its_pass_rate_and_copies_it(
    capsys, data, tmp_path, monkeypatch
):
    folder = stored_warm_start(data)
    monkeypatch.setattr(cli, "named_task", lambda name: Sort(1))
    assert main(["warm-start", "--preset", "XS", "--seeds", "1", "--out", str(tmp_path / "copy")]) == 0
    assert capsys.readouterr().out == "sort1 XS seed 0: pass rate 0.45\n"
    copied = tmp_path / "copy" / "sort1-XS-seed0"
    assert (copied / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert json.loads((copied / "grpo_lab.json").read_text()) == {
        "end_ids": [1],
        "seed": 0,
        "pass_rate": 0.45,
    }


def test_corrupt_stored_weights_are_one_clear_line(capsys, data, monkeypatch):
    weights = stored_warm_start(data) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    monkeypatch.setattr(cli, "named_task", lambda name: Sort(1))
    line = refused(capsys, "warm-start", "--preset", "XS", "--seeds", "1")
    assert "sort1-XS-seed0 can't be read" in line and "delete the folder" in line


# ---- reproduce

TABLE = """
[little]
arms = ["a=grpo", "b=grpo_recomputed:lag=1"]
task = "tree"
seeds = "1"
steps = 2
minutes = 1
defaults = { preset = "XS", batch_size = 16 }

[other]
arms = ["reinforce"]
task = "bandit"
seeds = "3-3"
steps = 1
minutes = 2
defaults = { preset = "XS", batch_size = 16 }
"""


def test_reproduce_records_the_matrix_and_leaves_what_is_there(capsys, data, tmp_path, in_this_process):
    cli.MATRIX.write_text(TABLE)
    out = tmp_path / "again"
    assert main(["reproduce", "little", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("little: about 1 minutes on two cores")
    assert sorted(p.name for p in out.iterdir()) == ["little"]
    names = ["a-seed0.csv", "a-seed0.json", "b-seed0.csv", "b-seed0.json"]
    assert sorted(p.name for p in (out / "little").iterdir()) == names
    before = {p: p.stat().st_mtime_ns for p in (out / "little").iterdir()}
    assert main(["reproduce", "--out", str(out)]) == 0
    assert {p: p.stat().st_mtime_ns for p in (out / "little").iterdir()} == before
    assert sorted(p.name for p in (out / "other").iterdir()) == [
        "reinforce-seed3.csv",
        "reinforce-seed3.json",
    ]
    assert "other: about 2 minutes" in capsys.readouterr().out


def test_reproduce_of_an_unknown_experiment_lists_the_known_ones(capsys, data):
    cli.MATRIX.write_text(TABLE)
    assert "there is no experiment ['H99']; experiments.toml has little, other" in refused(
        capsys, "reproduce", "H99"
    )


def test_reproduce_of_a_broken_matrix_is_one_clear_line(capsys, data):
    cli.MATRIX.write_text("[little\n")
    assert "grpo-lab:" in refused(capsys, "reproduce")


def test_reproduce_without_a_matrix_says_so(capsys, data):
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.endswith("experiments.toml lists no experiment\n")
    assert "experiments.toml has none yet" in refused(capsys, "reproduce", "little")
