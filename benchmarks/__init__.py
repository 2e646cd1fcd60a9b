"""How fast the engine is, as ratios from interleaved runs. `python -m benchmarks.run` measures and prints all of it."""
