# SPDX-License-Identifier: Apache-2.0
"""SQLite exports of Nsight Systems: counts equal those that Python's sqlite3 gives, and hostile databases.

The databases are made here, with the tables and columns of Nsight Systems 2024. No GPU ran them."""
import json
import os
import random
import sqlite3
import unittest

from command import CommandTest, run

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, contextId INTEGER,
  greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,
  mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,
  gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
  localMemoryPerThread INTEGER, localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
  sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER,
  graphNodeId INTEGER, copyCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
  color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, smMajor INTEGER,
  smMinor INTEGER, threadsPerWarp INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
"""
PID = 4711
TID = (1 << 48) | (PID << 24) | 4712
NAMES = {1: "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
         2: "ampere_sgemm_128x64_tn", 3: "cudaLaunchKernel_v7000", 4: "cudaMemcpyAsync_v3020", 5: "cuLaunchKernel",
         6: "cudaMemsetAsync_v3020", 7: "a registered range"}


def fill(db, steps):
    db.executescript(SCHEMA)
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
    db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA A100-SXM4-40GB', 42505273344, 108, 8, 0, 32)")
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '')")
    insert = lambda table, **row: db.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    correlation = 0
    for step in range(steps):
        at = 1_000_000 * (step + 1)
        insert("NVTX_EVENTS", start=at, end=at + 900_000, eventType=59, text=f"step {step}", globalTid=TID)
        insert("NVTX_EVENTS", start=at + 1000, end=at + 1500, eventType=60, textId=7, globalTid=TID)
        insert("NVTX_EVENTS", start=at + 10, eventType=34, text="a mark", globalTid=TID)
        for i, (op, name, call) in enumerate([("aten::mm", 2, 5), ("aten::add", 1, 3)]):
            correlation += 1
            start = at + 10_000 + 100_000 * i
            insert("NVTX_EVENTS", start=start, end=start + 50_000, eventType=59, globalTid=TID,
                   text=f"{op}, seq = {i}, op_id = {correlation}")
            insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=start + 10_000, end=start + 20_000, globalTid=TID,
                   correlationId=correlation, nameId=call)
            insert("CUPTI_ACTIVITY_KIND_KERNEL", start=start + 30_000, end=start + 80_000 + i, deviceId=0, contextId=1,
                   streamId=7, correlationId=correlation, demangledName=name, registersPerThread=64, gridX=216, gridY=1,
                   gridZ=1, blockX=128, blockY=1, blockZ=1, staticSharedMemory=1024, dynamicSharedMemory=0)
        for table, call, more in (("MEMCPY", 4, {"copyKind": 1}), ("MEMSET", 6, {"value": 0})):
            correlation += 1
            insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=at + 300_000, end=at + 310_000, globalTid=TID,
                   correlationId=correlation, nameId=call)
            insert(f"CUPTI_ACTIVITY_KIND_{table}", start=at + 320_000, end=at + 330_000, deviceId=0, streamId=7,
                   correlationId=correlation, bytes=4096, **more)
    db.commit()


class NsysTest(CommandTest):
    def made(self, steps=5, name="made.sqlite"):
        path = os.path.join(self.out, name)
        db = sqlite3.connect(path)
        fill(db, steps)
        db.close()
        return path

    def explain(self, path):
        return json.loads(self.ok("explain", "--format", "json", path))

    def test_counts_are_those_of_python(self):
        path = self.made()
        db = sqlite3.connect(path)
        one = lambda sql: db.execute(sql).fetchone()[0]
        said = self.explain(path)
        tables = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")
        events = sum(one(f"SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{t}") for t in tables)
        events += one("SELECT count(*) FROM NVTX_EVENTS WHERE eventType IN (59, 60)")
        self.assertEqual(said["events"], events)
        self.assertEqual(said["kernels"], one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"))
        self.assertEqual(said["distinct_kernels"], one("SELECT count(DISTINCT demangledName) FROM CUPTI_ACTIVITY_KIND_KERNEL"))
        self.assertEqual(said["ops"], one("SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE 'aten::%'"))
        self.assertEqual(said["kernels_without_launch"], 0)
        self.assertEqual(said["device"], "NVIDIA A100-SXM4-40GB")
        table = self.ok("table", path)
        self.assertIn("aten::mm", table)
        self.assertIn("ampere_sgemm_128x64_tn", table)
        calls = {call["name"]: call["count"] for call in said["runtime_calls"]} if "runtime_calls" in said else {}
        for name, count in calls.items():
            self.assertNotIn("_v", name)
            self.assertEqual(count, 5)

    def test_sizes_and_sequence_numbers_of_emit_nvtx(self):
        path = self.made()
        db = sqlite3.connect(path)
        sizes = {"mm": "[[512, 256], [256, 1024]]", "add": "[[512, 1024], [], [[2], [3, 4]]]"}
        for op, text in sizes.items():
            db.execute("UPDATE NVTX_EVENTS SET text = text || ? WHERE text LIKE ?",
                       (f", sizes = {text}, input_op_ids = [(1, 0), (2, 0)]", f"aten::{op}, %"))
        db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1800000, 1810000, 59, "
                   "'MmBackward0, seq = 0, op_id = 99', ?)", (TID + 1,))
        db.commit()
        db.close()
        said = self.explain(path)
        self.assertEqual([(p["shape"], p["time"]["count"]) for p in said["gemms"]],
                         [({"m": 512, "n": 1024, "k": 256, "batch": 1}, 5)])
        self.assertEqual(said["ops"], 11)
        self.assertNotIn("no-shapes", [h["id"] for h in said["health"]])
        table = self.ok("table", "--group-by-input-shape", path)
        self.assertIn("[[512, 1024], [], []]", table)  # of a list PyTorch's table shows none
        notes = self.ok("explain", path)
        self.assertIn("Recorded by Nsight Systems.", notes)
        self.assertNotIn("The profiler itself took", notes)

    def test_the_page_holds_no_database(self):
        page = os.path.join(self.out, "page.html")
        said = self.ok("report", self.made(), "-o", page)
        self.assertIn("without the trace", said)
        self.assertIn("viewers read no SQLite database", said)

    def test_a_folder_of_ranks(self):
        folder = os.path.join(self.out, "ranks")
        os.mkdir(folder)
        for rank in range(3):
            self.made(name=os.path.join("ranks", f"rank{rank}.sqlite"))
        said = self.explain(folder)
        self.assertEqual([r["rank"] for r in said["ranks"]], [0, 1, 2])

    def test_columns_of_other_versions_may_be_missing(self):
        path = self.made()
        db = sqlite3.connect(path)
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId")
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN registersPerThread")
        db.execute("DROP TABLE TARGET_INFO_GPU")
        db.execute("DROP TABLE NVTX_EVENTS")
        db.commit()
        db.close()
        said = self.explain(path)
        self.assertEqual(said["kernels"], 10)
        self.assertEqual(said["ops"], 0)

    def test_rows_without_times_are_skipped_and_said(self):
        path = self.made()
        db = sqlite3.connect(path)
        db.execute("INSERT INTO NVTX_EVENTS (start, eventType, text) VALUES (5, 59, 'open')")
        db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text) VALUES (5, 4, 59, 'backwards')")
        db.commit()
        db.close()
        result = run("explain", "--format", "json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["skipped_events"], 2)
        self.assertIn("skipped 2 of", result.stderr)

    def test_other_databases_are_refused(self):
        path = os.path.join(self.out, "other.sqlite")
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE people (name TEXT)")
        db.commit()
        db.close()
        self.assertIn("without tables of Nsight Systems", self.misuse("explain", path))

    def test_views_are_not_run(self):
        path = os.path.join(self.out, "view.sqlite")
        db = sqlite3.connect(path)
        db.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE t(start) AS (SELECT 1 UNION ALL SELECT start + 1 "
                   "FROM t) SELECT start, start + 1 AS end FROM t")
        db.commit()
        db.close()
        self.assertIn("without tables of Nsight Systems", self.misuse("explain", path))

    def test_damaged_databases_give_one_line_or_a_part(self):
        path = self.made(40)
        with open(path, "rb") as file:
            whole = file.read()
        random.seed(38)
        damaged = os.path.join(self.out, "damaged.sqlite")
        for i in range(60):
            data = bytearray(whole)
            if i % 3 == 0:
                data = data[:random.randrange(16, len(data))]
            else:
                for _ in range(1 + i):
                    data[random.randrange(16, len(data))] = random.randrange(256)
            with open(damaged, "wb") as file:
                file.write(data)
            result = run("explain", "--format", "json", damaged)
            self.assertIn(result.returncode, (0, 2), result.stderr)
            if result.returncode == 2:
                self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
