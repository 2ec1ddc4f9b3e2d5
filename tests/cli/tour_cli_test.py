# SPDX-License-Identifier: Apache-2.0
"""epilogue tour on real images (skipped, visibly, where the data set is not installed)."""
import json
import os
import unittest
import xml.dom.minidom

from command import CommandTest

IMAGES = "/usr/share/datasets/fashion-mnist"


@unittest.skipUnless(os.path.isdir(IMAGES), "package dataset-fashion-mnist is not installed")
class Tour(CommandTest):
    def test_quick_tour(self):
        tour = json.loads(self.ok("tour", "--quick", "--out", self.out, "--format", "json"))
        self.assertEqual([s["quantities"]["kernels_per_step"] for s in tour["stops"]], [2, 1, 5])
        for stop in tour["stops"]:
            self.assertTrue(os.path.exists(stop["trace"]))
            self.assertTrue(os.path.exists(stop["table_file"]))
        sizes = [row["size"] for row in tour["crossover"]]
        self.assertEqual(sizes, [4, 8, 16, 32, 64, 128, 256, 512])
        kernel = [row["kernel_us"] for row in tour["crossover"]]
        self.assertGreater(kernel[-1], kernel[0])
        xml.dom.minidom.parse(tour["crossover_plot"])

    def test_text_names_every_step_and_its_files(self):
        text = self.ok("tour", "--quick", "--out", self.out)
        for part in ("matmul + add", "nn.Linear", "the GeGLU MLP", "overhead-bound", "crossover.svg",
                     "ui.perfetto.dev"):
            self.assertIn(part, text)

    def test_profile_on_images(self):
        result = json.loads(self.ok("profile", "mlp", "--input", "fashion-mnist", "--batch", "1",
                                    "--seq", "16", "--hidden", "64", "--out", self.out, "--format",
                                    "json"))
        self.assertEqual(result["tag"], "1_16_784_64_eager")


if __name__ == "__main__":
    unittest.main()
