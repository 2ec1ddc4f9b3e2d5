# SPDX-License-Identifier: Apache-2.0
"""check and table on PyTorch's own traces: what holds, baselines, CSV, digits."""
import csv
import io
import json
import os
import subprocess
import unittest

from command import BINARY, CommandTest, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch")
EAGER = os.path.join(DATA, "mlp_geglu_rich_eager.json.gz")


class Csv(CommandTest):
    def rows(self, *arguments):
        result = subprocess.run([BINARY, *arguments, "--format", "csv"], capture_output=True, timeout=60, check=True)
        text = result.stdout.decode()
        self.assertEqual(text.count("\r\n"), len(text.splitlines()))
        return list(csv.DictReader(io.StringIO(text, newline="")))

    def test_a_table_has_the_rows_of_its_json(self):
        rows = self.rows("table", EAGER)
        expected = json.loads(self.ok("table", EAGER, "--format", "json"))["rows"]
        self.assertEqual([r["name"] for r in rows], [r["name"] for r in expected])
        for row, other in zip(rows, expected):
            for key in ("count", "self_cpu_us", "cpu_total_us", "self_cpu_memory_bytes"):
                self.assertEqual(float(row[key]), other[key])
            self.assertEqual(row["is_async"], str(other["is_async"]).lower())
        self.assertEqual(len(self.rows("table", EAGER, "--row-limit", "3")), 3)
        shapes = self.rows("table", EAGER, "--group-by-input-shape")
        self.assertIn("[[512, 256], [256, 1024]]", [r["input_shapes"] for r in shapes])

    def test_quantities_and_judgements_are_tables(self):
        quantities = {r["name"]: r["value"] for r in self.rows("check", EAGER, "--list")}
        self.assertEqual(quantities["steps"], "3")
        self.assertEqual(quantities["gpu_busy_pct"], "")
        self.assertEqual(self.rows("check", EAGER, "steps == 3"),
                         [{"expr": "steps == 3", "expected": "3", "found": "3", "holds": "true"}])

    def test_what_is_no_table_has_no_csv(self):
        self.assertIn("expected text, json or markdown", self.misuse("explain", EAGER, "--format", "csv"))


class Check(CommandTest):
    def test_exit_says_whether_all_hold(self):
        self.ok("check", EAGER, "steps == 3", "kernels == 0")
        result = run("check", EAGER, "steps == 3", "steps > 3")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILS steps > 3: found 3", result.stdout)

    def test_what_the_trace_cannot_give_fails(self):
        result = run("check", EAGER, "gpu_idle_pct < 100")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot give it", result.stdout)

    def test_a_quantity_that_does_not_exist_is_misuse_before_anything_is_read(self):
        line = self.misuse("check", "/no/such/file", "kernels_per_steps < 100")
        self.assertEqual(line, "epilogue check: EXPR: expected a quantity of epilogue check --list, "
                               "got 'kernels_per_steps'; did you mean kernels_per_step, "
                               "kernel_us_per_step or gemm_kernels_per_step?")
        self.assertNotIn("did you mean", self.misuse("check", EAGER, "unicorns == 1"))

    def write_steps(self, name, lengths_us):
        """A trace whose steps take so long."""
        path = os.path.join(self.out, name)
        events, now = [], 0
        for i, length in enumerate(lengths_us):
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 1, "tid": 1,
                           "ts": now, "dur": length, "args": {}})
            events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": now + 1,
                           "dur": length - 2, "args": {"External id": i + 1}})
            now += length + 10
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"schemaVersion": 1, "traceEvents": events}, f)
        return path

    def test_a_baseline_says_whether_steps_take_longer(self):
        old = [self.write_steps("old1.json", [100, 103, 101]), self.write_steps("old2.json", [102, 99, 104])]
        new = [self.write_steps("new1.json", [120, 118, 125]), self.write_steps("new2.json", [119, 122, 121])]
        result = run("check", *new, "--baseline", *old)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"(?m)^wall time .*SLOWER$")
        self.ok("check", *old, "--baseline", *new)
        out = json.loads(run("check", *new, "--baseline", *old, "--format", "json").stdout)
        self.assertFalse(out["holds"])
        self.assertEqual([out["before_steps"], out["after_traces"]], [6, 2])
        self.assertAlmostEqual(out["comparisons"][0]["p"], 1 / 924)
        self.ok("check", *new, "--baseline", *old, "--tolerance", "50")

    def test_a_baseline_of_too_few_steps_is_refused(self):
        old = self.write_steps("old.json", [100, 103, 101])
        new = self.write_steps("new.json", [300, 303, 301])
        self.assertEqual(self.misuse("check", new, "--baseline", old),
                         "epilogue check: too few steps to decide: 3 before and 3 after can give p = 0.05 at best, "
                         "and 0.005 is needed; 5 steps of each would do")
        none = self.write_steps("none.json", [])
        self.assertIn("expected", self.misuse("check", new, "--baseline", none))
        self.misuse("check", new, "steps == 3", "--tolerance", "5")

    def test_json(self):
        out = json.loads(self.ok("check", EAGER, "steps==3", "--format", "json"))
        self.assertEqual(out["expectations"],
                         [{"expr": "steps==3", "expected": 3.0, "found": 3.0, "holds": True}])

    def test_list_and_misuse(self):
        named = self.ok("check", "--list")
        self.assertRegex(named, r"(?m)^kernels_per_step +kernels that a step launched$")
        quantities = json.loads(self.ok("check", "--list", "--format", "json"))["quantities"]
        self.assertEqual({q["value"] for q in quantities}, {None})
        self.assertEqual([q["name"] for q in quantities],
                         [line.split()[0] for line in named.splitlines()])
        with_values = json.loads(self.ok("check", EAGER, "--list", "--format", "json"))
        self.assertEqual({q["name"]: q["value"] for q in with_values["quantities"]}["steps"], 3)
        self.assertIn("expected NAME OP NUMBER", self.misuse("check", EAGER, "steps is 3"))
        self.misuse("check", EAGER)
        self.misuse("check")


class Digits(CommandTest):
    def test_long_values_keep_their_digits(self):
        path = os.path.join(self.out, "t.json")
        event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, %s}'
        with open(path, "w", encoding="utf-8") as f:
            f.write('{"traceEvents": [' + event % '"ts": 0, "dur": 1.5' + ", " +
                    event % '"ts": 6629510123, "dur": 0.457' + ', {"ph": "i", "s": "t", '
                    '"name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": {"Device Type": 0, '
                    '"Device Id": -1, "Addr": 1, "Bytes": 6629510123, "Total Allocated": 6629510123, '
                    '"Total Reserved": 0}}]}')
        listed = self.ok("check", path, "--list")
        self.assertRegex(listed, r"(?m)^span_us +6629510123\.457 ")
        self.assertRegex(listed, r"(?m)^self_cpu_total_us +1\.957 ")
        self.assertRegex(listed, r"(?m)^peak_memory_bytes +6629510123 ")
        self.assertIn("found 6629510123.457", run("check", path, "span_us < 1").stdout)


class Table(CommandTest):
    def test_sorts_limits_and_selects(self):
        rows = json.loads(self.ok("table", EAGER, "--format", "json", "--sort-by", "count"))["rows"]
        counts = [r["count"] for r in rows]
        self.assertEqual(counts, sorted(counts, reverse=True))
        limited = json.loads(self.ok("table", EAGER, "--format", "json", "--row-limit", "2"))
        self.assertEqual(len(limited["rows"]), 2)
        self.assertIn("expected a sort key", self.misuse("table", EAGER, "--sort-by", "beauty"))
        one = json.loads(self.ok("table", EAGER, "--format", "json", "--step", "2"))["rows"]
        self.assertEqual([r["count"] for r in one if r["name"] == "ProfilerStep*"], [1])

    def test_shapes(self):
        rows = json.loads(self.ok("table", EAGER, "--format", "json", "--group-by-input-shape"))
        shapes = {r["input_shapes"] for r in rows["rows"] if r["name"] == "aten::mm"}
        self.assertEqual(shapes, {"[[512, 256], [256, 1024]]", "[[512, 1024], [1024, 256]]"})


if __name__ == "__main__":
    unittest.main()
