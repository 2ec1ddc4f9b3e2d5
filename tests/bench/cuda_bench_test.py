# SPDX-License-Identifier: Apache-2.0
"""The script of the CUDA benchmark: its table, what it says without a program or PyTorch, --help."""
import contextlib
import io
import os
import subprocess
import sys
import unittest

BENCH = os.path.join(os.path.dirname(__file__), "..", "..", "bench")
sys.path.insert(0, BENCH)
import cuda_bench  # noqa: E402

SHAPE = {"rows": 16, "dim": 768, "hidden": 3072, "layers": 0, "dtype": "bf16"}
DEEP = {"rows": 65536, "dim": 64, "hidden": 64, "layers": 4, "dtype": "f16"}


def script(*args):
    return subprocess.run([sys.executable, os.path.join(BENCH, "cuda_bench.py"), *args],
                          capture_output=True, text=True, check=False)


class CudaBench(unittest.TestCase):
    def table(self, ceilings, rows):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            cuda_bench.print_table(ceilings, rows)
        return out.getvalue().splitlines()

    def test_rates_and_ratios(self):
        # 2 TFLOP/s over 50 us is 1e8 FLOPs: at 100 us 1 TFLOP/s, of a ceiling of 4.
        lines = self.table(
            [{"ceiling": "tflops", "dtype": "bf16", "value": 4.0}],
            [{**SHAPE, "name": "epilogue.fused", "median_us": 50.0, "low_us": 49.0,
              "high_us": 52.5, "tflops": 2.0, "agrees": True},
             {**SHAPE, "name": "pytorch.eager", "median_us": 100.0, "low_us": 99.0, "high_us": 101.0}])
        self.assertEqual(lines[0], "ceiling: 4.0 tflops bf16")
        self.assertEqual(lines[-2:], [
            "| 16 x 768 x 3072 | bf16 | epilogue.fused | 50.0 | 49.0 to 52.5 | 2.0 | 50 % | 2.00x |",
            "| 16 x 768 x 3072 | bf16 | pytorch.eager | 100.0 | 99.0 to 101.0 | 1.0 | 25 % | 1.00x |"])

    def test_without_peers_and_ceilings_nothing_is_made_up(self):
        lines = self.table([], [{**DEEP, "name": "epilogue.eager", "median_us": 10.0, "low_us": 9.0,
                                 "high_us": 11.0, "tflops": 3.0, "agrees": True}])
        self.assertEqual(lines[-1],
                         "| 65536 x 64 x 64, 4 layers | f16 | epilogue.eager | 10.0 | 9.0 to 11.0 | "
                         "3.0 |  |  |")

    def test_a_wrong_result_has_no_time(self):
        lines = self.table([], [{**SHAPE, "name": "epilogue.fused", "median_us": 0.0,
                                 "tflops": 0.0, "agrees": False, "rel_l2_error": 0.5}])
        self.assertIn("DISAGREES: 0.5", lines[-1])

    def test_two_visits_are_one_row(self):
        first = {**SHAPE, "name": "epilogue.fused", "median_us": 40.0, "low_us": 39.0, "high_us": 41.0,
                 "tflops": 3.0, "agrees": True}
        second = {**first, "median_us": 60.0, "low_us": 58.0, "high_us": 63.0, "tflops": 2.0}
        [row] = cuda_bench.joined([first], [second])
        self.assertEqual((row["median_us"], row["low_us"], row["high_us"]), (50.0, 39.0, 63.0))
        self.assertAlmostEqual(row["tflops"], 2.4)  # the same work in the mean time

    def test_a_program_that_is_not_there_is_one_line_and_exit_2(self):
        done = script("/no/such/program")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("-DEPILOGUE_CUDA=ON", done.stderr)

    def test_a_peer_that_is_not_there_is_named(self):
        torch, missing = cuda_bench.import_torch()
        self.assertNotEqual(torch is None, missing == "")
        if torch is None:
            self.assertRegex(missing, "has no PyTorch|has no CUDA device")

    def test_help(self):
        done = script("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("make cudabench", done.stdout)


if __name__ == "__main__":
    unittest.main()
