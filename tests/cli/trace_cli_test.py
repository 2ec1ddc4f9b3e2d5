# SPDX-License-Identifier: Apache-2.0
"""explain, diff, check, table on PyTorch's own traces: contract of the JSON, exit codes, messages."""
import gzip
import json
import os
import subprocess
import unittest

from command import BINARY, CommandTest, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch")
EAGER = os.path.join(DATA, "mlp_geglu_rich_eager.json.gz")
COMPILED = os.path.join(DATA, "mlp_geglu_rich_compile.json.gz")
VERDICTS = {"overhead-bound", "launch-bound", "memory-bound", "compute-bound", "sync-bound",
            "data-bound", "cpu-only", "no-kernels"}


class Explain(CommandTest):
    def test_json_has_the_contracts_keys(self):
        e = json.loads(self.ok("explain", EAGER, "--format", "json"))
        self.assertEqual(e["schema_version"], 1)
        for key in ("verdict", "bound_pct", "events", "skipped_events", "kernels",
                    "distinct_kernels", "kernels_without_launch", "launches_without_kernel",
                    "steps", "span_us", "gpu_busy_pct", "gemms", "fusions", "findings", "health"):
            self.assertIn(key, e)
        self.assertEqual(e["verdict"], "cpu-only")
        self.assertEqual([s["name"] for s in e["steps"]],
                         ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"])
        for step in e["steps"]:
            self.assertGreater(step["wall_us"], 0)
            self.assertIn(step["verdict"], VERDICTS)
        for finding in e["findings"]:
            self.assertEqual(set(finding), {"id", "severity", "title", "evidence", "saving_us"})
        self.assertEqual(e["findings"][0]["id"], "verdict")

    def test_the_gated_activation_is_found(self):
        e = json.loads(self.ok("explain", EAGER, "--format", "json"))
        chains = [f for f in e["fusions"] if f["kind"] == "pointwise-chain"]
        self.assertEqual(len(chains), 1)
        self.assertEqual(chains[0]["ops"], ["aten::gelu", "aten::mul"])
        self.assertEqual(chains[0]["count"], 3)
        tensor = 8 * 64 * 1024 * 2
        self.assertEqual(chains[0]["bytes_now"], 3 * 5 * tensor)
        self.assertEqual(chains[0]["bytes_after"], 3 * 3 * tensor)
        merged = [f for f in e["fusions"] if f["kind"] == "merged-gemms"]
        self.assertEqual([f["count"] for f in merged], [3])

    def test_text_and_markdown_start_with_the_verdict(self):
        self.assertTrue(self.ok("explain", EAGER).startswith(EAGER + ": cpu-only\n"))
        self.assertTrue(self.ok("explain", EAGER, "--format", "markdown").startswith("## "))

    def test_top_limits_lists_and_says_so(self):
        self.assertRegex(self.ok("explain", EAGER, "--top", "1"), r"\n  and \d+ more\n")
        self.assertNotRegex(self.ok("explain", EAGER, "--top", "-1"), r"\n  and \d+ more\n")

    def test_one_step(self):
        e = json.loads(self.ok("explain", EAGER, "--step", "3", "--format", "json"))
        self.assertEqual([s["name"] for s in e["steps"]], ["ProfilerStep#3"])
        self.assertIn("no step 99: it has 2, 3, 4", self.misuse("explain", EAGER, "--step", "99"))

    def test_stdin(self):
        with gzip.open(EAGER) as f:
            text = f.read()
        result = subprocess.run([BINARY, "explain", "-", "--format", "json"], input=text,
                                capture_output=True, timeout=60, check=True)
        self.assertEqual(json.loads(result.stdout)["ops"],
                         json.loads(self.ok("explain", EAGER, "--format", "json"))["ops"])

    def test_unusable_input_is_one_line(self):
        self.assertIn("/no/such/file", self.misuse("explain", "/no/such/file"))
        path = os.path.join(self.out, "bad.json")
        for text in ("", "hello", "[1, 2", '{"a": 1}'):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            self.assertIn("bad.json", self.misuse("explain", path), text)


class Diff(CommandTest):
    def test_parts_add_up(self):
        d = json.loads(self.ok("diff", EAGER, COMPILED, "--format", "json"))
        for key in ("wall_us", "gpu_busy_us", "parts", "kernels_added", "kernels_removed",
                    "kernels_changed"):
            self.assertIn(key, d)
        self.assertTrue(d["by_steps"])
        total = sum(p["delta_us"] for p in d["parts"])
        self.assertAlmostEqual(total, d["wall_us"][1] - d["wall_us"][0], places=2)
        for part in d["parts"]:
            self.assertTrue(part["what"] and part["why"], part)

    def test_a_trace_does_not_differ_from_itself(self):
        d = json.loads(self.ok("diff", EAGER, EAGER, "--format", "json"))
        self.assertEqual(d["wall_us"][0], d["wall_us"][1])
        self.assertTrue(all(p["delta_us"] == 0 for p in d["parts"]))

    def test_text(self):
        self.assertIn("Where the difference comes from", self.ok("diff", EAGER, COMPILED))
        self.assertIn("## Where", self.ok("diff", EAGER, COMPILED, "--format", "markdown"))


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
        result = run("check", EAGER, "no_such_thing < 100")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such quantity", result.stdout)

    def test_json(self):
        out = json.loads(self.ok("check", EAGER, "steps==3", "--format", "json"))
        self.assertEqual(out["expectations"],
                         [{"expr": "steps==3", "expected": 3.0, "found": 3.0, "holds": True}])

    def test_list_and_misuse(self):
        self.assertIn("kernels_per_step", self.ok("check", "--list"))
        self.assertIn("expected NAME OP NUMBER", self.misuse("check", EAGER, "steps is 3"))
        self.misuse("check", EAGER)
        self.misuse("check")


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


class Help(CommandTest):
    def test_every_trace_command_has_help_with_an_example(self):
        for command in ("table", "explain", "diff", "check", "name", "report", "serve"):
            self.assertIn("Example: epilogue " + command, self.ok(command, "--help"), command)


if __name__ == "__main__":
    unittest.main()
