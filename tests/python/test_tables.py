# SPDX-License-Identifier: Apache-2.0
"""The tables of a trace: what they hold, who can read them, how long they live."""

import gc
import sys
import threading

import pytest

import epilogue
from conftest import DATA, trace_params

STACK = str(DATA / "mlp_stack_eager.json.gz")


def rows_of(table):
    return pytest.importorskip("pyarrow").table(table).to_pylist()


def kernel_event(name, ts, dur, correlation):
    return (
        f'{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":{dur},'
        f'"args":{{"device":0,"stream":7,"correlation":{correlation},"grid":[2,3,4],"block":[32,1,1]}}}}'
    )


def test_all_tables_are_there_and_documented_types_are_given():
    tables = epilogue.tables(STACK)
    assert list(tables) == ["ops", "kernels", "launches", "steps", "memory", "ranges", "frames", "links"]
    for name, table in tables.items():
        assert getattr(tables, name) is table
        assert set(table.columns.values()) <= {"int64", "float64", "bool", "text"}
        assert len(table.columns) > 3


@pytest.mark.parametrize("path", trace_params())
def test_rows_are_valid_refer_to_rows_and_agree_with_explain(path):
    pa = pytest.importorskip("pyarrow")
    try:
        epilogue.table(str(path))
    except epilogue.TraceError:
        with pytest.raises(epilogue.TraceError):
            epilogue.tables(str(path))
        return
    tables = epilogue.tables(str(path))
    kernels = pa.table(tables.kernels).to_pydict()
    for name, ids in (("ops", "parent_id"), ("kernels", "op_id"), ("launches", "op_id")):
        read = pa.table(tables[name])
        read.validate(full=True)
        assert read.num_rows == len(tables[name])
        known = set(pa.table(tables.ops).to_pydict()["id"])
        assert {i for i in read.to_pydict()[ids] if i is not None} <= known
    assert {i for i in kernels["launch_id"] if i is not None} <= set(pa.table(tables.launches).to_pydict()["id"])
    explained = epilogue.explain(str(path)).to_dict()
    is_kernel = [kind == "kernel" for kind in kernels["kind"]]
    assert sum(is_kernel) == explained["kernels"]
    unlaunched = [k for k, launch in zip(is_kernel, kernels["launch_id"]) if k and launch is None]
    assert len(unlaunched) == explained["kernels_without_launch"]
    assert len(tables.steps) == len(explained["steps"])


def test_self_times_add_up():
    ops = rows_of(epilogue.tables(STACK).ops)
    expected = {r.name: r.self_cpu_us for r in epilogue.table(STACK)}
    sums = {}
    for op in ops:
        sums[op["name"]] = sums.get(op["name"], 0) + op["self_ns"]
    for name, ns in sums.items():
        assert ns / 1000 == pytest.approx(expected[name], abs=0.001), name


def test_frames_are_read_on_request():
    without, tables = epilogue.tables(STACK), epilogue.tables(STACK, python_frames=True)
    assert len(without.frames) == 0 and len(tables.frames) == 291
    assert {op["module"] for op in rows_of(without.ops)} == {None}
    assert {"Linear_0", "Linear_1", "GatedMLP_0"} <= {op["module"] for op in rows_of(tables.ops)}
    frames = {f["id"]: f for f in rows_of(tables.frames)}
    for frame in frames.values():
        if frame["parent_id"] is None:
            continue
        parent = frames[frame["parent_id"]]
        assert parent["ts_ns"] <= frame["ts_ns"]
        assert frame["ts_ns"] + frame["dur_ns"] <= parent["ts_ns"] + parent["dur_ns"]


def test_kernels_know_their_launch_op_and_step():
    events = [
        '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":1,"tid":1,"ts":0,"dur":100}',
        '{"ph":"X","cat":"cpu_op","name":"outer","pid":1,"tid":1,"ts":1,"dur":50}',
        '{"ph":"X","cat":"cpu_op","name":"inner","pid":1,"tid":1,"ts":2,"dur":20}',
        '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":3,"dur":4,'
        '"args":{"correlation":9}}',
        kernel_event("k", 60, 30, 9),
    ]
    tables = epilogue.tables(f'{{"traceEvents":[{",".join(events)}]}}'.encode())
    (kernel,) = rows_of(tables.kernels)
    (launch,) = rows_of(tables.launches)
    ops = {op["name"]: op for op in rows_of(tables.ops)}
    assert (kernel["op"], kernel["op_id"], kernel["launch_id"]) == ("inner", ops["inner"]["id"], launch["id"])
    assert (kernel["step"], kernel["dur_ns"], kernel["grid_z"], kernel["block_x"]) == (5, 30_000, 4, 32)
    assert launch["is_kernel_launch"] and launch["op"] == "inner"
    assert [ops[n]["device_ns"] for n in ("outer", "inner")] == [30_000, 30_000]
    assert [ops[n]["self_ns"] for n in ("outer", "inner")] == [30_000, 20_000]
    assert ops["outer"]["kernels"] == 1 and ops["inner"]["parent_id"] == ops["outer"]["id"]
    assert rows_of(tables.links) == [
        {"kernel_id": kernel["id"], "launch_id": launch["id"], "op_id": ops["inner"]["id"], "step": 5}
    ]


def test_more_rows_than_a_batch_and_foreign_bytes():
    pa = pytest.importorskip("pyarrow")
    events = b",".join(
        b'{"ph":"X","cat":"cpu_op","name":"op%d\xff","pid":1,"tid":1,"ts":%d,"dur":1}' % (i % 3, 2 * i)
        for i in range(70_000)
    )
    tables = epilogue.tables(b'{"traceEvents":[' + events + b"]}")
    read = pa.RecordBatchReader.from_stream(tables.ops)
    batches = list(read)
    assert [len(b) for b in batches] == [65536, 70_000 - 65536]
    for batch in batches:
        batch.validate(full=True)
    names = pa.Table.from_batches(batches)["name"].to_pylist()
    assert len(set(names)) == 3 and all(n.startswith("op") for n in names)
    assert pa.Table.from_batches(batches)["ts_ns"].to_pylist()[-1] == 2_000 * 69_999


def test_streams_outlive_the_tables_and_unread_ones_are_freed():
    pa = pytest.importorskip("pyarrow")
    tables = epilogue.tables(STACK)
    capsules = [tables.ops.__arrow_c_stream__() for _ in range(3)] + [tables.ops.__arrow_c_schema__()]
    reader = pa.RecordBatchReader.from_stream(tables.ops)
    del tables
    gc.collect()
    batch = reader.read_next_batch()
    del reader, capsules
    gc.collect()
    assert batch.num_rows == 105 and "aten::mm" in batch.column("name").to_pylist()


def test_threads_read_the_same_table():
    pa = pytest.importorskip("pyarrow")
    tables = epilogue.tables(STACK)
    expected, found = pa.table(tables.ops), []
    threads = [threading.Thread(target=lambda: found.append(pa.table(tables.ops))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(t.equals(expected) for t in found)


def test_duckdb_reads_it_without_pyarrow():
    duckdb = pytest.importorskip("duckdb")
    ops = epilogue.tables(STACK).ops
    before = "pyarrow" in sys.modules
    count, text = duckdb.connect().register("ops", ops).execute(
        "SELECT count(*), any_value(ops.input_shapes) FROM ops JOIN ops o2 USING (id) WHERE ops.name = 'aten::gelu'"
    ).fetchone()
    assert (count, text) == (3, "[[1, 16, 256], []]")
    assert ("pyarrow" in sys.modules) == before


def test_polars_reads_it():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(epilogue.tables(STACK).ops)
    assert frame.shape[0] == 105 and frame["dur_ns"].dtype == polars.Int64
    assert frame.filter(polars.col("name") == "aten::mm").shape[0] == 9


def test_pandas_reads_it():
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = epilogue.tables(STACK, python_frames=True).ops.to_pandas()
    assert (frame["name"] == "aten::mm").sum() == 9 and frame["dur_ns"].dtype == "int64"


def test_a_part_and_a_rank():
    assert len(epilogue.tables(STACK, step=3).steps) == 1
    text = b'{"distributedInfo":{"rank":12},"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}'
    assert epilogue.tables(text).rank == 12
    assert epilogue.tables(STACK).rank is None


def test_errors():
    with pytest.raises(FileNotFoundError):
        epilogue.tables("nowhere.json")
    with pytest.raises(epilogue.TraceError):
        epilogue.tables(b"{}")
    with pytest.raises(KeyError):
        epilogue.tables(STACK)["nothing"]
