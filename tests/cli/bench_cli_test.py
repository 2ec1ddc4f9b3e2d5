# SPDX-License-Identifier: Apache-2.0
"""bench: contenders agree, rows hold what they promise, sweeps leave files."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from command import BINARY, CommandTest, run

MLP = ("mlp", "--batch", "2", "--seq", "3", "--dim", "32", "--hidden", "64")
FAST = ("--seconds", "0.05", "--format", "json")
OURS = ["epilogue.eager", "epilogue.compile", "epilogue.fused"]
NAMES = OURS + ["onednn", "pytorch.eager", "pytorch.compile"]
LOOPS = ["naive loops", "+ blocked", "+ packed"]  # of the ladder
QUIET = {"EPILOGUE_PYTHON": ""}


def torch_python():
    """A Python with PyTorch, as the user names it, or None."""
    python = os.environ.get("EPILOGUE_PYTHON")
    if python and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
        return python
    return None


class FewerBits(CommandTest):
    def rows(self, *bits):
        result = run("bench", *MLP, *FAST, *bits, env=QUIET)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {row["name"]: row for row in json.loads(result.stdout)["rows"]}

    def test_a_contender_of_its_own_loses_what_its_bits_cost(self):
        exact = self.rows()["epilogue.compile"]["rel_l2_error"]
        for name, bits, least, most in (
                ("epilogue.int8", ("--weight-bits", "int8"), 1e-3, 5e-2),
                ("epilogue.w8a8", ("--weight-bits", "int8", "--activation-bits", "int8"), 1e-3, 5e-2),
                ("epilogue.int4", ("--weight-bits", "int4", "--group", "32", "--zero-points"), 2e-2, 4e-1)):
            rows = self.rows(*bits)
            self.assertGreater(rows[name]["rel_l2_error"], least)
            self.assertLess(rows[name]["rel_l2_error"], most)
            self.assertEqual(rows["epilogue.compile"]["rel_l2_error"], exact)

    def test_choices_that_do_not_fit_are_named(self):
        for bits, line in (
                (("--activation-bits", "int8"), "--activation-bits: expected --weight-bits int8 or int4 beside int8 "
                                                "activations, got same"),
                (("--weight-bits", "int8", "--group", "32"), "--group, --zero-points: expected --weight-bits int4 "
                                                             "beside them, got int8"),
                (("--weight-bits", "int4", "--group", "48"), "--group: expected 32 or 128, got 48")):
            result = run("bench", *MLP, *bits, env=QUIET)
            self.assertEqual(result.returncode, 2)
            self.assertIn(line, result.stderr)
        result = run("profile", *MLP, "--weight-bits", "int4", env=QUIET)
        self.assertEqual(result.returncode, 2)
        self.assertIn("expected --mode compile or fused", result.stderr)


class Portability(CommandTest):
    def portability(self, *args):
        result = run("bench", "portability", "--quick", "--levels", "avx2", "--seconds", "0.01",
                     "--rounds", "3", "--dtypes", "f32", *args, env=QUIET)
        # Whether a plan is slower is the machine's answer: 0 or 1.
        self.assertIn(result.returncode, (0, 1), result.stderr)
        return result

    def test_cells_have_ratios_and_intervals(self):
        result = self.portability("--quiet-only", "--format", "json")
        out = json.loads(result.stdout)
        self.assertEqual(out["schema_version"], 1)
        self.assertEqual(out["disagreements"], [])
        shapes = [c["shape"] for c in out["cells"]]
        self.assertIn("linear 1x32x64", shapes)
        self.assertIn("mlp 64x64x256", shapes)
        self.assertIn("step 256x64x256", shapes)
        slow = 0
        for cell in out["cells"]:
            self.assertEqual((cell["isa"], cell["dtype"], cell["disturbance"]),
                             ("avx2", "f32", "quiet"))
            self.assertGreater(cell["floor_us"], 0)
            names = [row["name"] for row in cell["rows"]]
            self.assertEqual(names[:2], ["epilogue.eager", "epilogue.compile"])
            for row in cell["rows"]:
                self.assertGreaterEqual(row["rounds"], 3)
                self.assertLessEqual(row["ratio_low"], row["ratio_to_eager"])
                self.assertLessEqual(row["ratio_to_eager"], row["ratio_high"])
                slow += row["too_slow"]
            if cell["shape"].startswith("mlp 1x"):
                self.assertIn("epilogue.int8", names)
        self.assertEqual(out["too_slow"], slow)
        self.assertEqual(result.returncode, 1 if slow else 0)

    def test_text_names_the_worst_and_the_disturbances(self):
        text = self.portability().stdout
        for part in ("worst ratio to eager", "avx2, quiet", "avx2, memory", "avx2, busy core",
                     "fused: the row chain itself", "compiled training step", "of floor"):
            self.assertIn(part, text)
        for line in text.splitlines():
            if " x " not in line and "mlp " in line:
                self.assertLessEqual(len(line), 120)

    def test_an_installed_command_says_what_is_missing(self):
        # A command without its build folder: a copy.
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(BINARY, folder)
            for name in ("ladder", "portability"):
                done = subprocess.run([alone, "bench", name, "--seconds", "1"], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(done.stderr, f"epilogue bench {name}: expected the executable "
                                 f"{os.path.realpath(folder)}/bench/epilogue_bench, got none: only build folders "
                                 "have it (cmake --build BUILD --target epilogue_bench)\n")
                done = subprocess.run([alone, "bench", name, "--help"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0)
                self.assertIn(f"Example: epilogue bench {name}", done.stdout)

    def test_misuse(self):
        self.assertIn("expected baseline, avx2", self.misuse("bench", "portability", "--levels", "avx9"))


class Bench(CommandTest):
    def bench(self, *args, env=None):
        return json.loads(self.ok("bench", *args, *FAST, env=env or QUIET))

    def isa(self):
        return json.loads(self.ok("info", "--format", "json"))["isa_used"]

    def check_rows(self, out, names):
        ran = [r["name"] for r in out["rows"]]
        for name in names:
            self.assertIn(name, ran)
        for row in out["rows"]:
            self.assertIn(row["name"], NAMES)
            self.assertGreater(row["min_us"], 0)
            self.assertGreaterEqual(row["median_us"], row["min_us"])
            self.assertGreaterEqual(row["mad_us"], 0)
            self.assertAlmostEqual(row["peak_pct"], row["gflops"] / out["peak_gflops"] * 100)
            self.assertLess(row["rel_l2_error"], 5e-3)
        self.assertEqual(sorted(ran + [s["name"] for s in out["skipped"]]), sorted(NAMES))
        return {r["name"]: r for r in out["rows"]}

    def test_an_mlp_has_the_rows_that_scripts_rely_on(self):
        out = self.bench(*MLP, "--dtype", "f32", "--threads", "2")
        rows = self.check_rows(out, OURS)
        self.assertEqual((out["workload"], out["dtype"], out["threads"]), ("mlp", "f32", 2))
        self.assertEqual(out["shape"],
                         {"batch": 2, "seq": 3, "dim": 32, "hidden": 64, "layers": 1})
        self.assertGreater(out["peak_gflops"], 0)
        self.assertEqual(out["schema_version"], 1)
        eager = rows["epilogue.eager"]
        # GFLOP/s count the three products of 6 rows.
        self.assertAlmostEqual(eager["gflops"] * eager["min_us"] * 1e3, 3 * 2 * 6 * 32 * 64)
        self.assertEqual(eager["speedup_vs_eager"], 1)
        # gelu(gate), up and their product, and perhaps the gate itself: three or four hidden tensors.
        self.assertIn(eager["peak_intermediate_bytes"], (3 * 6 * 64 * 4, 4 * 6 * 64 * 4))
        # Two threads hold at most 6 rows of hidden values in all, in f32; padded rows are the kernel's.
        for name in OURS[1:]:
            self.assertGreater(rows[name]["peak_intermediate_bytes"], 0)
            self.assertLess(rows[name]["peak_intermediate_bytes"], eager["peak_intermediate_bytes"])

    def test_every_workload_runs_in_every_dtype(self):
        for dtype in ("f32", "bf16", "f16"):
            self.check_rows(self.bench(*MLP, "--dtype", dtype), OURS)
        two = ["epilogue.eager", "epilogue.compile"]
        self.check_rows(self.bench("linear", "--batch", "5"), two)
        out = self.bench("matmul-add", "--size", "9")
        self.check_rows(out, two)
        self.assertEqual(out["shape"], {"size": 9})
        self.assertIn("no fused op", {s["name"]: s["reason"] for s in out["skipped"]}["epilogue.fused"])

    def test_variants_agree(self):
        for extra in (("--norm", "rms", "--residual"), ("--norm", "layer", "--bias"),
                      ("--activation", "relu", "--layers", "3"), ("--activation", "swiglu"),
                      ("--activation", "gelu", "--bias", "--residual")):
            self.check_rows(self.bench(*MLP, "--dtype", "f32", *extra),
                            ["epilogue.eager", "epilogue.compile"])

    def test_a_disagreement_is_exit_1_and_names_the_contender(self):
        result = run("bench", *MLP, *FAST, "--tolerance", "1e-12", env=QUIET)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn("results differ: epilogue.eager: relative L2 error", result.stderr)
        self.assertIn("epilogue.compile", result.stderr)
        result = run("bench", "ladder", "--rows", "3", "--dim", "8", "--hidden", "16",
                     "--tolerance", "0", *FAST)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("gemm, naive loops", result.stderr)

    def test_a_sweep_writes_plot_and_table(self):
        out = self.bench("matmul-add", "--sweep", "--sizes", "8", "16", "--dtype", "f32",
                         "--out", self.out)
        self.assertEqual(out["swept"], "size")
        self.assertEqual(out["shape"], [{"size": 8}, {"size": 16}])
        self.assertEqual([r["shape"]["size"] for r in out["rows"] if r["name"] == "epilogue.eager"],
                         [8, 16])
        self.assertEqual(out["plot"], self.out + "/bench_matmul-add_f32.svg")
        with open(out["plot"], encoding="utf-8") as f:
            svg = f.read()
        self.assertTrue(svg.startswith("<svg") and svg.rstrip().endswith("</svg>"))
        for series in ("epilogue.eager", "epilogue.compile", "peak"):
            self.assertIn(f">{series}<", svg)
        with open(out["table"], encoding="utf-8") as f:
            table = f.read()
        self.assertIn("| size | epilogue.eager | epilogue.compile |", table)
        self.assertRegex(table, r"\n\| 16 \| [0-9.]+ \|")
        out = self.bench(*MLP, "--sweep", "--sizes", "1", "3", "--out", self.out)
        self.assertEqual([s["batch"] * s["seq"] for s in out["shape"]], [1, 3])

    def test_text_and_markdown_have_all_contenders(self):
        text = self.ok("bench", *MLP, "--seconds", "0.05", env=QUIET)
        markdown = self.ok("bench", *MLP, "--seconds", "0.05", "--format", "markdown", env=QUIET)
        for name in NAMES:
            self.assertIn(name, text)
            self.assertIn(name, markdown)
        self.assertIn("| epilogue.compile |", markdown)
        self.assertIn("--torch PYTHON", text)

    def ladder(self, dtype, env=None):
        return json.loads(self.ok("bench", "ladder", "--rows", "7", "--dim", "24", "--hidden", "40",
                                  "--dtype", dtype, *FAST, env=env))

    def check_ladders(self, out, steps, mlp_steps):
        gemm, mlp = out["ladders"]
        self.assertEqual((gemm["name"], gemm["shape"]), ("gemm", [7, 24, 24]))
        self.assertEqual([r["name"] for r in gemm["rows"]], steps)
        self.assertEqual([r["name"] for r in mlp["rows"]],
                         mlp_steps + ["+ epilogue", "+ merged gate/up", "+ row chain",
                                      "+ overlapped epilogue"])
        peak = out.get("random_peak_gflops", out["peak_gflops"])
        for ladder in (gemm, mlp):
            rows = ladder["rows"]
            self.assertEqual(rows[0]["factor"], 1)
            for below, row in zip(rows, rows[1:]):
                self.assertAlmostEqual(row["factor"], below["min_us"] / row["min_us"])
                self.assertTrue(row["removes"].startswith("Removes "))
            for row in rows:
                self.assertAlmostEqual(row["peak_pct"], row["gflops"] / peak * 100)

    def test_the_ladder_names_each_step_and_what_it_removed(self):
        steps = LOOPS + ["+ vector kernel"]
        # Without tiles: both dtypes have the same steps, and one peak.
        level = "avx512_bf16" if self.isa() == "amx" else None
        for dtype, env in (("f32", None), ("bf16", {"EPILOGUE_ISA": level} if level else None)):
            out = self.ladder(dtype, env)
            self.assertNotIn("random_peak_gflops", out)
            self.check_ladders(out, steps, steps)
        text = self.ok("bench", "ladder", "--rows", "2", "--dim", "8", "--hidden", "8",
                       "--seconds", "0.05")
        self.assertIn("stays in L2", text)
        self.assertIn("while the tiles of the next block multiply", text)
        self.assertNotIn("random values", text)

    def test_on_tiles_the_ladder_names_their_techniques_and_both_peaks(self):
        if self.isa() != "amx":
            self.skipTest(f"needs AMX, found {self.isa()}")
        steps = LOOPS + ["+ vector kernel", "+ tile unit", "+ tiled rows", "+ overlapped stores", "+ lines ahead",
                         "+ cache blocks", "+ streamed stores"]
        out = self.ladder("bf16")
        self.check_ladders(out, steps, LOOPS + ["+ tile kernel"])
        self.assertGreater(out["random_peak_gflops"], 0)
        text = self.ok("bench", "ladder", "--rows", "2", "--dim", "8", "--hidden", "8", "--dtype", "bf16",
                       "--seconds", "0.05")
        # The header, before any share.
        self.assertRegex(text.splitlines()[0], r"; bf16 peak \d+ GFLOP/s of zeros, \d+ GFLOP/s of random values "
                                               r"\(shares are of the latter\); noise")
        # One sentence for each step of either ladder.
        lines = [line for line in text.splitlines() if line.startswith("- ")]
        self.assertEqual([line.split(":")[0] for line in lines],
                         ["- " + name for name in steps + ["+ tile kernel", "+ epilogue", "+ merged gate/up",
                                                           "+ row chain", "+ overlapped epilogue"]])

    def test_a_python_without_pytorch_is_a_reason_not_a_failure(self):
        out = self.bench(*MLP, "--torch", "/nonexistent/python")
        reasons = {s["name"]: s["reason"] for s in out["skipped"]}
        self.assertIn("/nonexistent/python", reasons["pytorch.eager"])
        # -S -E: this very interpreter without site-packages.
        wrapper = os.path.join(self.out, "python")
        with open(wrapper, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
        os.chmod(wrapper, 0o755)
        out = self.bench(*MLP, env={"EPILOGUE_PYTHON": wrapper})
        reasons = {s["name"]: s["reason"] for s in out["skipped"]}
        self.assertIn("PyTorch is not installed", reasons["pytorch.compile"])

    @unittest.skipUnless(torch_python(), "EPILOGUE_PYTHON names no Python with PyTorch")
    def test_pytorch_agrees_on_the_same_bits(self):
        python = torch_python()
        # Few, for torch.compile takes its time.
        for args in (("matmul-add", "--size", "17", "--dtype", "f32"),
                     (*MLP, "--norm", "rms", "--residual", "--dtype", "bf16")):
            self.check_rows(self.bench(*args, "--torch", python), ["pytorch.eager"])

    def test_misuse(self):
        self.assertIn("--sizes", self.misuse("bench", "mlp", "--sizes", "4"))
        self.assertIn("1 or more", self.misuse("bench", "linear", "--sweep", "--sizes", "0"))
        self.assertIn("--seconds", self.misuse("bench", "linear", "--seconds", "0"))
        self.assertIn("f32 or bf16", self.misuse("bench", "ladder", "--dtype", "f16"))
        self.assertIn("1 or more", self.misuse("bench", "ladder", "--rows", "0"))
        self.assertIn("--dtype", self.misuse("bench", "linear", "--dtype", "f64"))
        self.misuse("bench", "mlp", "--mode", "compile")
        self.misuse("bench", "linear", "--device", "cuda")
        self.misuse("bench")


if __name__ == "__main__":
    unittest.main()
