# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots: typed results, tables, errors."""
import os
import pickle

import pytest

import epilogue

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "memory_snapshots")
SNAPSHOT = os.path.join(DATA, "train_protocol_5.pickle")


def loaded():
    with open(SNAPSHOT, "rb") as file:
        return pickle.load(file)  # made by a script of this tree


def test_the_answer_is_typed():
    report = epilogue.memory(SNAPSHOT)
    (device,) = report.devices
    assert device.device == 0
    assert device.peak_bytes == report.peak_bytes == sum(device.at_peak_by_frame.values())
    assert sum(device.at_peak_by_category.values()) == device.peak_bytes
    assert device.at_end["reserved_bytes"] == sum(s["total_size"] for s in loaded()["segments"])
    assert report.to_dict()["schema_version"] == 1
    assert report.finding("growth").remedy
    assert report.finding("no such finding") is None
    assert "Peak of device 0" in str(report)


def test_bytes_are_as_good_as_a_path():
    with open(SNAPSHOT, "rb") as file:
        content = file.read()
    assert epilogue.memory(content).to_dict()["devices"] == epilogue.memory(SNAPSHOT).to_dict()["devices"]


def test_against_and_page(tmp_path):
    page = tmp_path / "memory.html"
    report = epilogue.memory(SNAPSHOT, against=SNAPSHOT, page=page)
    diff = report.to_dict()["devices"][0]["diff"]
    assert diff["by_frame"] == []
    assert page.stat().st_size > 10_000


def test_a_pickle_that_would_run_code_does_not():
    class Evil:
        def __reduce__(self):
            return os.mkdir, ("epilogue_memory_evil",)

    with pytest.raises(epilogue.TraceError, match="opcode STACK_GLOBAL at byte"):
        epilogue.memory(pickle.dumps(Evil(), 4))
    assert not os.path.exists("epilogue_memory_evil")


def test_misuse_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        epilogue.memory(tmp_path / "none.pickle")
    with pytest.raises(TypeError, match="path or bytes of a snapshot"):
        epilogue.memory(3)
    with pytest.raises(epilogue.Error, match=r"devices \(0\), got 5"):
        epilogue.memory(SNAPSHOT, device=5)


def test_tables_have_the_snapshots_rows():
    tables = epilogue.memory_tables(SNAPSHOT)
    snapshot = loaded()
    assert list(tables) == ["allocations", "events", "blocks", "segments", "frames"]
    assert len(tables.events) == len(snapshot["device_traces"][0])
    assert len(tables.segments) == len(snapshot["segments"])
    assert len(tables.blocks) == sum(len(s["blocks"]) for s in snapshot["segments"])
    assert tables.allocations.columns["category"] == "text"
    assert tables.allocations.columns["is_alive_at_peak"] == "bool"


def test_tables_are_arrow():
    pyarrow = pytest.importorskip("pyarrow")
    rows = pyarrow.table(epilogue.memory_tables(SNAPSHOT).allocations).to_pylist()
    alive = sum(row["bytes"] for row in rows if row["is_alive_at_peak"])
    assert alive == epilogue.memory(SNAPSHOT).peak_bytes
