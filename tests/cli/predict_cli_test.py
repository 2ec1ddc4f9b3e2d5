# SPDX-License-Identifier: Apache-2.0
"""bench/predict_fusion.py on one small workload: its files, its summary, what it refuses."""
import os
import subprocess
import sys
import unittest
import xml.dom.minidom

from command import BINARY, CommandTest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench",
                      "predict_fusion.py")


class Predict(CommandTest):
    def predict(self, *args):
        return subprocess.run([sys.executable, SCRIPT, BINARY, "--out", self.out, "--repeat", "1",
                               *args], capture_output=True, text=True, timeout=280)

    def test_predicts_and_measures(self):
        result = self.predict("--only", "geglu 64, 64, 256")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 pairs; error relative to the eager time: median", result.stdout)
        with open(os.path.join(self.out, "predict_fusion.md"), encoding="utf-8") as f:
            table = f.read()
        self.assertIn("| mlp geglu 64, 64, 256 f32 |", table)
        self.assertIn("| mlp geglu 64, 64, 256 bf16 |", table)
        svg = xml.dom.minidom.parse(os.path.join(self.out, "predict_fusion.svg"))
        # Two points, and two of the legend.
        self.assertEqual(len(svg.getElementsByTagName("circle")), 4)

    def test_a_bound_on_the_median_can_fail(self):
        result = self.predict("--only", "matmul-add 64 f32", "--max-median", "-1")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(self.predict("--only", "no such workload").returncode, 2)


if __name__ == "__main__":
    unittest.main()
