# SPDX-License-Identifier: Apache-2.0
"""--device cuda in the commands that run something, over a device without hardware whose memory the
host cannot touch (tests/backend/device/guarded_device.cpp). The tour, a series of profiles, takes
minutes there and is left out."""
import json
import random
import unittest

from command import CommandTest, run

MLP = ["--batch", "2", "--seq", "4", "--dim", "16", "--hidden", "24", "--device", "cuda"]
SHORT = ["--wait", "0", "--warmup", "0", "--active", "1"]


class Device(CommandTest):
    def json(self, *args):
        return json.loads(self.ok(*args, "--format", "json"))

    def profile(self, *args):
        return self.json("profile", *args, *SHORT, "--out", self.out, "--profile-memory",
                         "--with-flops")

    def test_info_names_it(self):
        self.assertIn("without hardware", self.json("info")["cuda"])

    def test_every_workload_is_profiled_in_every_mode(self):
        for mode in ("eager", "compile"):
            for backward in ([], ["--backward"]):
                self.profile("matmul-add", "--size", "8", "--device", "cuda", "--mode", mode,
                             *backward)
                self.profile("linear", "--batch", "4", "--device", "cuda", "--mode", mode,
                             *backward)
                self.profile("mlp", *MLP, "--mode", mode, *backward)
        rows = self.profile("mlp", *MLP, "--mode", "fused")["rows"]
        self.assertTrue(any("row_chain" in r["name"] for r in rows))

    def test_a_training_step_is_profiled_with_every_precision_and_optimizer(self):
        for amp, optimizer, mode in (("none", "sgd", "eager"), ("bf16", "adamw", "compile"),
                                     ("f16", "adam", "eager"), ("f16", "adamw", "compile")):
            rows = self.profile("train-step", *MLP, "--amp", amp, "--optimizer", optimizer,
                                "--mode", mode, "--accumulate", "2", "--row-limit", "-1")["rows"]
            self.assertTrue(any(r["name"] == f"aten::_fused_{optimizer}_" for r in rows))

    def test_compile_explains_the_plan(self):
        self.assertIn("epi_guarded_row_chain", self.ok("compile", "mlp", *MLP))

    def test_bench_times_our_modes_and_measures_the_peak(self):
        out = self.json("bench", "mlp", *MLP, "--seconds", "0.2")
        self.assertEqual([r["name"] for r in out["rows"]],
                         ["epilogue.eager", "epilogue.compile", "epilogue.fused"])
        self.assertGreater(out["peak_gflops"], 0)
        self.assertGreater(out["rows"][0]["peak_pct"], 0)
        self.assertEqual(out["machine"], "guarded")
        self.assertEqual({s["name"] for s in out["skipped"]},
                         {"onednn", "pytorch.eager", "pytorch.compile"})
        text = self.ok("bench", "linear", "--batch", "4", "--device", "cuda", "--seconds", "0.2")
        self.assertRegex(text, r"peak \d+ GFLOP/s")

    def blobs(self):
        draw = random.Random(1)
        path = f"{self.out}/blobs.csv"
        with open(path, "w", encoding="utf-8") as file:
            file.write("x,y,kind\n")
            for i in range(120):
                x, y = ((0, 0), (5, 0), (0, 5))[i % 3]
                file.write(f"{x + draw.gauss(0, 0.3)},{y + draw.gauss(0, 0.3)},{'abc'[i % 3]}\n")
        return path

    def test_training_learns(self):
        path = self.blobs()
        for i, flags in enumerate((["--amp", "none"], ["--amp", "f16", "--clip", "1"],
                                   ["--amp", "bf16", "--mode", "compile"],
                                   ["--arch", "geglu", "--mode", "compile"])):
            out = self.json("train", path, "--device", "cuda", "--epochs", "30", "--hidden", "16",
                            "--checkpoint-dir", f"{self.out}/run{i}", *flags)
            self.assertGreater(out["test_accuracy"], 0.9, flags)

    def test_a_run_goes_on_on_the_cpu(self):
        path = self.blobs()
        common = ["--epochs", "4", "--hidden", "16"]
        whole = self.json("train", path, *common, "--checkpoint-dir", f"{self.out}/whole")
        self.json("train", path, *common, "--device", "cuda", "--checkpoint-dir",
                  f"{self.out}/run")
        moved = run("train", "--resume", f"{self.out}/run", "--format", "json")
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertIn("the run began with guarded", moved.stderr)
        self.assertAlmostEqual(json.loads(moved.stdout)["test_loss"], whole["test_loss"], 4)


if __name__ == "__main__":
    unittest.main()
