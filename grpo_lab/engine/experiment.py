"""Experiments: seeds x arms, each a process of its own, recorded as CSV, and resumable.

    OUT/<label>-seed<k>.csv    metrics of the steps 0 to 5, of every 10th, and of every evaluation; 5 digits; no times
    OUT/<label>-seed<k>.json   the command, versions, kind of machine, seconds
    OUT/.unfinished/           checkpoints of what isn't done; gone when it is

The CSV is a function of the run's history alone, so a run that was killed and resumed leaves the same bytes.
"""

import contextlib
import copy
import csv
import dataclasses
import hashlib
import io
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from grpo_lab import __version__
from grpo_lab.engine.arms import Arm, parse_arm, require_label
from grpo_lab.engine.checkpoint import load_run, read_note, save_run
from grpo_lab.engine.metrics import GLOSSARY
from grpo_lab.engine.recipes import fingerprint
from grpo_lab.engine.staleness import lag
from grpo_lab.engine.tasks import Task, named_task
from grpo_lab.engine.train import Run, start, train
from grpo_lab.engine.warm_start import warm_start
from grpo_lab.guard import require, require_count

CHECKPOINT_EVERY = 50
RECORD_EVERY = 10
FIRST = 5  # the first steps are all recorded: a test runs them again


class ExperimentError(RuntimeError):
    """Some runs of an experiment failed; the others are recorded."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One arm with one seed. As JSON it is what a worker process gets, and what says whether a file is its own."""

    label: str
    arm: str  # as text
    defaults: dict[str, Any]
    task: str
    seed: int
    steps: int
    eval_every: int
    out: str

    @property
    def name(self) -> str:
        return f"{self.label}-seed{self.seed}"

    def command(self) -> str:
        """What makes this run again; OUT is left to whoever does."""
        flags = [
            word
            for key, value in self.defaults.items()
            for word in (f"--{key.replace('_', '-')}", str(value))
        ]
        words = ["grpo-lab", "run", f"{self.label}={self.arm}", "--task", self.task]
        words += ["--seeds", f"{self.seed}-{self.seed}", "--steps", str(self.steps)]
        words += ["--eval-every", str(self.eval_every), *flags, "--out", "OUT"]
        return shlex.join(words)

    def identity(self) -> dict[str, Any]:
        """What the recorded numbers depend on."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in ("out", "label")}


def experiment(
    arms: Mapping[str, Arm] | Sequence[str],
    *,
    task: Task | str,
    seeds: Sequence[int],
    steps: int,
    out: Path | str,
    processes: int = 2,
    eval_every: int = 20,
    defaults: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> list[Path]:
    """Run every arm with every seed; returns the CSV files, in the order arms x seeds.

    arms       text as on the command line (`parse_arm`), each run in a process; or {label: Arm}, whose functions may
               live in a notebook, run in this process one after the other
    task       a name (for text arms), or a Task (for Arm objects)
    defaults   keys for arms that don't set them (lag, lr, ...)
    Raises: ValueError before anything runs; ExperimentError at the end, when all that can be done is done.
    Ctrl-C stops all; the same call goes on where they stopped.
    """
    out = Path(out)
    seeds = list(seeds)
    require(len(seeds) > 0, "there is no seed; give seeds=[0, 1, 2], say")
    for seed in seeds:
        require_count("seed", seed, 0)
    require(len(arms) > 0, "there is no arm; give at least one, 'grpo' say")
    require_count("steps", steps, 0)
    require_count("eval_every", eval_every)
    require_count("processes", processes)
    if isinstance(arms, Mapping):
        require(not isinstance(task, str), "arms given as objects need a Task object too: task=Sort()")
        require(len(set(seeds)) == len(seeds), f"a seed stands twice in {seeds}")
        for label, arm in arms.items():
            require(isinstance(arm, Arm), f"arm {label!r} must be an Arm, as in Arm(grpo()), not {arm!r}")
            require_label(label)
        _make_folder(out)
        return [
            _run_here(label, arm, task, s, steps, eval_every, out)
            for label, arm in arms.items()
            for s in seeds
        ]
    require(isinstance(task, str), "arms given as text need the task's name: task='sort'")
    named_task(task)
    defaults = dict(defaults or {})
    jobs = []
    for text in arms:
        label, _ = parse_arm(text, **defaults)
        jobs += [Job(label, _spec(text), defaults, task, seed, steps, eval_every, str(out)) for seed in seeds]
    names = [job.name for job in jobs]
    twice = sorted({n for n in names if names.count(n) > 1})
    require(
        not twice,
        f"two runs would be called {twice[:1]}: give each arm its own label, as in LABEL=ARM:key=value",
    )
    _make_folder(out)
    waiting = [job for job in jobs if not _is_done(out / f"{job.name}.json", job.identity())]
    _run_processes(waiting, processes, quiet)
    return [out / f"{name}.csv" for name in names]


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the folder {out} for the curves can't be made ({error}); take another --out"
        ) from error


def _spec(text: str) -> str:
    """The arm's text without its label."""
    head, colon, tail = text.partition(":")
    return head.rpartition("=")[2] + colon + tail


def _is_done(note: Path, identity: dict[str, Any]) -> bool:
    """Whether this very run is recorded already. Raises ValueError where another one has the name."""
    if not note.is_file() or not note.with_suffix(".csv").is_file():
        return False
    try:
        recorded = json.loads(note.read_text(encoding="utf-8"))["run"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{note} can't be read ({error!r}); delete it, and the run is made again") from error
    require(
        recorded == identity,
        f"{note} is of another run ({recorded}); take another --out or another label, or delete it to run this one",
    )
    return True


def _run_processes(jobs: list[Job], processes: int, quiet: bool) -> None:
    todo, running, failed = list(jobs), {}, []
    bar = tqdm(
        total=sum(job.steps for job in jobs),
        unit="step",
        disable=True if quiet or not jobs else None,  # None: no bar into a file
        mininterval=1.0,
    )
    try:
        while todo or running:
            while todo and len(running) < processes:
                job = todo.pop(0)
                running[job.name] = _Worker(job, bar)
            for name, worker in list(running.items()):
                if worker.process.poll() is None:
                    continue
                worker.finish()
                if worker.process.returncode != 0:
                    failed.append((name, worker.last_words()))
                del running[name]
            time.sleep(0.1)
    except BaseException:
        for worker in running.values():
            worker.process.terminate()  # a worker that got Ctrl-C itself is saving already; SIGTERM asks the others to
        for worker in running.values():
            worker.finish()
        raise
    finally:
        bar.close()
    if failed:
        texts = "\n".join(f"  {name}: {words}" for name, words in failed)
        raise ExperimentError(f"{len(failed)} of {len(jobs)} runs failed; the others are recorded:\n{texts}")


class _Worker:
    """A run in a process of its own; its standard output is one JSON line a step."""

    def __init__(self, job: Job, bar):
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grpo_lab.engine.experiment", json.dumps(dataclasses.asdict(job))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads},
        )
        self.job, self.bar, self.errors = job, bar, ""
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self._follow, self._collect)]
        for thread in self.threads:
            thread.start()

    def _follow(self) -> None:
        done = 0
        for line in self.process.stdout:
            step = json.loads(line)["step"]
            self.bar.set_postfix_str(f"{self.job.name} {step}/{self.job.steps}", refresh=False)
            self.bar.update(step - done)
            done = step

    def _collect(self) -> None:
        self.errors = self.process.stderr.read()

    def last_words(self) -> str:
        """Why it failed: the last line of its traceback, or how it ended where there is none."""
        lines = self.errors.strip().splitlines()
        code = self.process.returncode
        return lines[-1] if lines else f"ended without a word, exit code {code} (negative: the signal)"

    def finish(self) -> None:
        self.process.wait()
        for thread in self.threads:
            thread.join()
        self.process.stdout.close()
        self.process.stderr.close()


def work(job: Job) -> None:
    """The worker: run the job from where it stands, and record it. Prints one JSON line a step."""
    torch.set_num_threads(1)
    _, arm = parse_arm(job.arm, **job.defaults)
    task = named_task(job.task)
    _record(
        job.name,
        job.identity(),
        arm,
        task,
        seed=job.seed,
        steps=job.steps,
        eval_every=job.eval_every,
        out=Path(job.out),
        command=job.command(),
        report=True,
    )


def _run_here(label: str, arm: Arm, task: Task, seed: int, steps: int, eval_every: int, out: Path) -> Path:
    numbers = {k: v for k, v in dataclasses.asdict(arm).items() if k not in ("recipe", "text")}
    # The functions themselves are part of what a recorded curve depends on: a learner edits them between two calls.
    recipe = hashlib.sha256(fingerprint(arm.recipe).encode()).hexdigest()[:16]
    identity = {
        "arm": arm.recipe.name,
        "recipe": recipe,
        **numbers,
        "task": task.name,
        "judge": hashlib.sha256(fingerprint(task).encode()).hexdigest()[:16],
        "seed": seed,
        "steps": steps,
    }
    identity["eval_every"] = eval_every
    name = f"{label}-seed{seed}"
    if _is_done(out / f"{name}.json", identity):
        return out / f"{name}.csv"
    if hasattr(task, "state"):
        task = copy.deepcopy(task)  # each run has its own: what one has used up is fresh for the next
    return _record(name, identity, arm, task, seed=seed, steps=steps, eval_every=eval_every, out=out)


def start_arm(arm: Arm, task: Task, *, seed: int, device: str = "auto") -> Run:
    """The run of an arm at step 0: its warm start, and its numbers for `start`."""
    return start(
        warm_start(task, arm.preset, seed=seed),
        task,
        seed=seed,
        lr=arm.lr,
        batch_size=arm.batch_size,
        temperature=arm.temperature,
        max_grad_norm=arm.max_grad_norm,
        device=device,
    )


def _record(
    name: str,
    identity: dict[str, Any],
    arm: Arm,
    task: Task,
    *,
    seed: int,
    steps: int,
    eval_every: int,
    out: Path,
    command: str | None = None,
    report: bool = False,
) -> Path:
    draft = out / ".unfinished" / name
    draft.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(draft.with_name(name + ".lock"))  # not with_suffix: a label may have dots
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ExperimentError(
            f"{name} is being run in {out} by another process; wait for it, or take another --out"
        ) from None
    begun = time.perf_counter()
    spent = 0.0
    with lock:
        unfinished = read_note(draft)
        if unfinished is not None and unfinished["run"] == identity:
            run, spent = load_run(draft, task), unfinished["seconds"]
        else:
            run = start_arm(arm, task, seed=seed)

        def save() -> None:
            save_run(run, draft, {"run": identity, "seconds": spent + time.perf_counter() - begun})

        try:
            for metrics in train(
                run.policy,
                task,
                arm.recipe,
                steps=steps,
                arrivals=lag(arm.lag),
                eval_every=eval_every,
                run=run,
            ):
                if report:
                    print(json.dumps({"step": metrics["step"]}), flush=True)
                if run.version % CHECKPOINT_EVERY == 0 and run.version > 0:
                    save()
        except KeyboardInterrupt:
            save()
            raise
        seconds = spent + time.perf_counter() - begun
        write_whole(out / f"{name}.csv", curve_csv(run.history))
        write_whole(out / f"{name}.json", json.dumps(_note(run, identity, command, seconds), indent=1) + "\n")
        for suffix in ("", ".new", ".old"):
            shutil.rmtree(draft.with_name(name + suffix), ignore_errors=True)
    Path(lock.lock_file).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: others are at work
        draft.parent.rmdir()
    return out / f"{name}.csv"


def _note(run: Run, identity: dict, command: str | None, seconds: float) -> dict[str, Any]:
    timed = [row for row in run.history if "time/train" in row]
    return {
        "run": identity,
        "command": command,
        "seconds": round(seconds, 1),
        "seconds_rollout": round(sum(row["time/rollout"] for row in timed), 1),
        "seconds_train": round(sum(row["time/train"] for row in timed), 1),
        "versions": {
            "grpo_lab": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "machine": f"{platform.system()} {platform.machine()}, {run.policy.device.type}",
    }


def curve_csv(history: Sequence[Mapping[str, Any]]) -> str:
    """The recorded rows of a run's history as CSV text. Times are left out: they differ from run to run."""
    last = history[-1]["step"] if history else 0
    rows = [
        row
        for i, row in enumerate(history)
        if (i == 0 or "optim/lr" in row)  # batches on which only the critic learned are counted, not listed
        and (
            row["step"] <= FIRST
            or row["step"] % RECORD_EVERY == 0
            or "eval/accuracy" in row
            or row["step"] == last
        )
    ]
    columns = [name for name in GLOSSARY if any(name in row for row in rows) and not name.startswith("time/")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_digits(row.get(name, "")) for name in columns])
    return text.getvalue()


def _digits(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def read_curve(path: Path | str) -> dict[str, list[float]]:
    """A recorded curve: column -> numbers, nan where a step has no such metric.

    Raises: FileNotFoundError; ValueError for a file that is no such table.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no recorded curve {path}")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        ok = bool(rows) and rows[0][:1] == ["step"] and all(len(row) == len(rows[0]) for row in rows)
        require(ok, "the first column must be 'step' and all rows as long as the first")
        return {
            name: [float(row[i]) if row[i] else float("nan") for row in rows[1:]]
            for i, name in enumerate(rows[0])
        }
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is no recorded curve: {error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write beside and rename: a reader sees the old file or the new one, never half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


if __name__ == "__main__":
    import signal

    def stop(*event) -> None:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # asked twice (Ctrl-C reaches all, then SIGTERM comes): save once
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    # By way of SIGINT, which is held back during a commit.
    signal.signal(signal.SIGTERM, lambda *event: signal.raise_signal(signal.SIGINT))
    try:
        work(Job(**json.loads(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
