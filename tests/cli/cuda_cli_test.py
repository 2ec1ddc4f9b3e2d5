# SPDX-License-Identifier: Apache-2.0
"""A command built with CUDA: what it links, and what it says with and without a device."""
import json
import re
import subprocess
import unittest

from command import BINARY, CommandTest


class Cuda(CommandTest):
    def setUp(self):
        super().setUp()
        self.status = json.loads(self.ok("info", "--format", "json"))["cuda"]
        self.has_device = not self.status.startswith("CUDA is not available")

    def test_no_library_of_the_toolkit_is_linked(self):
        libraries = subprocess.run(["ldd", BINARY], capture_output=True, text=True,
                                   check=True).stdout
        self.assertNotRegex(libraries, r"libcuda|libcublas|libnvrtc|libcupti")

    def test_info_says_what_is_there(self):
        parts = {p["name"]: p for p in json.loads(self.ok("info", "--format", "json"))["cuda_parts"]}
        self.assertEqual(list(parts), ["toolkit", "driver", "cuBLASLt", "NVRTC", "CUPTI"])
        self.assertRegex(parts["toolkit"]["state"], r"of the build: \d+\.\d+")
        self.assertEqual(parts["driver"]["is_there"] or self.has_device, parts["driver"]["is_there"])

    def test_without_a_device_the_cpu_works(self):
        self.ok("profile", "mlp", "--batch", "1", "--seq", "8", "--dim", "16", "--hidden", "32",
                "--out", self.out)

    def profile(self, *flags):
        if not self.has_device:
            self.skipTest(self.status)
        return json.loads(self.ok("profile", "mlp", "--device", "cuda", "--batch", "4", "--out",
                                  self.out, "--format", "json", *flags))

    def test_an_eager_gated_mlp_has_five_kernels_per_step(self):
        self.profile("--expect", "kernels_per_step == 5", "--expect", "gemm_kernels_per_step == 3")

    def test_a_compiled_one_has_three_at_most(self):
        self.profile("--mode", "compile", "--expect", "kernels_per_step <= 3")

    def test_every_kernel_of_ours_is_decoded(self):
        rows = self.profile("--mode", "compile")["rows"]
        names = [r["name"] for r in rows if re.search("epilogue::cuda|epi_cuda", r["name"])]
        self.assertTrue(names, rows)
        for name in names:
            self.assertNotIn("unknown kernel", self.ok("name", name))


if __name__ == "__main__":
    unittest.main()
