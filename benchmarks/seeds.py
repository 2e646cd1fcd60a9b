"""Eight seeds on two cores against the same one after another, through the `experiment` that learners use.

Every run starts a process, imports torch and transformers, loads its warm start, trains, evaluates. What of this is
start-up is told apart, since short runs have relatively more of it. Warm starts are made before the clock starts, and
the runs write into temporary folders. The number needs two free cores to say what it is meant to say, so the cores
that the runs got are told too. Prints one JSON object. Started by `benchmarks.run`.
"""

import argparse
import csv
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from statistics import median as middle

from benchmarks.clock import spread
from grpo_lab.engine.experiment import experiment
from grpo_lab.engine.tasks import named_task
from grpo_lab.engine.warm_start import warm_start

try:
    import resource
except ImportError:  # Windows
    resource = None


@dataclasses.dataclass(frozen=True)
class Took:
    seconds: float  # wall
    cores: float  # CPU seconds a wall second: below `processes` where others want the machine too
    inside: float  # wall seconds of the runs after their imports, added up
    curves: list[bytes]


def cpu_seconds() -> float:
    """CPU time of the child processes that have ended; nan where the system doesn't say."""
    if resource is None:
        return float("nan")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(seeds: int, steps: int, processes: int) -> Took:
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        begun, cpu = time.perf_counter(), cpu_seconds()
        files = experiment(
            ["grpo"],
            task="sort",
            seeds=range(seeds),
            steps=steps,
            out=Path(folder) / "out",
            processes=processes,
            eval_every=steps,
            quiet=True,
        )
        seconds, cpu = time.perf_counter() - begun, cpu_seconds() - cpu
        inside = sum(json.loads(file.with_suffix(".json").read_text())["seconds"] for file in files)
        for file in files:
            rows = list(csv.DictReader(file.open(newline="")))
            assert int(rows[-1]["step"]) == steps, f"{file.name} ends at step {rows[-1]['step']}"
        return Took(seconds, cpu / seconds, inside, [file.read_bytes() for file in files])


def measure(seeds: int, steps: int, rounds: int) -> dict[str, object]:
    for seed in range(seeds):
        warm_start(named_task("sort"), seed=seed)
    alone, together = [], []
    for i in range(rounds):
        order = (1, 2) if i % 2 == 0 else (2, 1)
        found = {processes: timed(seeds, steps, processes) for processes in order}
        assert found[1].curves == found[2].curves, (
            "side by side the runs gave other curves than one after another"
        )
        alone.append(found[1])
        together.append(found[2])
    return {
        "ratio": spread([two.seconds / one.seconds for one, two in zip(alone, together, strict=True)]),
        "seconds": {
            name: middle(t.seconds / seeds for t in all_) for name, all_ in (("1", alone), ("2", together))
        },
        "cores": {name: middle(t.cores for t in all_) for name, all_ in (("1", alone), ("2", together))},
        "start_up_share": middle(1 - one.inside / one.seconds for one in alone),
        "seeds": seeds,
        "steps": steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    print(json.dumps(measure(asked.seeds, asked.steps, asked.rounds)), flush=True)


if __name__ == "__main__":
    main()
