"""The command `grpo-lab`: run arms, record experiments again, make warm starts, check the machine."""

import argparse
import importlib.metadata
import platform
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import torch

from grpo_lab import __version__
from grpo_lab.engine.arms import ARM_KEYS, parse_value, recipe_makers
from grpo_lab.engine.experiment import ExperimentError, experiment, read_curve
from grpo_lab.engine.manifest import write_manifest
from grpo_lab.engine.metrics import glossary
from grpo_lab.engine.policy import load_policy
from grpo_lab.engine.recording import FOLDER, record, recordings
from grpo_lab.engine.tasks import named_task
from grpo_lab.engine.warm_start import DATA, home, note_of, warm_start
from grpo_lab.guard import require

MATRIX = DATA / "curves" / "experiments.toml"


def seeds_of(text: str) -> list[int]:
    """ "3" is the seeds 0, 1, 2; "100-102" is 100, 101, 102; "4-4" is the seed 4."""
    first, dash, last = text.partition("-")
    try:
        low, high = (int(first), int(last)) if dash else (0, int(first) - 1)
    except ValueError:
        raise ValueError(f"--seeds takes a count (3) or a range (0-9), not {text!r}") from None
    require(0 <= low <= high, f"--seeds takes a count of at least 1 or a range upwards, not {text!r}")
    return list(range(low, high + 1))


def run(arguments: argparse.Namespace) -> None:
    given = {key: getattr(arguments, key) for key in ARM_KEYS}
    defaults = {key: parse_value(text) for key, text in given.items() if text is not None}
    paths = experiment(
        arguments.arms,
        task=arguments.task,
        seeds=seeds_of(arguments.seeds),
        steps=arguments.steps,
        out=arguments.out,
        processes=arguments.processes,
        eval_every=arguments.eval_every,
        defaults=defaults,
    )
    print(summary(paths))


def summary(paths: Sequence[Path]) -> str:
    """One line a curve: held-out accuracy at the start, its lowest, and at the last row."""
    lines = [f"{'run':32s} eval/accuracy  first   lowest     last"]
    for path in paths:
        accuracy = [a for a in read_curve(path).get("eval/accuracy", []) if a == a]
        if accuracy:
            lines.append(
                f"{path.stem:32s} {'':13s} {accuracy[0]:6.3f} {min(accuracy):8.3f} {accuracy[-1]:8.3f}"
            )
    return "\n".join(lines)


def reproduce(arguments: argparse.Namespace) -> None:
    """Run the experiments of the matrix again; what is recorded already is left alone (delete it to make it anew)."""
    matrix = tomllib.loads(MATRIX.read_text(encoding="utf-8")) if MATRIX.is_file() else {}
    names = arguments.names or list(matrix)
    unknown = [n for n in names if n not in matrix]
    require(
        not unknown, f"there is no experiment {unknown}; {MATRIX.name} has {', '.join(matrix) or 'none yet'}"
    )
    if not names:
        print(f"{MATRIX} lists no experiment")
    for name in names:
        entry = matrix[name]
        out = Path(arguments.out) / name
        print(f"{name}: about {entry['minutes']} minutes on two cores when nothing is there yet")
        paths = experiment(
            entry["arms"],
            task=entry["task"],
            seeds=seeds_of(entry["seeds"]),
            steps=entry["steps"],
            out=out,
            processes=arguments.processes,
            defaults=entry.get("defaults", {}),
        )
        print(summary(paths))


def warm_starts(arguments: argparse.Namespace) -> None:
    task = named_task(arguments.task)
    require(not task.fixed_length, f"{task.name} starts from random weights: there is no warm start to make")
    for seed in seeds_of(arguments.seeds):
        policy = warm_start(task, arguments.preset, seed=seed)
        folder = Path(policy.model.config.name_or_path or "")
        note = note_of(folder) if (folder / "grpo_lab.json").is_file() else {}
        print(
            f"{task.name} {arguments.preset} seed {seed}: pass rate {note.get('pass_rate', 'not measured')}"
        )
        if arguments.out:
            target = Path(arguments.out) / folder.name
            policy.save(target, {k: v for k, v in note.items() if k != "end_ids"})


def doctor(arguments: argparse.Namespace) -> int:
    """Say what is here, and for what isn't, what to do. Returns 1 if something that the course needs is missing."""
    problems = 0

    def line(ok: bool, what: str, mend: str = "") -> None:
        nonlocal problems
        problems += not ok
        print(f"{'ok     ' if ok else 'PROBLEM'}  {what}" + ("" if ok else f"\n         {mend}"))

    line(
        sys.version_info >= (3, 11),
        f"Python {platform.python_version()}",
        "the course needs Python 3.11 or newer",
    )
    for package in ("torch", "transformers", "jupyterlab", "ipywidgets", "matplotlib", "safetensors"):
        try:
            line(True, f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            line(False, f"{package} is not installed", "run `make setup`, or `python make.py setup`")
    device = "cuda: " + torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
    line(True, f"training runs on {device}")
    try:
        home().mkdir(parents=True, exist_ok=True)
        probe = home() / ".probe"
        probe.write_text("x")
        probe.unlink()
        line(True, f"cache folder {home()}")
    except OSError as error:
        line(
            False,
            f"the cache folder {home()} can't be written ({error})",
            "set GRPO_LAB_HOME to a folder that can",
        )
    free = shutil.disk_usage(DATA.parent).free / 2**30
    line(free > 1, f"{free:.0f} GiB of disk are free", "leave at least 1 GiB for checkpoints and caches")
    stored = sorted((DATA / "warm_starts").glob("*/model.safetensors"))
    line(
        bool(stored),
        f"{len(stored)} warm starts in data/",
        "they are made on demand: grpo-lab warm-start --task sort",
    )
    for folder in (path.parent for path in stored):
        try:
            load_policy(folder)
        except (ValueError, OSError) as error:
            line(False, str(error), "or get it back: git checkout data/")
    return int(problems > 0)


def record_named(arguments: argparse.Namespace) -> None:
    for name in arguments.names or recordings():
        print(record(name, folder=arguments.out))


def arms(arguments: argparse.Namespace) -> None:
    for name, maker in recipe_makers().items():
        print(f"{name:18s} {maker.__doc__.splitlines()[0]}")
    print(f"\nkeys of every arm: {', '.join(ARM_KEYS)}; the others are the keywords of the recipe")


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="grpo-lab", description=__doc__)
    main.add_argument("--version", action="version", version=f"grpo-lab {__version__}")
    commands = main.add_subparsers(dest="command", required=True)

    def command(name: str, function, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(function=function)
        return sub

    sub = command("run", run, "train arms from the warm start and record their curves; resumable")
    sub.add_argument(
        "arms", nargs="+", metavar="ARM", help="a recipe, or LABEL=ARM:key=value,... (`grpo-lab arms`)"
    )
    sub.add_argument("--task", default="sort")
    sub.add_argument("--seeds", default="3", help="a count (3: 0, 1, 2) or a range (0-9)")
    sub.add_argument("--steps", type=int, default=300, help="policy updates")
    sub.add_argument("--eval-every", type=int, default=20)
    sub.add_argument("--out", default="runs", help="folder for the CSV files")
    sub.add_argument("--processes", type=int, default=2)
    for key in ARM_KEYS:
        text = "for every arm that doesn't set it itself"
        sub.add_argument(f"--{key.replace('_', '-')}", help=text)

    sub = command("reproduce", reproduce, "run the recorded experiments again (what is there is left alone)")
    sub.add_argument("names", nargs="*", help="which; all if none is named")
    sub.add_argument("--out", default=str(DATA / "curves"))
    sub.add_argument("--processes", type=int, default=2)

    sub = command("warm-start", warm_starts, "make (or find) the supervised warm starts")
    sub.add_argument("--task", default="sort")
    sub.add_argument("--preset", default="S")
    sub.add_argument("--seeds", default="3")
    sub.add_argument("--out", help="copy them to this folder too")

    sub = command("record", record_named, "make the recorded batches of data/recorded anew")
    sub.add_argument("names", nargs="*", help="which; all if none is named")
    sub.add_argument("--out", default=str(FOLDER))

    command("manifest", lambda a: print(write_manifest(DATA)), "write the table of data/README.md anew")
    command("arms", arms, "list the recipes")
    command("doctor", doctor, "check this machine, and say how to mend what is missing")
    sub = command("glossary", lambda a: print(glossary(a.metrics or None)), "explain the metrics")
    sub.add_argument("metrics", nargs="*")
    return main


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point. Errors that a user can mend are one line on stderr and exit 2; Ctrl-C is exit 130."""
    arguments = parser().parse_args(argv)
    try:
        return arguments.function(arguments) or 0
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    except (ValueError, KeyError, OSError, ExperimentError) as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        print(f"grpo-lab: {text}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
