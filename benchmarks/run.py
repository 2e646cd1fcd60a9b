"""`python -m benchmarks.run`: a table for the eye, then one line of JSON.

Every number is a ratio of two things measured in turns, in the same process or back to back. Machines and neighbours
change the milliseconds by a factor of two within a minute; the ratios hold. Each part runs in a process of its own,
so that what the libraries print at their import, and at their end, stays out of the way: the JSON is the last line
even where standard error goes to the same place.

--quick   the same way through all of it with a few steps: about a minute, ratios that are only roughly right
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    "step_vs_trl_S": 0.45,
    "step_vs_trl_M": 0.55,
    "step_vs_bound_S": 4.0,
    "step_vs_bound_M": 2.2,
    "seeds_parallel": 0.55,
}
PACKAGES = ("torch", "transformers", "trl")


def part(module: str, **options) -> dict[str, Any]:
    """Run one part in a process with one thread, and read the JSON that it prints last."""
    flags = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    quiet = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONWARNINGS": "ignore",
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_MODE": "disabled",
    }
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *flags],
        cwd=ROOT,
        env={
            **os.environ,
            **quiet,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        },
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"benchmarks.{module} {' '.join(flags)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def say(text: str = "") -> None:
    print(text, flush=True)


def ratio(found: dict[str, float]) -> str:
    return f"{found['median']:5.2f}  ({found['min']:.2f} to {found['max']:.2f})"


def show(result: dict[str, Any]) -> None:
    ms = result["ms"]
    head = f"{result['preset']}, {result['task']}, TRL micro-batch {result['micro_batch']}"
    say(f"{head:36s} x TRL {ratio(result['to_trl'])}   x products {ratio(result['to_bound'])}")
    say(f"{'':36s} x products of distinct prefixes {ratio(result['to_prefix_bound'])}")
    say(
        f"{'':36s} CPU ms a step: ours {ms['ours']:.0f}, TRL {ms['trl']:.0f}, products {ms['bound']:.0f}, "
        f"of distinct prefixes {ms['prefix_bound']:.0f}"
    )
    for who in ("ours", "trl"):
        seen = result[who]
        numbers = (
            f"mean length {seen['length']:.2f}, dead groups {seen['dead']:.0%}, pass rate {seen['pass']:.2f}"
        )
        say(f"{'':36s} {who:4s}: {numbers}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a dry run of about a minute")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    asked = parser.parse_args()
    begun = time.perf_counter()

    say(
        "Whole GRPO step, 16 prompts x 8 answers, float32, from the warm start; median (least to most) over rounds of"
    )
    say("turns. The lower the better; TRL at its fastest CPU settings, with the better of its micro-batches.")
    say(
        "The gain over TRL is the shared prefix and work left out (finished rows, dead groups), not a faster kernel."
    )
    say()
    line: dict[str, Any] = {}
    sizes = {"S": {"rounds": 24, "block": 4}, "M": {"rounds": 14, "block": 3}}
    if asked.quick:
        sizes = {"S": {"rounds": 3, "block": 2}, "M": {"rounds": 2, "block": 1}}
    for preset, size in sizes.items():
        tries = [
            part("step", preset=preset, micro_batch=micro_batch, device=asked.device, **size)
            for micro_batch in ((64,) if asked.quick else (64, 128))
        ]
        for result in tries:
            show(result)
        hardest = max(tries, key=lambda result: result["to_trl"]["median"])  # where TRL is fastest
        line[f"step_vs_trl_{preset}"] = round(hardest["to_trl"]["median"], 3)
        line[f"step_vs_bound_{preset}"] = round(hardest["to_bound"]["median"], 3)
        line[f"step_vs_prefix_bound_{preset}"] = round(hardest["to_prefix_bound"]["median"], 3)
    if not asked.quick:
        say()
        say(
            "For information: answers of up to 24 tokens, ended by themselves at any length, so many rows finish early."
        )
        for preset, size in {"S": {"rounds": 8, "block": 3}, "M": {"rounds": 5, "block": 2}}.items():
            result = part(
                "step", preset=preset, task="free_length", micro_batch=64, device=asked.device, **size
            )
            show(result)
            line[f"long_vs_trl_{preset}"] = round(result["to_trl"]["median"], 3)
            line[f"long_vs_bound_{preset}"] = round(result["to_bound"]["median"], 3)
    say()
    found = part("seeds", **({"seeds": 2, "steps": 2, "rounds": 1} if asked.quick else {}))
    seconds, cores = found["seconds"], found["cores"]
    say(f"{found['seeds']} seeds x {found['steps']} steps, two processes over one: {ratio(found['ratio'])}")
    say(
        f"{'':36s} seconds a seed {seconds['2']:.1f} over {seconds['1']:.1f}; cores they got {cores['2']:.2f} "
        f"and {cores['1']:.2f}; imports are {found['start_up_share']:.0%} of a run"
    )
    line["seeds_parallel"] = round(found["ratio"]["median"], 3)
    say()
    for name, most in TARGETS.items():
        verdict = "reached" if line[name] <= most else f"missed by {line[name] - most:.3g}"
        say(f"{name:18s} {line[name]:6.3f}   wanted at most {most:<5g} {verdict}")
    say(f"{time.perf_counter() - begun:.0f} s in all")
    line["parallel_cores"] = round(cores["2"], 2)
    line = {name: line[name] for name in TARGETS} | {k: v for k, v in line.items() if k not in TARGETS}
    line |= {"quick": asked.quick, "device": asked.device, "python": platform.python_version()}
    line |= {package: importlib.metadata.version(package) for package in PACKAGES}
    sys.stderr.flush()
    say(json.dumps(line))


if __name__ == "__main__":
    main()
