# SPDX-License-Identifier: Apache-2.0
"""check_baseline(): the steps of some traces beside those of an earlier version."""

import json
import pathlib

import pytest

import epilogue


def write_trace(path: pathlib.Path, steps: "list[int]") -> str:
    """One op in each step, as long as the step less 10 us."""
    events, ts = [], 1000
    for i, dur in enumerate(steps):
        lane = {"ph": "X", "pid": 1, "tid": 1, "ts": ts}
        events.append({**lane, "cat": "user_annotation", "name": f"ProfilerStep#{i}", "dur": dur})
        events.append({**lane, "cat": "cpu_op", "name": "aten::mm", "ts": ts + 5, "dur": dur - 10,
                       "args": {"External id": i + 1}})
        ts += dur + 5
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return str(path)


@pytest.fixture
def old(tmp_path):
    return [write_trace(tmp_path / f"old{i}.json", [1000, 1010, 990, 1005]) for i in (1, 2)]


@pytest.fixture
def slow(tmp_path):
    return [write_trace(tmp_path / f"slow{i}.json", [1200, 1210, 1190, 1205]) for i in (1, 2)]


def test_it_is_what_the_command_says(old, slow, command):
    run = command("check", *slow, "--baseline", *old, "--format", "json")
    assert run.returncode == 1
    result = epilogue.check_baseline(slow, old, raises=False)
    assert result.to_json() == run.stdout
    assert str(result) + "\n" == command("check", *slow, "--baseline", *old).stdout
    assert not result and not result.holds


def test_slower_steps_raise_what_is_slower(old, slow):
    with pytest.raises(AssertionError, match=r"1 ms before, 1.2 ms now \(\+20") as raised:
        epilogue.check_baseline(slow, old)
    assert isinstance(raised.value, epilogue.BaselineFailed)
    changes = raised.value.result.changes
    assert [c.verdict for c in changes] == ["SLOWER", "SLOWER"]
    assert changes[0].superiority == 1.0
    assert changes[0].p < 0.001
    assert repr(raised.value.result) == "<epilogue.BaselineResult 2 of 2 slower>"


def test_equal_and_faster_steps_hold(old, slow):
    assert epilogue.check_baseline(old, old)
    assert epilogue.check_baseline(tuple(old), slow).changes[0].verdict == "faster"


def test_a_tolerance_above_the_change_lets_it_pass(old, slow):
    result = epilogue.check_baseline(slow, old, tolerance_pct=30)
    assert [c.verdict for c in result.changes] == ["within tolerance"] * 2


def test_one_trace_needs_no_list_and_bytes_are_a_trace(tmp_path):
    path = pathlib.Path(write_trace(tmp_path / "one.json", [1000, 1010, 990, 1005, 1001, 1002]))
    assert epilogue.check_baseline(str(path), path.read_bytes())


def test_what_cannot_be_decided_is_refused(old, tmp_path, eager):
    few = write_trace(tmp_path / "few.json", [1000, 1010])
    with pytest.raises(epilogue.Error, match="too few steps to decide: 8 before and 2 after"):
        epilogue.check_baseline(few, old)
    none = tmp_path / "none.json"
    none.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}')
    with pytest.raises(epilogue.Error, match="expected ProfilerStep"):
        epilogue.check_baseline(str(none), old)
    with pytest.raises(TypeError, match="got none"):
        epilogue.check_baseline([], old)
    with pytest.raises(ValueError, match="tolerance"):
        epilogue.check_baseline(old, old, tolerance_pct=-1)
    with pytest.raises(TypeError, match="got int"):
        epilogue.check_baseline([3], old)
