"""How time is taken: CPU time of this process on a CPU, wall time with a synchronise on a GPU."""

import statistics
import time
from collections.abc import Sequence

import torch


def now(device: str) -> float:
    """Seconds. On a CPU those this process has computed, whatever else the machine is busy with."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
