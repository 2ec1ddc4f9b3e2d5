# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs and checks agreement. No figure is looked at."""

import json

import pytest
import torch

from epilogue.torch import bench


def test_blocks(tmp_path, capsys):
    out = tmp_path / "rows.json"
    bench.main(["blocks", "--tiny", "--rows", "3", "--rounds", "2", "--seconds", "0.0", "--peers", "eager", "--json", str(out)])
    rows = json.loads(out.read_text())
    assert len(rows) == 2 * len(bench.SHAPES)
    assert all(set(row["ms"]) == {"fused", "eager"} and row["low"] <= row["high"] for row in rows)
    assert "geometric mean of 10 blocks" in capsys.readouterr().out


def test_calls(tmp_path):
    out = tmp_path / "rows.json"
    threads = torch.get_num_threads()
    bench.main(["calls", "--rounds", "3", "--seconds", "0.001", "--json", str(out)])
    rows = {row["name"]: row for row in json.loads(out.read_text())}
    assert set(rows) == {"op", "module", "layer", "eager module"}
    assert all(0 < row["low"] <= row["us"] <= row["high"] for row in rows.values())
    assert torch.get_num_threads() == threads


def test_models(tmp_path):
    out = tmp_path / "rows.json"
    bench.main(["models", "--tiny", "--layers", "1", "--rows", "5", "--rounds", "2", "--seconds", "0.0", "--peers", "eager",
                "--dtype", "float32", "--training", "--json", str(out)])  # fmt: skip
    rows = json.loads(out.read_text())
    assert {row["name"].split()[1] for row in rows} == {"prefill", "decode", "training", "forward"}
    assert all(0 < row["share"] < 1 for row in rows if "share" in row)


def test_results_that_differ_are_no_benchmark(monkeypatch):
    monkeypatch.setattr(bench, "fuse", lambda module, **_: module.apply(lambda m: m.weight.data.add_(1) if hasattr(m, "weight") else None))
    with pytest.raises(SystemExit, match="results differ"):
        bench.main(["blocks", "--tiny", "--rows", "3", "--rounds", "2", "--peers", "eager"])
