#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/: small snapshots in each protocol and form, and one that would run code."""
import os
import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "memory_snapshot"))
from made_snapshot import made  # noqa: E402


class Evil:
    def __reduce__(self):
        return os.getcwd, ()


SMALL = ["--steps", "1", "--layers", "1"]
SEEDS = {f"protocol_{p}.pickle": pickle.dumps(made(SMALL), p) for p in (2, 3, 4, 5)}
SEEDS |= {f"{form}.pickle": pickle.dumps(made([*SMALL, "--form", form, "--graph"]), 4) for form in ("list", "history", "bare")}
SEEDS |= {"oom.pickle": pickle.dumps(made([*SMALL, "--capacity-mib", "20"]), 4),
          "expandable.pickle": pickle.dumps(made([*SMALL, "--expandable", "--metadata"]), 5),
          "numbers.pickle": pickle.dumps({"segments": [], "x": [1.5, None, True, -1, 2**63, 2**64, 2**200, b"x", bytearray(b"y"), {1}, frozenset([2]), (1, 2, 3, 4)]}, 5),
          "evil.pickle": pickle.dumps(Evil(), 4)}

if __name__ == "__main__":
    folder = Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for name, content in SEEDS.items():
        (folder / name).write_bytes(content)
