# SPDX-License-Identifier: Apache-2.0
"""The command's answer to arguments that it cannot use: the whole line, exit 2."""
import os
import re
import subprocess
import unittest

from command import BINARY, CommandTest, run


class Names(CommandTest):
    def test_unknown_commands_name_the_nearest(self):
        for args, line in (
                (["tabel"], "epilogue: unknown command 'tabel'; did you mean table? "
                            "(see epilogue --help)"),
                (["foo"], "epilogue: unknown command 'foo' (see epilogue --help)"),
                (["help"], "epilogue: unknown command 'help'; did you mean --help? "
                           "(see epilogue --help)"),
                (["mlp"], "epilogue: unknown command 'mlp'; did you mean epilogue profile mlp, "
                          "epilogue bench mlp or epilogue compile mlp? (see epilogue --help)"),
                (["profile", "linaer"], "epilogue profile: unknown command 'linaer'; did you mean "
                                        "linear? (see epilogue profile --help)"),
                (["compile", "x"], "epilogue compile: unknown command 'x'; expected matmul-add, "
                                   "linear or mlp (see epilogue compile --help)")):
            self.assertEqual(self.misuse(*args), line)

    def test_unknown_options_name_the_nearest(self):
        for args, line in (
                (["profile", "mlp", "--btach", "2"],
                 "epilogue profile mlp: unknown option --btach; did you mean --batch? "
                 "(see epilogue profile mlp --help)"),
                (["explain", "t.json", "--tpo=3"],
                 "epilogue explain: unknown option --tpo; did you mean --top? "
                 "(see epilogue explain --help)"),
                (["profile", "--batch", "2", "linear"],
                 "epilogue profile linear: --batch: expected behind 'epilogue profile linear', got "
                 "before it (see epilogue profile linear --help)"),
                (["info", "--frobnicate"],
                 "epilogue info: unknown option --frobnicate (see epilogue info --help)")):
            self.assertEqual(self.misuse(*args), line)

    def test_missing_and_surplus_arguments(self):
        for args, line in (
                ([], "epilogue: expected a command, got none (see epilogue --help)"),
                (["bench"], "epilogue bench: expected matmul-add, linear, mlp, ladder or portability, "
                            "got none (see epilogue bench --help)"),
                (["explain"], "epilogue explain: expected TRACE|DIR, got none "
                              "(see epilogue explain --help)"),
                (["diff", "a"], "epilogue diff: expected B, got none (see epilogue diff --help)"),
                (["diff", "a", "b", "c"], "epilogue diff: unexpected argument 'c' "
                                          "(see epilogue diff --help)"),
                (["check"], "epilogue check: TRACE: expected a trace, or --list, got none")):
            self.assertEqual(self.misuse(*args), line)


class Values(CommandTest):
    def test_one_form_of_message(self):
        for args, line in (
                (["explain", "x", "--top", "many"],
                 "epilogue explain: --top: expected a whole number of -1 or more, got 'many'"),
                (["profile", "linear", "--batch"],
                 "epilogue profile linear: --batch: expected a value, got none"),
                (["profile", "linear", "--batch", "1", "--batch", "2"],
                 "epilogue profile linear: --batch: expected one value, got 2"),
                (["profile", "linear", "--format", "xml"],
                 "epilogue profile linear: --format: expected text, json or markdown, got 'xml'"),
                (["profile", "linear", "--measure", "--machine", "x"],
                 "epilogue profile linear: expected --measure or --machine, got both"),
                (["profile", "linear", "--no-bias=maybe"],
                 "epilogue profile linear: --no-bias: expected no value, got 'maybe'"),
                (["serve", ".", "--port", "70000"],
                 "epilogue serve: --port: expected a whole number from 0 to 65535, got '70000'"),
                (["profile", "linear", "--out", ""],
                 "epilogue profile linear: --out: expected a path, got ''"),
                (["table", "x", "--from", "nan"],
                 "epilogue table: --from: expected a number of 0 or more, got 'nan'")):
            command = " ".join(line.split(":")[0].split())
            self.assertEqual(self.misuse(*args), f"{line} (see {command} --help)")

    def test_what_the_library_refuses_has_the_flags_name(self):
        self.assertRegex(self.misuse("profile", "mlp", "--activation", "foo"),
                         "^epilogue profile mlp: --activation: expected one of geglu, .*, got \"foo\"$")
        self.assertRegex(self.misuse("profile", "linear", "--sort-by", "foo", "--out", self.out),
                         "^epilogue profile linear: table: expected a sort key .*, got \"foo\"$")
        self.assertEqual(os.listdir(self.out), [])

    def test_every_flag_with_a_number_refuses_words(self):
        checked = 0
        for command in (["profile", "matmul-add"], ["profile", "linear"], ["profile", "mlp"],
                        ["profile", "train-step"], ["compile", "mlp"], ["bench", "mlp"],
                        ["bench", "ladder"], ["train"], ["table"], ["explain"], ["diff"],
                        ["report"], ["serve"], ["memory"], ["tour"], ["info"]):
            help_text = self.ok(*command, "--help")
            for flag in re.findall(r"^ +(--[\w-]+) (?:N|MS|S|X|P|LR|W|STEPS|NORM|SHARE)\b", help_text,
                                   re.M):
                if (command, flag) == (["train"], "--arch"):
                    continue
                line = self.misuse(*command, flag, "many")
                self.assertRegex(line, f"^epilogue {' '.join(command)}: {flag}: expected a (whole )?"
                                       "number .*, got 'many'", line)
                checked += 1
        self.assertGreater(checked, 60)

    def test_sizes_of_nothing_and_below(self):
        for command, flag in ((["profile", "linear"], "--batch"), (["profile", "mlp"], "--seq"),
                              (["profile", "mlp"], "--hidden"), (["compile", "mlp"], "--dim"),
                              (["profile", "mlp"], "--layers"), (["bench", "linear"], "--out-dim"),
                              (["profile", "matmul-add"], "--size"),
                              (["profile", "linear"], "--active"), (["train"], "--epochs")):
            for value in ("0", "-3", "1.5", "99999999999999999999"):
                self.assertIn(f"{flag}: expected a whole number of 1 or more, got '{value}'",
                              self.misuse(*command, flag, value))
        self.assertIn("--seed: expected a whole number of 0 or more, got '-1'",
                      self.misuse("profile", "linear", "--seed", "-1"))

    def test_sizes_beyond_memory(self):
        for args in (["matmul-add", "--size", "4000000000"],
                     ["linear", "--batch", "9000000000000000000"],
                     ["mlp", "--seq", "9000000000000000000", "--batch", "9000000000000000000"],
                     ["mlp", "--hidden", "4000000000000"],
                     ["mlp", "--activation", "gelu", "--layers", "1000000000"],
                     ["train-step", "--dim", "100000000000"]):
            self.assertRegex(self.misuse("profile", *args),
                             r"^epilogue profile \S+: --.*: expected sizes that fit in \S+ [KMGT]iB of "
                             r"memory, got \S+ (TiB|PiB|EiB) or more$")

        self.assertIn("--rows, --dim, --hidden: expected sizes that fit in",
                      self.misuse("bench", "ladder", "--rows", "9000000000000000000"))
        table = os.path.join(self.out, "t.csv")
        with open(table, "w", encoding="utf-8") as f:
            f.write("x,y\n" + "1,a\n2,b\n" * 9)
        self.assertIn("--hidden, --layers: expected sizes that fit in",
                      self.misuse("train", table, "--hidden", "100000000", "--checkpoint-dir",
                                  os.path.join(self.out, "run")))

    def test_prefix_needs_weights(self):
        for workload in ("linear", "mlp", "train-step"):
            self.assertEqual(self.misuse("profile", workload, "--prefix", "a"),
                             f"epilogue profile {workload}: --prefix: expected --weights "
                             "FILE.safetensors beside it, got none")

    def test_dtypes_have_their_usual_names(self):
        for name, ours in (("float32", "f32"), ("fp32", "f32"), ("f32", "f32"), ("bfloat16", "bf16"),
                           ("half", "f16"), ("float16", "f16"), ("fp16", "f16")):
            self.assertIn(f", {ours}, eager", self.ok("profile", "matmul-add", "--size", "8", "--dtype",
                                                      name, "--out", self.out))
            self.assertTrue(os.path.exists(f"{self.out}/8_{ours}_warm_eager.json.gz"))
        self.assertIn("--dtype: expected f32 (float32, fp32), bf16 (bfloat16) or f16 (float16, fp16, "
                      "half), got 'int4'", self.misuse("profile", "linear", "--dtype", "int4"))


class Files(CommandTest):
    def test_a_full_disk_is_no_success(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for args in (["--help"], ["ops"], ["check", "--list"]):
                result = subprocess.run([BINARY, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                                        timeout=60)
                self.assertEqual(result.returncode, 2, args)
                self.assertRegex(result.stderr, r"^epilogue.*: stdout: cannot write.*\n$")

    def test_a_closed_pipe_ends_quietly(self):
        shell = subprocess.run(["bash", "-c", f"'{BINARY}' ops | head -1"], capture_output=True,
                               text=True, timeout=60)
        self.assertEqual(shell.stderr, "")
        self.assertEqual(len(shell.stdout.splitlines()), 1)

    def test_what_is_no_trace_is_one_line(self):
        for name, content in (("empty.json", b""), ("binary.json", bytes(range(256))),
                              ("cut.json.gz", b"\x1f\x8b\x08\x00")):
            path = os.path.join(self.out, name)
            with open(path, "wb") as f:
                f.write(content)
            for command in ("explain", "table"):
                line = self.misuse(command, path)
                self.assertTrue(line.startswith(f"epilogue {command}: {path}: "), line)
        for args in (["table", self.out], ["diff", self.out, self.out]):
            self.assertIn("directory", self.misuse(*args).lower())
        # A folder of ranks: none of its files is a trace.
        for args in (["explain", self.out], ["report", self.out, "-o", f"{self.out}/x.html"]):
            self.assertIn("binary.json: expected a JSON trace", self.misuse(*args))


if __name__ == "__main__":
    unittest.main()
