"""Eight seeds on two cores against the same one after another, through the `experiment` that learners use.

Every run starts a process, imports torch and transformers, loads its warm start, trains, evaluates. What of this is
start-up is told apart, since short runs have relatively more of it. Warm starts are made before the clock starts.
The runs write into temporary folders. Prints one JSON object. Started by `benchmarks.run`.
"""

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path

from benchmarks.clock import spread
from grpo_lab.engine.experiment import experiment
from grpo_lab.engine.tasks import named_task
from grpo_lab.engine.warm_start import warm_start


def timed(seeds: int, steps: int, processes: int) -> tuple[float, float, list[bytes]]:
    """Wall seconds of the experiment, those of them that lie in its runs after their imports, and the curves."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        begun = time.perf_counter()
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
        seconds = time.perf_counter() - begun
        inside = sum(json.loads(file.with_suffix(".json").read_text())["seconds"] for file in files)
        for file in files:
            rows = list(csv.DictReader(file.open(newline="")))
            assert int(rows[-1]["step"]) == steps, f"{file.name} ends at step {rows[-1]['step']}"
        return seconds, inside, [file.read_bytes() for file in files]


def measure(seeds: int, steps: int, rounds: int) -> dict[str, object]:
    for seed in range(seeds):
        warm_start(named_task("sort"), seed=seed)
    ratios, apart, together, shares = [], [], [], []
    for i in range(rounds):
        order = (1, 2) if i % 2 == 0 else (2, 1)
        found = {processes: timed(seeds, steps, processes) for processes in order}
        assert found[1][2] == found[2][2], "side by side the runs gave other curves than one after another"
        ratios.append(found[2][0] / found[1][0])
        apart.append(found[1][0] / seeds)
        together.append(found[2][0] / seeds)
        shares.append(1 - found[1][1] / found[1][0])
    return {
        "ratio": spread(ratios),
        "seconds_a_seed": {
            "one after another": spread(apart)["median"],
            "two at a time": spread(together)["median"],
        },
        "start_up_share": spread(shares)["median"],
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
