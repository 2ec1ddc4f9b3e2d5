# SPDX-License-Identifier: Apache-2.0
"""explain, diff and folders on PyTorch's own traces: contract of the JSON, exit codes, messages."""
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
            "data-bound", "queue-bound", "cpu-only", "no-kernels"}


class Explain(CommandTest):
    def test_json_has_the_contracts_keys(self):
        e = json.loads(self.ok("explain", EAGER, "--format", "json"))
        self.assertEqual(e["schema_version"], 1)
        for key in ("verdict", "bound_pct", "events", "skipped_events", "kernels",
                    "distinct_kernels", "kernels_without_launch", "launches_without_kernel",
                    "steps", "span_us", "gpu_busy_pct", "gemms", "fusions", "findings", "health"):
            self.assertIn(key, e)
        self.assertEqual(e["verdict"], "cpu-only")
        self.assertEqual(e["host_verdict"], "compute-bound")
        self.assertEqual(e["host"]["ops"][0]["name"], "aten::mm")
        top = e["top_ops"][0]
        self.assertEqual((top["name"], top["count"]), ("aten::mm", 9))
        self.assertAlmostEqual(top["share_pct"], 100 * top["self_us"] / e["host"]["wall_us"])
        first = e["products"][0]
        self.assertEqual([first[k] for k in ("op", "m", "n", "k", "dtype", "count", "peak_pct")],
                         ["aten::mm", 512, 1024, 256, "bf16", 6, None])
        self.assertAlmostEqual(first["gflops"], e["host"]["products"][0]["gflops"])
        self.assertEqual([s["name"] for s in e["steps"]],
                         ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"])
        for step in e["steps"]:
            self.assertGreater(step["wall_us"], 0)
            self.assertIn(step["verdict"], VERDICTS)
        for finding in e["findings"]:
            self.assertEqual(set(finding), {"id", "severity", "title", "evidence", "saving_us", "cost_us",
                                            "remains_us", "confidence", "action", "remedy", "where",
                                            "sources"})
            self.assertEqual((finding["where"], finding["remedy"]), ("host", finding["action"]))
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
        self.assertTrue(self.ok("explain", EAGER).startswith(EAGER + ": compute-bound on the CPU\n"))
        self.assertTrue(self.ok("explain", EAGER, "--format", "markdown").startswith("## "))

    def test_a_trace_of_which_nothing_can_be_read_is_no_answer(self):
        path = os.path.join(self.out, "bad.json")
        with open(path, "w", encoding="utf-8") as f:
            f.write('{"traceEvents": [{"ph": "X", "name": "a", "ts": "x"}, {"ph": "X"}]}')
        for command in ("explain", "table"):
            self.assertIn("skipped 2 of 2 events", self.misuse(command, path))

    def test_top_limits_lists_and_says_so(self):
        self.assertRegex(self.ok("explain", EAGER, "--top", "1"), r"\n  and \d+ more\n")
        self.assertNotRegex(self.ok("explain", EAGER, "--top", "-1"), r"\n  and \d+ more\n")

    def test_one_step(self):
        e = json.loads(self.ok("explain", EAGER, "--step", "3", "--format", "json"))
        self.assertEqual([s["name"] for s in e["steps"]], ["ProfilerStep#3"])
        self.assertIn("no step 99: its steps are 2, 3, 4", self.misuse("explain", EAGER, "--step", "99"))

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


class Damage(CommandTest):
    """Every command says on stderr what was read but may be wrong."""
    KERNELS = ('{"traceEvents": ['
               '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": %d},'
               '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 50, "dur": 5}]}')

    def warnings(self, data):
        path = os.path.join(self.out, "t.json")
        with open(path, "wb") as f:
            f.write(data)
        texts = [run(command, path, *options).stderr
                 for command, options in (("table", ()), ("explain", ()), ("check", ("--list",)))]
        self.assertEqual(len(set(texts)), 1, texts)
        return texts[0]

    def test_a_sound_trace_has_no_warning(self):
        text = (self.KERNELS % 7).encode()
        self.assertEqual(self.warnings(text), "")
        self.assertEqual(self.warnings(gzip.compress(text)), "")
        self.assertEqual(self.warnings(gzip.compress(text) + bytes(512)), "")

    def test_negative_durations(self):
        self.assertIn("t.json: events that end before they start, taken as empty: times that they are "
                      "part of are too small (at byte 17)\n",
                      self.warnings((self.KERNELS % -100).encode()))
        health = json.loads(self.ok("explain", os.path.join(self.out, "t.json"), "--format", "json"))
        item = {h["id"]: h for h in health["health"]}["negative-durations"]
        self.assertEqual(item["count"], 1)
        self.assertNotIn("repaired-events", [h["id"] for h in health["health"]])

    def test_a_wrong_checksum(self):
        data = bytearray(gzip.compress((self.KERNELS % 7).encode()))
        data[-8] ^= 1
        self.assertIn("checksum of the compressed data does not match", self.warnings(bytes(data)))

    def test_what_follows_the_trace(self):
        text = (self.KERNELS % 7).encode()
        self.assertIn("t.json: text behind the document, ignored", self.warnings(text + b" xxxx"))
        self.assertIn("t.json: bytes behind the compressed data, ignored",
                      self.warnings(gzip.compress(text) + b"xxxx"))


class Folder(CommandTest):
    """explain DIR takes traces for ranks only where they are."""
    TRACE = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
                              "ts": 10, "dur": 5}]}

    def write(self, name, rank=None, world_size=2, ts=10, op="aten::mm"):
        trace = json.loads(json.dumps(self.TRACE))
        trace["traceEvents"][0].update(ts=ts, name=op)
        if rank is not None:
            trace["distributedInfo"] = {"rank": rank, "world_size": world_size}
        with open(os.path.join(self.out, name), "w", encoding="utf-8") as f:
            json.dump(trace, f)

    def ranks(self):
        found = json.loads(self.ok("explain", self.out, "--format", "json"))
        return {os.path.basename(r["path"]): r["rank"] for r in found["ranks"]}

    def test_distributed_info_says_which_rank(self):
        self.write("a.json", rank=1)
        self.write("b.json", rank=0)
        self.assertEqual(self.ranks(), {"a.json": 1, "b.json": 0})

    def test_file_names_say_which_rank(self):
        self.write("run_rank10.json")
        self.write("run_rank2.json", ts=500)
        self.assertEqual(self.ranks(), {"run_rank10.json": 10, "run_rank2.json": 2})

    def test_the_same_ops_at_the_same_time_are_ranks(self):
        self.write("a.json")
        self.write("b.json", ts=12)
        self.assertEqual(self.ranks(), {"a.json": 0, "b.json": 1})

    def test_different_runs_are_not(self):
        self.write("a.json")
        self.write("b.json", ts=500)
        line = self.misuse("explain", self.out)
        self.assertIn("expected the ranks of one run, got 2 traces of different runs: ", line)
        self.assertIn("ran at different times; name one trace, or compare two with epilogue diff A B",
                      line)
        self.write("b.json", op="aten::relu")
        self.assertIn("b.json have different ops", self.misuse("explain", self.out))
        self.write("a.json", rank=1)
        self.assertIn("b.json does not say which rank", self.misuse("explain", self.out))
        self.write("b.json", rank=1)
        self.assertIn("are both of rank 1", self.misuse("explain", self.out))
        self.write("b.json", rank=0, world_size=4)
        self.assertIn("has 4 ranks, another trace says 2", self.misuse("explain", self.out))

    def test_missing_ranks_are_said(self):
        self.write("a.json", rank=1, world_size=4)
        self.write("b.json", rank=2, world_size=4)
        self.assertTrue(self.ok("explain", self.out).startswith("2 of 4 ranks\n"))
        found = json.loads(self.ok("explain", self.out, "--format", "json"))
        self.assertEqual((found["world_size"], found["has_all_ranks"]), (4, False))
        self.assertEqual(found["missing_ranks"], [{"first": 0, "last": 0}, {"first": 3, "last": 3}])

    def test_files_that_are_no_traces_are_named_and_left_out(self):
        self.write("a.json", rank=1)
        self.write("b.json", rank=0)
        for name, text in (("readme.json", '{"about": "this folder"}'), ("c.json", "")):
            with open(os.path.join(self.out, name), "w", encoding="utf-8") as f:
                f.write(text)
        self.assertEqual(self.ranks(), {"a.json": 1, "b.json": 0})
        lines = run("explain", self.out).stderr.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn("c.json: expected a JSON trace, got an empty file; left out", lines[0])
        self.assertIn("readme.json: expected a Chrome trace, got JSON without traceEvents: its keys "
                      "are about; left out", lines[1])
        os.remove(os.path.join(self.out, "a.json"))
        self.assertEqual(json.loads(self.ok("explain", self.out, "--format", "json"))["verdict"],
                         "cpu-only")
        os.remove(os.path.join(self.out, "b.json"))
        self.assertIn("c.json", self.misuse("explain", self.out))

    def test_a_trace_that_cannot_be_read_is_not_left_out(self):
        self.write("a.json", rank=1)
        self.write("b.json", rank=0)
        os.mkdir(os.path.join(self.out, "c.json"))
        self.assertIn("c.json: cannot read", self.misuse("explain", self.out))

    def peak_kib(self, ranks):
        """Resident memory of explain DIR at most, of ranks with 18,000 events each."""
        folder = os.path.join(self.out, str(ranks))
        os.mkdir(folder)
        events = []
        for i in range(6000):
            args = {"External id": i + 1, "correlation": i + 1}
            events += [
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 40 * i, "dur": 8,
                 "args": {"External id": i + 1}},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                 "ts": 40 * i + 2, "dur": 4, "args": args},
                {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 40 * i + 9, "dur": 20,
                 "args": {**args, "device": 0, "stream": 7}}]
        body = json.dumps(events)
        for rank in range(ranks):
            with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as f:
                f.write(f'{{"distributedInfo": {{"rank": {rank}, "world_size": {ranks}}}, "traceEvents": {body}}}')
        # A sanitizer keeps freed memory for a while.
        env = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1"}
        with subprocess.Popen([BINARY, "explain", folder], stdout=subprocess.DEVNULL, env=env) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return usage.ru_maxrss

    def test_traces_of_many_ranks_are_not_held_together(self):
        self.assertLess(self.peak_kib(24), 1.7 * self.peak_kib(2))

    def test_one_trace_is_explained_itself(self):
        self.write("a.json")
        self.assertEqual(json.loads(self.ok("explain", self.out, "--format", "json"))["verdict"],
                         "cpu-only")


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


class TinyProducts(CommandTest):
    def test_their_time_is_that_of_calls_and_no_rate(self):
        def product(i, rows, dur):
            return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
                    "ts": 1000 * i, "dur": dur,
                    "args": {"External id": i + 1, "Input type": ["float", "float"],
                             "Input Dims": [[rows, 16], [16, 16]], "Concrete Inputs": ["", ""]}}

        path = os.path.join(self.out, "tiny.json")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"traceEvents": [product(0, 8, 5), product(1, 800_000, 900)]}, f)
        products = json.loads(self.ok("explain", path, "--format", "json"))["host"]["products"]
        self.assertEqual([(p["shape"]["m"], p["is_dispatch"]) for p in products],
                         [(800_000, False), (8, True)])
        lines = self.ok("explain", path).splitlines()
        tiny = next(line for line in lines if "8 x 16 x 16" in line)
        self.assertRegex(tiny, r"5.00 us +call +")
        self.assertTrue(any(line.startswith("call: the product is so small") for line in lines))


class NamedCpu(CommandTest):
    def test_products_are_compared_with_its_peak(self):
        text = self.ok("explain", EAGER, "--cpu", "Sapphire Rapids @ 2.0GHz", "--cpu-threads", "2")
        self.assertIn("Sapphire Rapids, 2 cores, 2 GHz, 256 GFLOP/s f32, 4096 GFLOP/s bf16.", text)
        self.assertRegex(text, r"aten::mm  512 x 1024 x 256  bf16 .* 377\.3   9 %  ")
        page = os.path.join(self.out, "p.html")
        self.ok("report", EAGER, "--cpu", "Zen 3", "-o", page)

    def test_our_own_traces_carry_theirs(self):
        path = os.path.join(self.out, "own.json")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"schemaVersion": 1, "epilogue_recorder": {"ns_per_op": 70}, "traceEvents": [
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
                {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 0, "ts": 2, "dur": 5}]}, f)
        self.assertIn("the trace is epilogue's own", run("explain", path, "--cpu", "Zen 3").stderr)

    def test_an_unknown_one_is_misuse(self):
        self.assertIn("did you mean Zen 2, Zen 3 or Zen 4", self.misuse("explain", EAGER, "--cpu", "Zen3 X"))
        self.misuse("report", EAGER, "--cpu", "Pentium", "-o", os.path.join(self.out, "p.html"))
        self.misuse("explain", EAGER, "--cpu-threads", "4")
        self.misuse("explain", EAGER, "--cpu", "Zen 3", "--cpu-threads", "0")


class TritonSources(CommandTest):
    def test_findings_name_the_source_that_was_recorded(self):
        events = []
        for i in range(3):  # idle between them
            shared = {"ph": "X", "pid": 1, "tid": 1}
            events += [
                {**shared, "cat": "cpu_op", "name": "triton_poi_fused_add_gelu_0", "ts": 500 * i, "dur": 20,
                 "args": {"External id": i + 1, "kernel_file": "/tmp/inductor/c1.py", "kernel_backend": "triton"}},
                {**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 500 * i + 5, "dur": 5,
                 "args": {"correlation": i + 1, "External id": i + 1}},
                {"ph": "X", "cat": "kernel", "name": "triton_poi_fused_add_gelu_0", "pid": 0, "tid": 7,
                 "ts": 500 * i + 12, "dur": 100,
                 "args": {"correlation": i + 1, "External id": i + 1, "device": 0, "stream": 7}}]
        path = os.path.join(self.out, "triton.json")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"schemaVersion": 1, "traceEvents": events}, f)
        findings = json.loads(self.ok("explain", path, "--format", "json"))["findings"]
        gap = next(f for f in findings if f["id"] == "idle-gap")
        self.assertEqual(gap["sources"], [{"kernel": "triton_poi_fused_add_gelu_0", "kernel_files": 1,
                                           "kernel_file": "/tmp/inductor/c1.py", "fused_ops": ["add", "gelu"]}])
        line = "triton_poi_fused_add_gelu_0, from /tmp/inductor/c1.py (add, gelu)"
        self.assertIn(line, gap["evidence"])
        self.assertIn("    " + line + "\n", self.ok("explain", path))


class English(CommandTest):
    def explained(self, events):
        path = os.path.join(self.out, "t.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"schemaVersion": 1, "traceEvents": events}, f)
        return self.ok("explain", path)

    def test_one_of_a_thing_is_no_plural(self):
        text = self.explained([
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 50,
             "args": {"External id": 1}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 20,
             "args": {"External id": 1, "correlation": 7}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 28, "dur": 4,
             "args": {"External id": 1, "correlation": 7, "device": 0, "stream": 7}}])
        self.assertNotRegex(text, r"(?m)(^|[^0-9.,])1 (ops|kernels|events|launches|calls|times|executions)\b")
        self.assertRegex(text, "1 op, estimated at")
        # The kernel began while its launch call ran.
        self.assertIn("A kernel starts 2.00 us before its launch call ends (median)", text)
        self.assertNotRegex(text, r"-\d[\d.]* [mun]?s\b")

    def test_a_run_of_the_cpu_alone_has_no_columns_of_a_device(self):
        for text in (self.ok("explain", EAGER), self.ok("diff", EAGER, COMPILED)):
            self.assertNotRegex(text, r"(?m)^  .*  (idle|busy|kernels)\b")


class Help(CommandTest):
    def test_every_trace_command_has_help_with_an_example(self):
        for command in ("table", "explain", "diff", "check", "name", "report", "serve", "memory"):
            self.assertIn("Example: epilogue " + command, self.ok(command, "--help"), command)


if __name__ == "__main__":
    unittest.main()
