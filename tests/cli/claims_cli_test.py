# SPDX-License-Identifier: Apache-2.0
"""Outputs of the command in docs/claims.md that do not depend on the machine."""
import json
import os
import unittest

from command import CommandTest

TORCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch")


class Claims(CommandTest):
    def profile(self, *args):
        return json.loads(self.ok("profile", *args, "--out", self.out, "--format", "json",
                                  "--row-limit", "-1"))

    def torch_counts(self, name):
        table = json.loads(self.ok("table", os.path.join(TORCH, name + ".json.gz"), "--row-limit",
                                   "-1", "--format", "json"))
        return {row["name"]: row["count"] for row in table["rows"]}

    def test_1_a_transpose_launches_no_kernel(self):
        trace = self.profile("linear", "--dtype", "f32")["trace"]
        chains = json.loads(self.ok("explain", trace, "--format", "json"))["dispatch_chains"]
        self.assertEqual([(c["chain"], c["count"], c["kernels"], c["ops"], c["no_launch_ops"])
                          for c in chains],
                         [("aten::linear(aten::t(aten::transpose(aten::as_strided)), aten::addmm)",
                           3, 3, 5, 3)])

    def test_2_a_linear_with_bias_is_one_kernel_and_copies_the_bias_in_pytorch_on_a_cpu(self):
        for dtype in ("f32", "bf16"):
            result = self.profile("linear", "--dtype", dtype)
            self.assertEqual(result["quantities"]["kernels_per_step"], 1)
        counts = self.torch_counts("linear_1024_32_64_eager")
        self.assertEqual((counts["aten::addmm"], counts["aten::expand"], counts["aten::copy_"]),
                         (3, 3, 3))

    def test_3_a_geglu_mlp_is_five_kernels_eager_and_one_compiled(self):
        small = ("mlp", "--dtype", "f32", "--batch", "2", "--seq", "8", "--dim", "64", "--hidden",
                 "128")
        for mode, kernels in (("eager", 5), ("compile", 1)):
            result = self.profile(*small, "--mode", mode)
            self.assertEqual(result["quantities"]["kernels_per_step"], kernels, mode)

    def test_3_torch_compile_keeps_the_products_and_fuses_gelu_and_mul(self):
        eager, compiled = (self.torch_counts("mlp_geglu_" + m) for m in ("eager", "compile"))
        self.assertEqual([eager[f"aten::{op}"] for op in ("mm", "gelu", "mul")], [9, 3, 3])
        self.assertEqual(compiled["aten::mm"], 9)
        self.assertFalse({"aten::gelu", "aten::mul"} & compiled.keys())

    def test_4_compiling_one_linear_fuses_no_kernels(self):
        plan = json.loads(self.ok("compile", "linear", "--dtype", "f32", "--format", "json"))
        self.assertEqual((plan["eager_kernels"], plan["kernels"]), (1, 1))
        self.assertEqual(plan["eager_moved_bytes"], plan["moved_bytes"])

    def test_11_accumulation_divides_activations_only(self):
        def at_peak(parts, *size):
            result = self.profile("train-step", *size, "--accumulate", str(parts),
                                  "--profile-memory")
            return {name: c["at_peak_bytes"] for name, c in result["memory"]["categories"].items()}

        def of_activations(peak):
            return peak.get("ACTIVATION", 0) + peak.get("AUTOGRAD_DETAIL", 0)

        size = ("--batch", "16", "--dim", "128", "--hidden", "512")
        one, four = at_peak(1, *size), at_peak(4, *size)
        self.assertEqual(one["PARAMETER"], 3 * 128 * 512 * 4)
        for name in ("PARAMETER", "OPTIMIZER_STATE", "INPUT"):
            self.assertEqual(one[name], four[name], name)
        # The losses, a few bytes each, are what is not divided.
        self.assertAlmostEqual(of_activations(one) / of_activations(four), 4, places=3)

        size = ("--batch", "1", "--seq", "4", "--dim", "256", "--hidden", "1024")
        one, four = at_peak(1, *size), at_peak(4, *size)
        self.assertLess(abs(sum(one.values()) - sum(four.values())), 0.01 * sum(one.values()))


if __name__ == "__main__":
    unittest.main()
