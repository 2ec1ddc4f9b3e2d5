# SPDX-License-Identifier: Apache-2.0
"""compile, and profile with --mode compile and fused."""
import json
import unittest

from command import CommandTest

SMALL = ("--batch", "2", "--seq", "3", "--dim", "32", "--hidden", "64")


class Compile(CommandTest):
    def kernels(self, *args):
        table = json.loads(self.ok("profile", *args, "--out", self.out, "--format", "json"))
        return [r["name"] for r in table["rows"] if r["name"].startswith("epi_")]

    def test_a_gated_mlp_is_one_kernel_that_names_its_ops(self):
        for dtype in ("f32", "bf16", "f16"):
            names = self.kernels("mlp", *SMALL, "--dtype", dtype, "--mode", "compile")
            self.assertEqual(len(names), 1)
            self.assertTrue(names[0].endswith("_row_chain_mm_gelu_mm_mul_mm_" + dtype), names)

    def test_every_workload_has_the_modes_it_should(self):
        self.assertEqual(len(self.kernels("linear", "--mode", "compile")), 1)
        self.assertEqual(len(self.kernels("matmul-add", "--mode", "compile")), 1)
        self.assertEqual(len(self.kernels("mlp", *SMALL, "--mode", "fused")), 1)
        self.assertEqual(len(self.kernels("mlp", *SMALL, "--mode", "fused", "--norm", "layer",
                                          "--residual", "--activation", "relu", "--bias")), 1)

    def test_the_report_says_what_was_fused(self):
        text = self.ok("compile", "mlp", *SMALL, "--norm", "rms", "--residual")
        self.assertIn("1 kernel for 7 ops", text)
        self.assertIn("merge_gemms: ", text)
        self.assertIn("any number of rows", text)

    def test_measuring_names_the_candidates_and_is_kept(self):
        env = {"EPILOGUE_CACHE_DIR": f"{self.out}/cache"}
        args = ("compile", "mlp", *SMALL, "--tune", "measure", "--format", "json")
        first = json.loads(self.ok(*args, env=env))
        timed = {c["name"]: c["median_us"] for c in first["candidates"] if c["median_us"]}
        self.assertIn("row-chains", timed)
        self.assertIn(first["choice"], timed)
        self.assertEqual([c["name"] for c in first["candidates"] if c["chosen"]], [first["choice"]])
        again = json.loads(self.ok(*args, env=env))
        self.assertEqual(again["candidates"], first["candidates"], "kept, not measured again")
        self.assertIn("the fastest when measured", self.ok(*args[:-2], env=env))
        self.assertIn("plan: row-chains, by the model", self.ok("compile", "mlp", *SMALL))
        self.misuse("compile", "mlp", "--tune", "guess")

    def test_json_has_the_numbers(self):
        out = json.loads(self.ok("compile", "mlp", *SMALL, "--dtype", "f32", "--format", "json"))
        self.assertEqual((out["kernels"], out["eager_kernels"]), (1, 5))
        # x and the result of 6 x 32, three weights of 32 x 64.
        self.assertEqual(out["moved_bytes"], 4 * (2 * 6 * 32 + 3 * 32 * 64))
        self.assertEqual(out["intermediate_bytes"], 0)
        self.assertTrue(all(n["done"] == (n["reason"] == "") for n in out["notes"]))
        self.assertIn("| pass |", self.ok("compile", "mlp", *SMALL, "--format", "markdown"))

    def test_the_backward_pass_is_planned_too(self):
        forward = json.loads(self.ok("compile", "mlp", *SMALL, "--dtype", "f32", "--format", "json",
                                     "--dump", "graph"))
        both = json.loads(self.ok("compile", "mlp", *SMALL, "--dtype", "f32", "--backward",
                                  "--format", "json", "--dump", "graph"))
        self.assertGreater(both["eager_kernels"], forward["eager_kernels"])
        self.assertIn("forward and backward", both["workload"])
        self.assertNotIn("aten::gelu_backward", forward["dump"])
        self.assertIn("aten::gelu_backward", both["dump"])
        for workload in ("linear", "matmul-add"):
            self.ok("compile", workload, "--backward")

    def test_skipping_a_pass_shows(self):
        out = json.loads(self.ok("compile", "mlp", *SMALL, "--skip", "form_row_chains",
                                 "--format", "json"))
        self.assertEqual(out["kernels"], 2)
        self.assertIn("'form_chains'", self.misuse("compile", "mlp", "--skip", "form_chains"))

    def test_dumps(self):
        self.assertIn("aten::gelu", self.ok("compile", "mlp", *SMALL, "--dump", "graph"))
        self.assertNotIn("aten::", self.ok("compile", "mlp", *SMALL, "--dump", "plan"))
        self.assertIn("digraph", self.ok("compile", "mlp", *SMALL, "--dump", "dot"))
        self.assertIn("after merge_gemms:", self.ok("compile", "mlp", *SMALL, "--dump", "passes"))
        self.assertIn("expected graph", self.misuse("compile", "mlp", *SMALL, "--dump", "asm"))


if __name__ == "__main__":
    unittest.main()
