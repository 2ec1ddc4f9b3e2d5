# SPDX-License-Identifier: Apache-2.0
"""The plugin, in runs of pytest of its own."""

import gzip
import json
from importlib.metadata import entry_points

import pytest

from epilogue import _baseline


def trace(step_us, kernels=2, steps=3):
    """A trace of steps that take `step_us` and run `kernels` each."""
    events = []

    def add(category, name, ts, dur, tid=1, **args):
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
            | {"args": args}
        )

    for step in range(steps):
        start, length = 100_000 * step, step_us[step] if isinstance(step_us, list) else step_us
        add("user_annotation", f"ProfilerStep#{step}", start, length)
        for i in range(kernels):
            at, correlation = start + 10 * i, 1 + 100 * step + i
            add("cpu_op", "aten::mm", at, 5)
            add("cuda_runtime", "cudaLaunchKernel", at + 1, 2, correlation=correlation)
            add("kernel", "gemm", at + 4, 5, tid=7, correlation=correlation, device=0, stream=7)
    return gzip.compress(json.dumps({"traceEvents": events}).encode())


TEST = """
    import pathlib

    def test_step(epilogue_trace):
        explanation = epilogue_trace(pathlib.Path("now.json.gz").read_bytes(), {expressions})
        assert explanation.kernels > 0
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """run(trace, option, ...): pytest over one test of that trace."""

    def run(content, *options, expressions=""):
        (pytester.path / "now.json.gz").write_bytes(content)
        pytester.makepyfile(TEST.format(expressions=expressions))
        is_installed = "epilogue" in entry_points(group="pytest11").names  # pytest loads it then
        plugin = () if is_installed else ("-p", "epilogue.pytest_plugin")
        return pytester.runpytest(*plugin, *options)

    return run


def test_expectations_fail_with_what_was_found(run):
    run(trace(50), expressions="'kernels_per_step <= 2'").assert_outcomes(passed=1)
    result = run(trace(50, kernels=3), expressions="'kernels_per_step <= 2'")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*expected kernels_per_step <= 2, found 3*"])


def test_a_baseline_is_kept_and_held(run, pytester):
    kept = "--epilogue-baseline=kept"
    run(trace(50), kept).assert_outcomes(passed=1)
    assert len(list((pytester.path / "kept").glob("*test_step*.json.gz"))) == 1
    run(trace(50), kept).assert_outcomes(passed=1)
    worse = run(trace(50, kernels=3), kept)
    worse.assert_outcomes(failed=1)
    worse.stdout.fnmatch_lines(["*kernels_per_step: 2 before, 3 now*"])
    run(trace(50, kernels=3), kept, "--epilogue-update-baseline").assert_outcomes(passed=1)
    run(trace(50, kernels=3), kept).assert_outcomes(passed=1)


def test_times_count_beyond_noise_only(run):
    kept = "--epilogue-baseline=kept"
    run(trace([50, 52, 60]), kept).assert_outcomes(passed=1)
    run(trace([59, 80, 90]), kept).assert_outcomes(passed=1)  # one step is as fast as one before
    run(trace([61, 62, 63]), kept, "--epilogue-tolerance=25").assert_outcomes(passed=1)
    slower = run(trace([61, 62, 63]), kept)
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines(["*median step, us: 52 before, 62 now*"])


def test_two_steps_tell_nothing_of_noise():
    assert _baseline.regressions(trace(50, steps=2), trace(90, steps=2)) == []
    assert len(_baseline.regressions(trace(50), trace(90))) == 1


def test_what_became_better_is_no_regression():
    assert _baseline.regressions(trace(90, kernels=3), trace(50, kernels=1)) == []


def test_file_names_differ_where_ids_do():
    names = {_baseline.file_name(n, lab) for n in ("a::b", "a__b", "a::c") for lab in ("", "x")}
    assert len(names) == 6
    assert all("/" not in n and ":" not in n and len(n) < 160 for n in names)
