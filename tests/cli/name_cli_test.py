# SPDX-License-Identifier: Apache-2.0
"""epilogue name: the JSON contract, names from stdin, misuse."""
import json
import subprocess
import unittest

from command import BINARY, CommandTest

NVJET = "nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT"


def pipe(text, *args):
    return subprocess.run([BINARY, "name", *args], input=text, capture_output=True, text=True,
                          timeout=60)


class Name(CommandTest):
    def test_json_has_the_contracts_keys(self):
        names = json.loads(self.ok("name", "--format", "json", NVJET, "my_kernel"))
        self.assertEqual([n["name"] for n in names], [NVJET, "my_kernel"])
        nvjet, unknown = names
        self.assertEqual(nvjet["schema_version"], 1)
        self.assertEqual(nvjet["family"], "cuBLAS nvjet")
        self.assertEqual(nvjet["kind"], "gemm")
        self.assertEqual(nvjet["fields"]["tile"], "512x8")
        self.assertIn("raster", nvjet["inferred"])
        self.assertNotIn("tile", nvjet["inferred"])
        self.assertEqual(unknown["family"], "unknown")
        self.assertEqual(unknown["fields"], {})

    def test_names_come_from_stdin_where_none_is_given(self):
        result = pipe("Memset (Device)\r\n\nvolta_sgemm_64x32_sliced1x4_nn\n", "--format", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([n["kind"] for n in json.loads(result.stdout)], ["fill", "gemm"])

    def test_text_marks_what_is_inferred(self):
        text = self.ok("name", NVJET)
        self.assertIn("  ~ raster", text)
        self.assertIn("    tile ", text)
        self.assertTrue(text.endswith("~ inferred\n"))

    def test_markdown_is_a_table(self):
        self.assertIn("| tile | 512x8 | yes |", self.ok("name", "--format", "markdown", NVJET))

    def test_no_names_are_misuse(self):
        result = pipe("")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
