# SPDX-License-Identifier: Apache-2.0
"""--version, --help, ops, info, misuse, forced instruction sets."""
import json
import re
import unittest

from command import CommandTest, run


class Basics(CommandTest):
    def test_version(self):
        self.assertRegex(self.ok("--version"), r"^epilogue \d+\.\d+\.\d+\n$")

    def test_every_subcommand_has_help_with_an_example(self):
        for command in (["tour"], ["ops"], ["info"], ["profile"], ["profile", "matmul-add"],
                        ["profile", "linear"], ["profile", "mlp"], ["compile"],
                        ["compile", "mlp"], ["compile", "linear"]):
            text = self.ok(*command, "--help")
            self.assertIn("Example: epilogue " + command[0], text, command)

    def test_misuse_is_one_line_and_exit_2(self):
        self.misuse()
        self.misuse("no-such-command")
        self.misuse("profile")
        self.misuse("profile", "mlp", "--no-such-flag")
        self.assertIn("number", self.misuse("profile", "mlp", "--batch", "many").lower() + "number")

    def test_modes_and_devices_that_do_not_exist(self):
        self.assertIn("backward", self.misuse("profile", "mlp", "--mode", "fused", "--backward"))
        self.assertIn("expected an mlp", self.misuse("profile", "linear", "--mode", "fused"))
        self.assertIn("expected eager", self.misuse("profile", "linear", "--mode", "fast"))
        self.assertIn("expected f32", self.misuse("profile", "linear", "--dtype", "f8"))

    def test_without_a_cuda_device_every_command_says_how_to_get_one(self):
        status = json.loads(self.ok("info", "--format", "json"))["cuda"]
        if not status.startswith("CUDA is not available: "):
            self.skipTest(f"there is a device: {status}")
        for command in (["profile", "mlp"], ["profile", "linear"], ["profile", "matmul-add"],
                        ["profile", "train-step"], ["compile", "mlp"], ["bench", "mlp"],
                        ["train", "fashion-mnist"], ["tour"]):
            line = self.misuse(*command, "--device", "cuda")
            self.assertIn(f"--device: {status}", line)
            self.assertIn("use --device cpu", line)
        self.assertIn("expected cpu or cuda, got 'tpu'", self.misuse("tour", "--device", "tpu"))

    def test_ops_lists_the_index_in_three_formats(self):
        table = json.loads(self.ok("ops", "--format", "json"))
        self.assertEqual(table["schema_version"], 1)
        names = [op["name"] for op in table["ops"]]
        self.assertEqual(len(names), len(set(names)))
        for name in ("aten::t", "aten::addmm", "aten::linear", "aten::gelu", "aten::layer_norm",
                     "aten::cross_entropy_loss", "aten::dropout", "aten::_unsafe_view"):
            self.assertIn(name, names)
        text = self.ok("ops")
        markdown = self.ok("ops", "--format", "markdown")
        for name in names:
            self.assertIn(name, text)
            self.assertIn(name, markdown)

    def test_info(self):
        info = json.loads(self.ok("info", "--format", "json"))
        self.assertGreaterEqual(info["threads"], 1)
        self.assertIn(info["isa_used"], ("baseline", "avx2", "avx512", "avx512_bf16", "amx"))
        self.assertIn("CUDA", info["cuda"])
        parts = {p["name"]: p for p in info["cuda_parts"]}
        self.assertEqual(list(parts)[0], "toolkit")
        self.assertEqual(list(parts)[-1], "CUPTI")
        for part in parts.values():
            self.assertTrue(part["state"])
        self.assertIn(info["cpu"], self.ok("info"))

    def test_info_measures(self):
        info = json.loads(self.ok("info", "--measure", "--format", "json"))
        self.assertGreater(info["f32_peak_gflops"], 0.5)
        self.assertGreater(info["memory_read_gb_per_s"], 0.1)
        self.assertGreater(info["handoff_us"], 0)
        self.assertEqual(info["machine_file"], "")

    def test_what_was_measured_is_kept_for_later_runs(self):
        env = {"EPILOGUE_CACHE_DIR": f"{self.out}/cache"}
        self.assertIn("nothing yet", self.ok("info", env=env))
        measured = json.loads(self.ok("info", "--measure", "--format", "json", env=env))
        self.assertEqual(measured["machine_file"], f"{self.out}/cache/machine.json")
        kept = json.loads(self.ok("info", "--format", "json", env=env))
        for key in ("f32_peak_gflops", "stream_gb_per_s_one_thread", "handoff_us"):
            self.assertEqual(kept[key], measured[key])
        self.assertIn("handing work to threads", self.ok("info", env=env))
        # Other threads are another measurement.
        self.assertNotIn("f32_peak_gflops",
                         json.loads(self.ok("info", "--threads", "1", "--format", "json", env=env)))
        # A file that cannot be read is none.
        with open(f"{self.out}/cache/machine.json", "w") as out:
            out.write("{")
        self.assertIn("nothing yet", self.ok("info", env=env))

    def test_isa_is_obeyed_and_refused(self):
        info = json.loads(self.ok("info", "--format", "json", env={"EPILOGUE_ISA": "baseline"}))
        self.assertEqual(info["isa_used"], "baseline")
        self.assertIn("expected baseline", self.misuse("info", env={"EPILOGUE_ISA": "sse9"}))
        levels = ["baseline", "avx2", "avx512", "avx512_bf16", "amx"]
        above = levels[levels.index(info["isa_detected"]) + 1:]
        for level in above:
            self.assertIn("this machine has", self.misuse("info", env={"EPILOGUE_ISA": level}))

    def test_kernel_names_follow_the_level(self):
        detected = json.loads(self.ok("info", "--format", "json"))["isa_detected"]
        levels = ["baseline", "avx2", "avx512"]
        usable = levels[:levels.index(detected) + 1] if detected in levels else levels
        for level in usable:
            table = json.loads(self.ok("profile", "linear", "--dtype", "f32", "--out", self.out,
                                       "--format", "json", env={"EPILOGUE_ISA": level}))
            kernels = [r["name"] for r in table["rows"] if r["name"].startswith("epi_")]
            self.assertTrue(kernels)
            expected = "avx512" if level == "avx512" else "avx2" if level == "avx2" else "(sse4|scalar|baseline)"
            for name in kernels:
                self.assertRegex(name, f"^epi_{expected}_")

    def test_no_colour_codes_in_a_pipe(self):
        self.assertIsNone(re.search("\x1b", self.ok("profile", "linear", "--out", self.out)))


if __name__ == "__main__":
    unittest.main()
