"""Experiments: the CSV is a function of the run alone, whatever was killed, interrupted or run side by side."""

import csv
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_lab.concepts.group_advantage import group_advantage
from grpo_lab.engine import experiment as module
from grpo_lab.engine import train as train_module
from grpo_lab.engine.arms import Arm
from grpo_lab.engine.experiment import ExperimentError, Job, curve_csv, experiment, read_curve
from grpo_lab.engine.metrics import GLOSSARY
from grpo_lab.engine.recipes import CriticPlan, grpo, ppo
from grpo_lab.engine.tasks import Online, Sort, Tree
from grpo_lab.engine.warm_start import build_policy

REPOSITORY = Path(__file__).resolve().parents[2]
# A task of fixed length starts from random weights: nothing has to be warmed up first.
SMALL = {"preset": "XS", "batch_size": 16, "lr": 1e-3}
TEXT = "stale=grpo:lag=2,group_size=4"
STEPS = 110


@pytest.fixture(autouse=True)
def workers_find_the_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))


def in_processes(out, *, arms=(TEXT,), seeds=(0, 1), processes=2, steps=STEPS, **more):
    return experiment(
        list(arms), task="tree", seeds=seeds, steps=steps, out=out, processes=processes, eval_every=50,
        defaults=SMALL, quiet=True, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Two seeds side by side in their processes, undisturbed. A process imports for seconds, so few tests start one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        return in_processes(tmp_path_factory.mktemp("reference"))


def recipe_for_tests(**keywords):
    return grpo(group_size=4, **keywords)


def here(out, *, arms=None, task=None, seeds=(0,), steps=12, eval_every=4):
    arms = arms or {"mine": Arm(recipe_for_tests(), **SMALL)}
    return experiment(
        arms, task=task or Tree(), seeds=seeds, steps=steps, out=out, eval_every=eval_every, quiet=True
    )


@pytest.fixture
def small_evaluation(monkeypatch):
    """50 held-out prompts instead of 2,000."""
    whole = train_module.evaluate
    monkeypatch.setattr(train_module, "evaluate", lambda *a, **k: whole(*a, **{**k, "n": 50}))


def facts_of(path: Path) -> dict:
    return json.loads(path.with_suffix(".json").read_text())


# ---- what is recorded


def test_the_files_are_named_by_label_and_seed_and_returned_in_order(reference):
    assert [p.name for p in reference] == ["stale-seed0.csv", "stale-seed1.csv"]
    folder = reference[0].parent
    assert sorted(p.name for p in folder.iterdir()) == [
        "stale-seed0.csv", "stale-seed0.json", "stale-seed1.csv", "stale-seed1.json"
    ]  # fmt: skip
    assert reference[0].read_bytes() != reference[1].read_bytes()


def test_columns_begin_with_step_and_hold_no_times(reference):
    header = reference[0].read_text().splitlines()[0].split(",")
    assert header[0] == "step"
    assert {
        "reward/mean",
        "eval/accuracy",
        "eval/greedy_accuracy",
        "rollout/staleness",
        "optim/grad_norm",
    } <= set(header)
    assert set(header) <= set(GLOSSARY) and not any(name.startswith("time/") for name in header)


def test_the_first_steps_every_tenth_and_every_evaluation_are_recorded(reference):
    curve = read_curve(reference[0])
    assert curve["step"] == [0, 1, 2, 3, 4, 5, *range(10, STEPS + 1, 10)]
    evaluated = [s for s, a in zip(curve["step"], curve["eval/accuracy"], strict=True) if a == a]
    assert evaluated == [0, 50, 100, STEPS]
    greedy = [s for s, a in zip(curve["step"], curve["eval/greedy_accuracy"], strict=True) if a == a]
    assert greedy == [STEPS]
    assert curve["rollout/staleness"][-1] == 2.0


def test_numbers_have_five_digits_and_lines_end_alike_everywhere(reference):
    data = reference[0].read_bytes()
    assert b"\r" not in data and data.endswith(b"\n")
    cells = [cell for row in csv.reader(data.decode().splitlines()[1:]) for cell in row if cell]
    digits = [len(c.split("e")[0].replace(".", "").replace("-", "").lstrip("0")) for c in cells if "." in c]
    assert max(digits) == 5


def test_the_note_has_command_versions_machine_and_seconds(reference):
    note = facts_of(reference[1])
    assert set(note["versions"]) == {"grpo_lab", "torch", "transformers", "python"}
    assert note["seconds"] > 0 and note["seconds_rollout"] > 0 and note["seconds_train"] > 0
    assert note["run"] == {
        "arm": "grpo:lag=2,group_size=4", "defaults": SMALL, "task": "tree", "seed": 1, "steps": STEPS, "eval_every": 50
    }  # fmt: skip
    assert note["command"] == (
        "grpo-lab run stale=grpo:lag=2,group_size=4 --task tree --seeds 1-1 --steps 110 --eval-every 50 "
        "--preset XS --batch-size 16 --lr 0.001 --out OUT"
    )
    assert str(reference[0].parent) not in json.dumps(note)


def test_the_noted_command_is_one_that_the_command_line_takes_for_the_same_run(reference, tmp_path):
    from grpo_lab import cli

    words = facts_of(reference[1])["command"].split()
    arguments = cli.parser().parse_args(words[1:])
    given = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "experiment", lambda arms, **keywords: given.update(arms=arms, **keywords) or [])
        cli.run(arguments)
    assert given["arms"] == [TEXT] and given["seeds"] == [1] and given["steps"] == STEPS
    assert given["defaults"] == SMALL and given["task"] == "tree" and given["eval_every"] == 50


def test_a_batch_for_the_critic_alone_is_counted_and_not_listed(tmp_path, small_evaluation):
    arm = Arm(ppo(critic=CriticPlan(warmup=3), epochs=1, minibatches=2), **SMALL)
    (path,) = here(tmp_path, arms={"ppo": arm}, steps=4)
    curve = read_curve(path)
    assert curve["step"] == [0, 1, 2, 3, 4]
    assert curve["value/critic_only_steps"][1:] == [3, 3, 3, 3]
    assert curve["count/rollouts"][1] == 4 * 16


def test_rows_are_chosen_by_rule_and_not_by_how_often_they_were_saved():
    history = [{"step": 0, "eval/accuracy": 0.5}]
    history += [{"step": s, "optim/lr": 1e-3, "reward/mean": s / 7, "time/train": 1.0} for s in range(1, 34)]
    history[17]["eval/accuracy"] = 2 / 3
    lines = curve_csv(history).splitlines()
    assert lines[0] == "step,reward/mean,eval/accuracy,optim/lr"
    assert [int(line.split(",")[0]) for line in lines[1:]] == [0, 1, 2, 3, 4, 5, 10, 17, 20, 30, 33]
    assert lines[1] == "0,,0.5," and lines[8] == "17,2.4286,0.66667,0.001"


# ---- the same bytes


def worker_until(step: int, job: Job) -> subprocess.Popen:
    """A worker on this job that has reported this step."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "grpo_lab.engine.experiment", json.dumps(dataclasses.asdict(job))],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    while json.loads(worker.stdout.readline())["step"] < step:
        pass
    return worker


@dataclasses.dataclass
class Story:
    out: Path
    asked_to_stop: tuple[int, int]  # exit code, version in the checkpoint
    killed: tuple[int, int]
    errors: str


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A worker that is asked to stop; one that goes on, and is killed; then one behind an arm that fails."""
    out = tmp_path_factory.mktemp("killed")
    job = Job("stale", "grpo:lag=2,group_size=4", SMALL, "tree", 0, STEPS, 50, str(out))
    ends = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        for step, end in ((5, subprocess.Popen.terminate), (55, subprocess.Popen.kill)):
            worker = worker_until(step, job)
            end(worker)
            worker.communicate()
            assert not (out / "stale-seed0.csv").exists()
            saved = out / ".unfinished" / "stale-seed0" / "run.json"
            ends.append(
                (worker.returncode, json.loads(saved.read_text())["version"] if saved.exists() else 0)
            )
        broken = out / ".unfinished" / "bad-seed0"
        broken.mkdir()
        (broken / "run.json").write_text("{ not json")
        with pytest.raises(ExperimentError) as error:
            in_processes(out, arms=["bad=grpo", TEXT], seeds=[0], processes=1)
    return Story(out, *ends, str(error.value))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no way to ask a process to stop")
def test_a_worker_that_is_asked_to_stop_saves_first(story):
    code, version = story.asked_to_stop
    assert code == 130 and 5 <= version < 50


def test_a_run_that_was_stopped_killed_and_resumed_gives_the_same_bytes(reference, story):
    code, version = story.killed
    assert code not in (0, 130) and version in (50, 100)  # the checkpoints that it wrote on its way
    assert (story.out / "stale-seed0.csv").read_bytes() == reference[0].read_bytes()
    assert facts_of(story.out / "stale-seed0.csv")["run"] == facts_of(reference[0])["run"]
    assert [p.name for p in (story.out / ".unfinished").iterdir() if p.name.startswith("stale")] == []


def test_an_arm_that_fails_is_reported_and_the_others_are_recorded(story):
    """It can't read its checkpoint; the arm behind it has nothing to do with that."""
    head, line = story.errors.splitlines()
    assert head == "1 of 2 runs failed; the others are recorded:"
    assert line.startswith("  bad-seed0: ValueError: the checkpoint in ")
    assert "can't be read" in line and "delete it, and the run starts again" in line
    assert read_curve(story.out / "stale-seed0.csv")["step"][-1] == STEPS
    assert not (story.out / "bad-seed0.csv").exists()


def test_this_process_records_the_same_bytes_as_two_processes_side_by_side(reference, tmp_path):
    arm = Arm(recipe_for_tests(), lag=2, **SMALL)
    paths = here(tmp_path, arms={"stale": arm}, seeds=(0, 1), steps=STEPS, eval_every=50)
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in reference]


@pytest.mark.parametrize("hidden_in", ["step", "rollout", "evaluate"])
@pytest.mark.parametrize("at", [1, 5, 12])
def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path, monkeypatch, small_evaluation, hidden_in, at):
    """Ctrl-C before a step, in the middle of one (here: while the 5th batch is written), or in an evaluation."""
    arms = {"mine": Arm(recipe_for_tests(), lag=2, **SMALL)}
    (undisturbed,) = here(tmp_path / "a", arms=arms)
    whole, calls = getattr(train_module, hidden_in), []

    def interrupted(*args, **keywords):
        calls.append(keywords)
        if len(calls) == (at if hidden_in != "evaluate" else 1 + at // 4):  # evaluations: steps 0, 4, 8, 12
            raise KeyboardInterrupt
        return whole(*args, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(train_module, hidden_in, interrupted)
        with pytest.raises(KeyboardInterrupt):
            here(tmp_path / "b", arms=arms)
    assert (tmp_path / "b" / ".unfinished" / "mine-seed0" / "run.json").is_file()
    assert not (tmp_path / "b" / "mine-seed0.csv").exists()
    (resumed,) = here(tmp_path / "b", arms=arms)
    assert resumed.read_bytes() == undisturbed.read_bytes()
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["mine-seed0.csv", "mine-seed0.json"]


def interrupt_at(step: int, monkeypatch, out, **keywords) -> Path:
    """The checkpoint of a run that was interrupted before this step."""
    whole, calls = train_module.step, []

    def interrupted(*args, **more):
        calls.append(1)
        if len(calls) == step:
            raise KeyboardInterrupt
        return whole(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            here(out, **keywords)
    return out / ".unfinished" / "mine-seed0"


def test_a_kill_between_the_two_renames_of_a_save_loses_nothing(tmp_path, monkeypatch, small_evaluation):
    (undisturbed,) = here(tmp_path / "a")
    saved = interrupt_at(7, monkeypatch, tmp_path / "b")
    saved.rename(saved.with_name(saved.name + ".old"))
    saved.with_name(saved.name + ".new").mkdir()
    steps = []
    whole = train_module.step
    monkeypatch.setattr(
        train_module, "step", lambda run, *a, **k: steps.append(run.version) or whole(run, *a, **k)
    )
    (resumed,) = here(tmp_path / "b")
    assert steps == list(range(6, 12))
    assert resumed.read_bytes() == undisturbed.read_bytes()
    assert not (tmp_path / "b" / ".unfinished").exists()  # the leftovers are cleared away too


def test_another_recipe_does_not_go_on_from_the_first_ones_checkpoint(
    tmp_path, monkeypatch, small_evaluation
):
    other = {"mine": Arm(recipe_for_tests(), **{**SMALL, "lr": 5e-3})}
    (alone,) = here(tmp_path / "a", arms=other)
    interrupt_at(7, monkeypatch, tmp_path / "b")
    (after,) = here(tmp_path / "b", arms=other)
    assert after.read_bytes() == alone.read_bytes()


def test_seeds_of_an_online_task_do_not_use_up_each_others_prompts(tmp_path, monkeypatch, small_evaluation):
    monkeypatch.setattr(
        module, "warm_start", lambda task, preset, seed: build_policy(task, preset, seed=seed)
    )
    task = Online(Sort(3), flip_at=3)
    both = here(tmp_path / "both", task=task, seeds=(0, 1), steps=6)
    (alone,) = here(tmp_path / "alone", task=Online(Sort(3), flip_at=3), seeds=(1,), steps=6)
    assert both[1].read_bytes() == alone.read_bytes()
    assert task.state() == []


def test_online_prompts_are_each_seen_once_over_an_interrupt(tmp_path, monkeypatch, small_evaluation):
    monkeypatch.setattr(
        module, "warm_start", lambda task, preset, seed: build_policy(task, preset, seed=seed)
    )
    (undisturbed,) = here(tmp_path / "a", task=Online(Sort(3), flip_at=3))
    interrupt_at(7, monkeypatch, tmp_path / "b", task=Online(Sort(3), flip_at=3))
    (resumed,) = here(tmp_path / "b", task=Online(Sort(3), flip_at=3))
    assert resumed.read_bytes() == undisturbed.read_bytes()


# ---- functions of mine


def test_a_function_defined_here_runs_in_this_process(tmp_path, small_evaluation):
    calls = []

    def mine(rewards_B, group_size):
        calls.append(len(rewards_B))
        return group_advantage(rewards_B, group_size=group_size)

    arms = {
        "mine": Arm(recipe_for_tests(group_advantage=mine), **SMALL),
        "theirs": Arm(recipe_for_tests(), **SMALL),
    }
    mine_csv, theirs_csv = here(tmp_path, arms=arms, steps=4)
    assert calls == [16] * 4
    assert (mine_csv.name, theirs_csv.name) == ("mine-seed0.csv", "theirs-seed0.csv")
    assert mine_csv.read_bytes() == theirs_csv.read_bytes()
    assert facts_of(mine_csv)["command"] is None


# ---- what is there already


def test_a_finished_run_is_not_run_again(reference, monkeypatch):
    def no_worker(*_):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(module, "_Worker", no_worker)
    before = [p.stat().st_mtime_ns for p in reference]
    assert in_processes(reference[0].parent) == reference
    assert [p.stat().st_mtime_ns for p in reference] == before


@pytest.mark.parametrize(
    "change",
    [
        {"steps": STEPS + 1},
        {"arms": ["stale=grpo:lag=3,group_size=4"]},
        {"arms": ["stale=ppo:lag=2,group_size=4"]},
    ],
)
def test_another_run_under_the_same_name_is_refused_and_leaves_the_files(reference, change):
    before = reference[0].read_bytes()
    with pytest.raises(
        ValueError, match=r"stale-seed0.json is of another run \(.*take another --out or another label"
    ):
        in_processes(reference[0].parent, **change)
    assert reference[0].read_bytes() == before


def shifted(by):
    """Two recipes that differ in a number deep inside a learner's function."""

    def mine(rewards_B):
        return rewards_B - rewards_B.mean() + by

    return {"mine": Arm(recipe_for_tests(group_advantage=mine), **SMALL)}


def test_a_finished_run_in_this_process_is_kept_until_its_function_changes(
    tmp_path, small_evaluation, monkeypatch
):
    (path,) = here(tmp_path, arms=shifted(0.0), steps=2)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, "train", None)  # it isn't run again
        assert here(tmp_path, arms=shifted(0.0), steps=2) == [path]
    with pytest.raises(ValueError, match="is of another run"):
        here(tmp_path, arms=shifted(0.5), steps=2)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_note_that_cannot_be_read_is_named(tmp_path, content):
    (tmp_path / "stale-seed0.json").write_text(content)
    (tmp_path / "stale-seed0.csv").write_text("step\n0\n")
    with pytest.raises(ValueError, match="stale-seed0.json can't be read .* delete it"):
        in_processes(tmp_path, seeds=[0])


def test_a_curve_that_was_deleted_is_made_again(tmp_path, reference, monkeypatch):
    started = []
    monkeypatch.setattr(module, "_run_processes", lambda jobs, *_: started.extend(job.name for job in jobs))
    for source in (*reference, *(p.with_suffix(".json") for p in reference)):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / "stale-seed1.csv").unlink()
    in_processes(tmp_path)
    assert started == ["stale-seed1"]


def test_two_at_work_on_the_same_run_are_kept_apart(tmp_path, small_evaluation):
    from filelock import FileLock

    (tmp_path / ".unfinished").mkdir()
    with (
        FileLock(tmp_path / ".unfinished" / "mine-seed0.lock"),
        pytest.raises(ExperimentError, match="mine-seed0 is being run in .* by another process; wait for it"),
    ):
        here(tmp_path)
    assert here(tmp_path, steps=1)


def test_labels_with_dots_do_not_lock_each_other_out(tmp_path, small_evaluation):
    """While lr1.5 runs, lr1.7 runs too."""
    inner = []

    def mine(rewards_B, group_size):
        if not inner:
            inner.extend(here(tmp_path, arms={"lr1.7": Arm(recipe_for_tests(), **SMALL)}, steps=1))
        return group_advantage(rewards_B, group_size=group_size)

    (outer,) = here(tmp_path, arms={"lr1.5": Arm(recipe_for_tests(group_advantage=mine), **SMALL)}, steps=1)
    assert (outer.name, inner[0].name) == ("lr1.5-seed0.csv", "lr1.7-seed0.csv")
    assert outer.read_bytes() == inner[0].read_bytes()
    assert not (tmp_path / ".unfinished").exists()


# ---- what goes wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms": []}, "there is no arm; give at least one"),
        ({"seeds": []}, "there is no seed"),
        ({"seeds": [-1]}, "seed must be at least 0, got -1"),
        ({"seeds": [0.5]}, "seed must be a whole number"),
        ({"seeds": [1, 1]}, r"two runs would be called \['stale-seed1'\]: give each arm its own label"),
        ({"arms": ["grpo", "grpo:lag=1"]}, "two runs would be called"),
        ({"arms": ["grpo", "gropo"]}, "did you mean 'grpo'"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"processes": 0}, "processes must be at least 1"),
    ],
)
def test_bad_arguments_stop_everything_before_anything_runs(tmp_path, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        in_processes(tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def test_text_arms_want_a_task_name_and_arm_objects_a_task(tmp_path):
    with pytest.raises(ValueError, match="arms given as text need the task's name"):
        experiment(["grpo"], task=Tree(), seeds=[0], steps=1, out=tmp_path / "out")
    with pytest.raises(ValueError, match="arms given as objects need a Task object too"):
        experiment({"a": Arm(grpo())}, task="tree", seeds=[0], steps=1, out=tmp_path / "out")
    with pytest.raises(ValueError, match="there is no task 'chess'; the tasks are sort"):
        experiment(["grpo"], task="chess", seeds=[0], steps=1, out=tmp_path / "out")
    with pytest.raises(ValueError, match="eval_every must be at least 1"):
        experiment(["grpo"], task="tree", seeds=[0], steps=1, out=tmp_path / "out", eval_every=0)
    with pytest.raises(ValueError, match="a seed stands twice"):
        experiment({"a": Arm(grpo())}, task=Tree(), seeds=[2, 2], steps=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_worker_that_dies_without_a_word_is_reported_with_its_exit_code(tmp_path, monkeypatch):
    silent = subprocess.Popen
    monkeypatch.setattr(
        module.subprocess,
        "Popen",
        lambda command, **k: silent([sys.executable, "-c", "raise SystemExit(7)"], **k),
    )
    with pytest.raises(
        ExperimentError, match=r"2 of 2 runs failed.*\n  stale-seed0: ended without a word, exit code 7"
    ):
        in_processes(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "run.safetensors", "policy/model.safetensors"])
def test_a_corrupt_checkpoint_says_which_folder_to_delete(tmp_path, monkeypatch, small_evaluation, name):
    saved = interrupt_at(3, monkeypatch, tmp_path)
    damaged = (saved / name).read_bytes()
    (saved / name).write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(ValueError, match=r"mine-seed0.* can't be read .* delete"):
        here(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            ValueError, match="the folder .* for the curves can't be made .* take another --out"
        ):
            in_processes(out)
        with pytest.raises(ValueError, match="the folder .* for the curves can't be made"):
            here(out)


# ---- reading curves


def test_a_curve_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no recorded curve .*nothing.csv"):
        read_curve(tmp_path / "nothing.csv")
    with pytest.raises(FileNotFoundError, match="there is no recorded curve"):
        read_curve(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"reward/mean,step\n1,2\n",
        b"step,reward/mean\n1\n",
        b"step\nthree\n",
        b"\xff\xfe\x00",
        b"step\n1\x002\n",
    ],
)
def test_what_is_no_curve_is_named(tmp_path, content):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"x.csv is no recorded curve"):
        read_curve(tmp_path / "x.csv")


def test_an_empty_cell_is_nan(tmp_path):
    (tmp_path / "x.csv").write_text("step,eval/accuracy\n0,0.5\n1,\n")
    curve = read_curve(tmp_path / "x.csv")
    assert curve["step"] == [0.0, 1.0] and curve["eval/accuracy"][0] == 0.5
    assert curve["eval/accuracy"][1] != curve["eval/accuracy"][1]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    module.write_whole(path, "old\n")
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            module.write_whole(path, "new\n")
    assert path.read_text() == "old\n" and [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_a_recorded_curve_is_not_taken_for_that_of_another_judge(tmp_path, small_evaluation):
    here(tmp_path, task=Tree((0.0, 0.0, 0.0, 1.0)), steps=2)
    with pytest.raises(ValueError, match="is of another run"):
        here(tmp_path, task=Tree((1.0, 1.0, 1.0, 1.0)), steps=2)


def test_arms_that_are_no_arms_and_labels_that_are_no_file_names_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"must be an Arm, as in Arm\(grpo\(\)\)"):
        here(tmp_path, arms={"mine": grpo()})
    with pytest.raises(ValueError, match="'a/b' becomes a file name"):
        here(tmp_path, arms={"a/b": Arm(recipe_for_tests(), **SMALL)})
