# SPDX-License-Identifier: Apache-2.0
"""epilogue profile: files, counts per step, the table against an independent computation."""
import gzip
import json
import os
import struct
import subprocess
import sys
import unittest

from command import CommandTest, run

INDEPENDENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "explain", "table",
                           "independent_table.py")
MLP = ["profile", "mlp", "--batch", "2", "--seq", "8", "--dim", "64", "--hidden", "128"]


def write_safetensors(path, tensors):
    """tensors: name -> (shape, list of floats), as F32."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        blob = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def strict(text):
    def refuse(token):
        raise ValueError(f"not strict JSON: {token}")
    return json.loads(text, parse_constant=refuse)


class Profile(CommandTest):
    def profile(self, *args):
        return strict(self.ok(*args, "--out", self.out, "--format", "json", "--row-limit", "-1"))

    def trace(self, result):
        with gzip.open(result["trace"], "rt", encoding="utf-8") as f:
            return strict(f.read())

    STEP = ["profile", "train-step", "--batch", "6", "--seq", "4", "--dim", "32", "--hidden", "64"]

    def test_train_step_shows_a_whole_step(self):
        result = self.profile(*self.STEP, "--profile-memory", "--record-shapes")
        self.assertEqual(result["tag"], "6_4_32_64_none_1_eager")
        rows = {row["name"]: row for row in result["rows"]}
        for name in ("Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad",
                     "aten::_fused_adamw_", "aten::mse_loss", "MseLossBackward0",
                     "autograd::engine::evaluate_function: MmBackward0",
                     "torch::autograd::AccumulateGrad"):
            self.assertEqual(rows[name]["count"] % 3, 0, name)
        self.assertTrue(rows["Optimizer.step#AdamW.step"]["is_user_annotation"])
        events = self.trace(result)["traceEvents"]
        ends = [e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "f"]
        starts = {e["ts"] for e in events if e.get("cat") == "cpu_op"
                  and e["name"].endswith("Backward0") and "::" not in e["name"]}
        self.assertTrue(ends)
        self.assertTrue({e["ts"] for e in ends} <= starts)
        categories = result["memory"]["categories"]
        weights = 3 * 32 * 64 * 4
        self.assertEqual(categories["PARAMETER"]["at_peak_bytes"], weights)
        self.assertEqual(categories["OPTIMIZER_STATE"]["at_peak_bytes"], 2 * weights + 3 * 4)
        self.assertEqual(categories["INPUT"]["at_peak_bytes"], 2 * 6 * 4 * 32 * 4)
        self.assertEqual(categories["GRADIENT"]["peak_bytes"], weights)
        self.assertGreater(categories["ACTIVATION"]["peak_bytes"], 0)
        self.assertEqual(sum(c["at_peak_bytes"] for c in categories.values()),
                         result["memory"]["peak_bytes"])

    def test_the_memory_of_a_plan_is_temporary(self):
        result = self.profile(*self.STEP, "--mode", "compile", "--profile-memory")
        categories = result["memory"]["categories"]
        # Gradients lie in it too.
        self.assertEqual(categories["GRADIENT"]["peak_bytes"], 0)
        self.assertGreater(categories["TEMPORARY"]["peak_bytes"], 3 * 32 * 64 * 4)

    def test_train_step_amp_and_accumulation(self):
        result = self.profile(*self.STEP, "--amp", "bf16", "--accumulate", "4")
        self.assertEqual(result["tag"], "6_4_32_64_bf16_4_eager")
        rows = {row["name"]: row for row in result["rows"]}
        # 6 rows in 4: three micro-batches of 2 rows; 3 steps recorded.
        self.assertEqual(rows["aten::mse_loss"]["count"], 3 * 3)
        self.assertEqual(rows["aten::_fused_adamw_"]["count"], 3)
        kernels = {e["name"] for e in self.trace(result)["traceEvents"]
                   if e.get("cat") == "kernel"}
        self.assertTrue(any("gemm_bf16" in k for k in kernels), kernels)
        result = self.profile(*self.STEP, "--amp", "f16", "--optimizer", "sgd")
        self.assertEqual(result["tag"], "6_4_32_64_f16_1_eager")
        names = {row["name"] for row in result["rows"]}
        self.assertIn("aten::_amp_foreach_non_finite_check_and_unscale_", names)
        self.assertIn("Optimizer.step#SGD.step", names)

    def test_train_step_misuse(self):
        for flags, message in (
                (["--amp", "f8"], "--amp: expected none, bf16 (bfloat16) or f16 (float16, fp16, half), got 'f8'"),
                (["--amp", "bf16", "--dtype", "bf16"],
                 "epilogue profile train-step: --amp: expected --dtype f32 (the weights' own), got 'bf16'"),
                (["--optimizer", "lion"],
                 "--optimizer: expected adamw, adam or sgd, got 'lion'"),
                (["--accumulate", "0"], "--accumulate: expected a whole number of 1 or more, got '0'"),
                (["--mode", "fused"], "--mode: expected eager or compile for a training step, got 'fused'")):
            self.assertIn(message, self.misuse(*self.STEP, *flags, "--out", self.out))

    def test_measured_peaks_place_products_on_the_roofline(self):
        machine = os.path.join(self.out, "machine.json")
        with open(machine, "w", encoding="utf-8") as f:
            f.write(self.ok("info", "--measure", "--format", "json"))
        for args in (["--measure"], ["--machine", machine]):
            result = self.profile(*MLP, "--dtype", "f32", "--record-shapes", *args)
            data = self.trace(result)
            self.assertGreater(data["f32_peak_gflops"], 0)
            self.assertGreater(data["memory_read_gb_per_s"], 0)
            self.assertGreater(data["row_chain"]["overhead_us"], 0)
            found = strict(self.ok("explain", result["trace"], "--format", "json"))
            self.assertTrue(found["gemms"])
            for g in found["gemms"]:
                self.assertAlmostEqual(g["peak_tflops"], data["f32_peak_gflops"] / 1e3)
                self.assertAlmostEqual(g["peak_pct"], g["tflops"] / g["peak_tflops"] * 100)
                self.assertIn(g["roofline_side"], ("memory", "compute"))
        compiled = self.profile(*MLP, "--dtype", "f32", "--mode", "compile", "--machine", machine)
        g = strict(self.ok("explain", compiled["trace"], "--format", "json"))["gemms"][0]
        self.assertIsNone(g["shape"])
        # Three products of 16 rows, 64 x 128, and gelu and mul of 16 x 128.
        self.assertGreaterEqual(g["flops"], 3 * 2 * 16 * 64 * 128)
        self.assertGreater(g["peak_pct"], 0)

    def test_a_trace_that_was_not_measured_has_no_roofline(self):
        result = self.profile(*MLP, "--dtype", "f32", "--record-shapes")
        data = self.trace(result)
        self.assertNotIn("f32_peak_gflops", data)
        self.assertGreaterEqual(data["threads"], 1)
        self.assertIn("isa_used", data)
        found = strict(self.ok("explain", result["trace"], "--format", "json"))
        self.assertTrue(all(g["peak_pct"] is None for g in found["gemms"]))

    def test_a_machine_file_must_fit(self):
        other = os.path.join(self.out, "other.json")
        for text, said in (("{}", "expected what epilogue info --measure"), ("no JSON", "expected what"),
                           ('{"f32_peak_gflops": 1, "threads": 999}', "measured with threads")):
            with open(other, "w", encoding="utf-8") as f:
                f.write(text)
            self.assertIn(said, self.misuse(*MLP, "--machine", other, "--out", self.out))
        self.assertIn("nowhere", self.misuse(*MLP, "--machine", "nowhere.json"))

    def test_mlp_per_step_counts(self):
        result = self.profile(*MLP)
        self.assertEqual(result["tag"], "2_8_64_128_eager")
        q = result["quantities"]
        self.assertEqual(q["steps"], 3)
        self.assertEqual(q["kernels_per_step"], 5)
        self.assertEqual(q["gemm_kernels_per_step"], 3)
        events = self.trace(result)["traceEvents"]
        steps = [e for e in events if e.get("cat") == "user_annotation"
                 and e["name"].startswith("ProfilerStep#")]
        self.assertEqual([s["name"] for s in steps], [f"ProfilerStep#{i}" for i in (2, 3, 4)])
        launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
        for step in steps:
            inside = [e for e in events if e.get("cat") == "cpu_op" and e["tid"] == step["tid"]
                      and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
            names = [e["name"] for e in inside]
            self.assertEqual(names.count("aten::linear"), 3)
            kernels = [e for e in events if e.get("cat") == "kernel"
                       and step["ts"] <= launches[e["args"]["correlation"]]["ts"]
                       < step["ts"] + step["dur"]]
            self.assertEqual(len(kernels), 5)
            by_op = {}
            op_name = {e["args"]["External id"]: e["name"] for e in inside}
            for k in kernels:
                by_op.setdefault(op_name[k["args"]["External id"]], []).append(k["name"])
            self.assertEqual({n: len(v) for n, v in by_op.items()},
                             {"aten::mm": 3, "aten::gelu": 1, "aten::mul": 1})
            for view in ("aten::t", "aten::transpose", "aten::as_strided", "aten::reshape",
                         "aten::view", "aten::_unsafe_view"):
                self.assertIn(view, names)
                self.assertNotIn(view, by_op)

    def test_trace_is_what_kineto_writes(self):
        trace = self.trace(self.profile(*MLP, "--record-shapes", "--profile-memory"))
        for key in ("schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds",
                    "traceEvents", "traceName", "record_shapes", "profile_memory"):
            self.assertIn(key, trace)
        self.assertEqual(trace["baseTimeNanoseconds"] % (7889238 * 10**9), 0)
        self.assertIn("epilogue_recorder", trace)
        events = trace["traceEvents"]
        kernel = next(e for e in events if e.get("cat") == "kernel")
        for key in ("External id", "device", "stream", "correlation", "grid", "block", "bytes",
                    "flops", "threads"):
            self.assertIn(key, kernel["args"])
        flows = [e for e in events if e.get("cat") == "ac2g"]
        starts = {e["id"] for e in flows if e["ph"] == "s"}
        ends = {e["id"] for e in flows if e["ph"] == "f" and e["bp"] == "e"}
        self.assertEqual(starts, ends)
        self.assertEqual(len(starts), 15)
        labels = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
        self.assertIn("CPU", labels[kernel["pid"]])
        self.assertIn("synchronous", labels[kernel["pid"]])
        linear = next(e for e in events if e["name"] == "aten::linear")
        self.assertEqual(linear["args"]["Input Dims"], [[2, 8, 64], [128, 64], []])
        memory = [e for e in events if e["name"] == "[memory]"]
        self.assertTrue(memory)
        self.assertEqual(memory[0]["args"]["Device Type"], 0)
        self.assertEqual(events[-1]["name"], "Record Window End")

    def test_table_equals_an_independent_one(self):
        cases = [MLP + ["--record-shapes", "--profile-memory", "--with-flops"],
                 MLP + ["--backward", "--dtype", "f32"],
                 ["profile", "linear", "--batch", "32", "--with-stack"],
                 ["profile", "matmul-add", "--size", "32", "--cold"]]
        for args in cases:
            result = self.profile(*args)
            table = os.path.join(self.out, "table.json")
            with open(table, "w") as f:
                json.dump(result, f)
            check = subprocess.run([sys.executable, INDEPENDENT, result["trace"], table],
                                   capture_output=True, text=True)
            self.assertEqual(check.returncode, 0, f"{args}: {check.stdout}{check.stderr}")

    def test_text_table_is_kept_and_printed(self):
        text = self.ok(*MLP, "--out", self.out)
        with open(os.path.join(self.out, "2_8_64_128_eager.txt")) as f:
            table = f.read()
        self.assertIn(table, text)
        self.assertIn("ProfilerStep*", table)
        self.assertIn("Self KERNEL", table)
        self.assertIn("Self CPU time total:", table)

    def test_linear_is_one_kernel_with_the_bias_in_it(self):
        result = self.profile("profile", "linear", "--batch", "16")
        self.assertEqual(result["tag"], "16_32_64_eager")
        self.assertEqual(result["quantities"]["kernels_per_step"], 1)
        kernels = [r["name"] for r in result["rows"] if r["name"].startswith("epi_")]
        self.assertEqual(len(kernels), 1)
        self.assertTrue(kernels[0].endswith("_bias"), kernels)
        names = {r["name"] for r in result["rows"]}
        self.assertTrue({"aten::linear", "aten::t", "aten::addmm"} <= names)
        self.assertNotIn("aten::add", names)

    def test_expectations(self):
        self.ok(*MLP, "--out", self.out, "--expect", "kernels_per_step == 5",
                "--expect", "gemm_kernels_per_step == 3")
        failed = run(*MLP, "--out", self.out, "--expect", "kernels_per_step < 5")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("FAILS (found 5)", failed.stdout)
        unknown = self.misuse(*MLP, "--out", self.out, "--expect", "kernel_per_step == 5")
        self.assertIn("--expect: expected a quantity of epilogue check --list, got "
                      "'kernel_per_step'; did you mean kernels_per_step", unknown)
        self.assertIn("expected NAME OP NUMBER", self.misuse(*MLP, "--expect", "five kernels"))

    def test_a_replaced_trace_of_other_settings_is_said(self):
        linear = ["profile", "linear", "--batch", "4", "--out", self.out]
        first = run(*linear, "--dtype", "f32")
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertEqual(run(*linear, "--dtype", "float32").stderr, "")
        other = run(*linear)
        self.assertEqual(other.returncode, 0)
        self.assertIn("4_32_64_eager.json.gz replaces the trace of other settings", other.stderr)
        self.assertIn("f32, eager", other.stderr)
        self.assertEqual(len(other.stderr.splitlines()), 1)
        backward = run(*linear, "--backward")
        self.assertIn("replaces the trace of other settings", backward.stderr)

    def test_a_tag_keeps_runs_apart(self):
        linear = ["profile", "linear", "--batch", "4"]
        result = self.profile(*linear, "--tag", "mine")
        self.assertEqual(result["tag"], "mine")
        self.assertEqual(result["trace"], os.path.join(self.out, "mine.json.gz"))
        self.assertTrue(os.path.exists(os.path.join(self.out, "mine.txt")))
        self.assertIn("--tag: expected a file name", self.misuse(*linear, "--tag", "../mine"))

    def test_schedule_flags(self):
        result = self.profile("profile", "linear", "--batch", "4", "--wait", "0", "--warmup", "0",
                              "--active", "7")
        self.assertEqual(result["quantities"]["steps"], 7)
        self.assertIn("active", self.misuse("profile", "linear", "--active", "0"))

    def test_variants_run(self):
        for extra in (["--activation", "swiglu", "--norm", "rms", "--residual"],
                      ["--activation", "gelu", "--layers", "3", "--bias"],
                      ["--norm", "layer", "--dtype", "f16"], ["--backward"]):
            self.profile(*MLP, *extra)
        self.assertIn("1 layer", self.misuse(*MLP, "--layers", "2"))

    def test_weights_with_hugging_face_names(self):
        path = os.path.join(self.out, "model.safetensors")
        prefix = "model.layers.0.mlp"
        shapes = {"gate_proj": [6, 4], "up_proj": [6, 4], "down_proj": [4, 6]}
        write_safetensors(path, {f"{prefix}.{n}.weight": (s, [0.1] * 24) for n, s in shapes.items()})
        result = self.profile("profile", "mlp", "--batch", "1", "--seq", "2", "--weights", path,
                              "--prefix", prefix, "--activation", "swiglu")
        self.assertEqual(result["tag"], "1_2_4_6_eager")
        # The names are Llama's: SwiGLU, and the command says that this is assumed.
        mlp = ["profile", "mlp", "--batch", "1", "--seq", "2", "--weights", path, "--prefix", prefix]
        self.assertIn("mlp: swiglu (assumed for llama) [1, 2, 4] -> 6", self.profile(*mlp)["workload"])
        self.assertIn("mlp: reglu [1, 2, 4]", self.profile(*mlp, "--activation", "reglu")["workload"])
        self.assertIn("mlp: swiglu (assumed for llama, not gelu: its MLP is gated) [1, 2, 4]",
                      self.profile(*mlp, "--activation", "gelu")["workload"])
        with open(os.path.join(self.out, "config.json"), "w") as f:
            json.dump({"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, f)
        self.assertIn("mlp: geglu (of config.json) [1, 2, 4]", self.profile(*mlp)["workload"])
        with open(os.path.join(self.out, "config.json"), "w") as f:
            json.dump({"hidden_act": "xielu"}, f)
        self.assertIn("mlp: swiglu (assumed for llama, config.json's xielu is not known)",
                      self.profile(*mlp)["workload"])
        line = self.misuse("profile", "mlp", "--weights", path, "--prefix", "model.layers.9.mlp")
        self.assertIn("model.safetensors", line)
        with open(path, "r+b") as f:
            f.truncate(40)
        self.assertIn("InvalidHeaderLength", self.misuse("profile", "mlp", "--weights", path))

    def test_input_from_a_file(self):
        path = os.path.join(self.out, "x.safetensors")
        write_safetensors(path, {"input": ([3, 8], [0.5] * 24)})
        result = self.profile("profile", "linear", "--input", path, "--out-dim", "5")
        self.assertEqual(result["tag"], "3_8_5_eager")
        self.assertIn("cannot read", self.misuse("profile", "linear", "--input", "none.safetensors"))

    def test_output_folder_that_cannot_be_written(self):
        self.assertIn("cannot", self.misuse("profile", "linear", "--batch", "2", "--out",
                                            "/proc/epilogue"))


if __name__ == "__main__":
    unittest.main()
