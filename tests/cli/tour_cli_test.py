# SPDX-License-Identifier: Apache-2.0
"""epilogue tour on real images (skipped, visibly, where the data set is not installed)."""
import json
import os
import re
import unittest
import xml.dom.minidom

from command import CommandTest

IMAGES = "/usr/share/datasets/fashion-mnist"


@unittest.skipUnless(os.path.isdir(IMAGES), "package dataset-fashion-mnist is not installed")
class Tour(CommandTest):
    def test_quick_tour(self):
        tour = json.loads(self.ok("tour", "--quick", "--out", self.out, "--format", "json"))
        self.assertEqual([s["quantities"]["kernels_per_step"] for s in tour["stops"]], [2, 1, 5, 1, 1])
        for stop in tour["stops"]:
            self.assertTrue(os.path.exists(stop["trace"]))
            self.assertTrue(os.path.exists(stop["table_file"]))
            with open(stop["page"], encoding="utf-8") as page:
                self.assertIn("<!doctype html>", page.read(100))
        self.check_fusion(tour["fusion"])
        sizes = [row["size"] for row in tour["crossover"]]
        self.assertEqual(sizes, [4, 8, 16, 32, 64, 128, 256, 512])
        kernel = [row["kernel_us"] for row in tour["crossover"]]
        self.assertGreater(kernel[-1], kernel[0])
        xml.dom.minidom.parse(tour["crossover_plot"])

    def check_fusion(self, fusion):
        eager, compiled, fused = fusion["modes"]
        self.assertEqual([m["mode"] for m in fusion["modes"]], ["eager", "compile", "fused"])
        # Three hidden tensors beside the result, of 2 * 128 rows of 3072 bf16 values.
        self.assertGreaterEqual(eager["intermediate_bytes"], 256 * 2 * 3 * 3072)
        # Scratch does not grow with the rows: here there are few, so it is much of eager's.
        for mode in (compiled, fused):
            self.assertLess(mode["intermediate_bytes"], eager["intermediate_bytes"])
        # A prediction from times just measured: on a busy machine it may even be a loss, but nothing
        # saves more than there is.
        self.assertLess(fusion["predicted_saving_us"], fusion["eager_to_compile"]["wall_us"][0])
        for mode in (eager, compiled, fused):
            self.assertLessEqual(mode["speed_up_low"], mode["speed_up"])
            self.assertLessEqual(mode["speed_up"], mode["speed_up_high"])
        diff = fusion["eager_to_compile"]
        change = sum(part["delta_us"] for part in diff["parts"])
        self.assertAlmostEqual(change, diff["wall_us"][1] - diff["wall_us"][0], places=2)
        fused_part = next(p for p in diff["parts"] if p["what"].endswith(": fused"))
        self.assertEqual(fused_part["kernels"], [15, 3])
        self.assertIn("15 kernels of aten::mm, aten::gelu, aten::mul became 3", fused_part["why"])
        self.assertGreater(fused_part["bytes"][0], fused_part["bytes"][1])
        with open(fusion["page"], encoding="utf-8") as page:
            self.assertIn("<!doctype html>", page.read(100))

    def test_text_names_every_step_and_its_files(self):
        text = self.ok("tour", "--quick", "--out", self.out)
        for part in ("matmul + add", "nn.Linear", "the GeGLU MLP", "compile()", "fused_gated_mlp",
                     "became 3; ", "interleaved rounds; noise", "Predicted from the eager trace", "overhead-bound", "crossover.svg",
                     "ui.perfetto.dev"):
            self.assertIn(part, text)
        self.assertEqual(text.count("Page: "), 6)
        rows = [line for line in text.splitlines() if len(re.findall(r"\S {2,}\S", line)) > 1]
        self.assertGreater(len(rows), 40)
        self.assertLessEqual(max(map(len, rows)), 100)
        lines = text.rstrip().splitlines()
        self.assertIn("What one may conclude", lines[-4:])
        self.assertIn("compile", lines[-2])
        self.assertIn("n =", lines[-1])

    def test_profile_on_images(self):
        result = json.loads(self.ok("profile", "mlp", "--input", "fashion-mnist", "--batch", "1",
                                    "--seq", "16", "--hidden", "64", "--out", self.out, "--format",
                                    "json"))
        self.assertEqual(result["tag"], "1_16_784_64_eager")


if __name__ == "__main__":
    unittest.main()
