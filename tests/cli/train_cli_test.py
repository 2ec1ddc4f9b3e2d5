# SPDX-License-Identifier: Apache-2.0
"""epilogue train: learns, is resumed bit for bit after Ctrl-C, kill -9 and damage, says what is wrong."""
import json
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import time
import unittest

from command import BINARY, CommandTest, run


def write_blobs(path, rows=300, header=True):
    """Three classes around three points in the plane, far apart."""
    draw = random.Random(1)
    with open(path, "w") as out:
        if header:
            out.write("x,y,constant,kind\n")
        for i in range(rows):
            x, y = ((0, 0), (5, 0), (0, 5))[i % 3]
            out.write(f"{x + draw.gauss(0, 0.5)},{y + draw.gauss(0, 0.5)},7,{'abc'[i % 3]}\n")


def write_plane(path, rows=400):
    """value = 30 a - 20 b + 1000, with little noise."""
    draw = random.Random(2)
    with open(path, "w") as out:
        out.write("a,b,value\n")
        for _ in range(rows):
            a, b = draw.uniform(-1, 1), draw.uniform(-1, 1)
            out.write(f"{a},{b},{30 * a - 20 * b + 1000 + draw.gauss(0, 0.1)}\n")


def write_images(folder, train=400, test=100):
    """Fashion-MNIST's files: class c has rows 2 c and 2 c + 1 lit, on noise."""
    draw = random.Random(3)
    os.makedirs(folder, exist_ok=True)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = bytes(i % 10 for i in range(count))
        pixels = bytearray(draw.randrange(60) for _ in range(count * 784))
        for i, c in enumerate(labels):
            for p in range(2 * c * 28, (2 * c + 2) * 28):
                pixels[i * 784 + p] = 255
        with open(f"{folder}/{prefix}-images-idx3-ubyte", "wb") as out:
            out.write(struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
        with open(f"{folder}/{prefix}-labels-idx1-ubyte", "wb") as out:
            out.write(struct.pack(">II", 0x801, count) + labels)


def content(path):
    with open(path, "rb") as file:
        return file.read()


class TrainTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.csv = f"{self.out}/blobs.csv"
        write_blobs(self.csv)
        self.dir = f"{self.out}/run"

    def train(self, *args, folder=None):
        return json.loads(self.ok("train", self.csv, *args, "--checkpoint-dir", folder or self.dir,
                                  "--format", "json"))

    def checkpoints(self, folder=None):
        folder = folder or self.dir
        return sorted(f"{folder}/{f}" for f in os.listdir(folder) if f.startswith("checkpoint-"))

    def metrics(self, folder=None):
        with open(f"{folder or self.dir}/metrics.jsonl") as file:
            return [json.loads(line) for line in file]

    def start(self, *args):
        return subprocess.Popen([BINARY, "train", *args], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def wait_for_checkpoint(self):
        deadline = time.monotonic() + 120
        while not (os.path.isdir(self.dir) and
                   [c for c in self.checkpoints() if c.endswith(".safetensors")]):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


class Learning(TrainTest):
    def test_a_separable_table_is_learned(self):
        result = self.train()
        self.assertEqual(result["schema_version"], 1)
        self.assertEqual(result["task"], "classification")
        self.assertGreater(result["test_accuracy"], 0.95)
        self.assertGreater(result["images_per_s"], 0)
        self.assertGreater(result["seconds"], 0)
        self.assertEqual(result["epochs"], len(result["history"]))
        self.assertEqual(result["steps"], result["history"][-1]["step"])
        self.assertEqual(result["parameters"], (3 * 64 + 64) + (64 * 64 + 64) + (64 * 3 + 3))
        for key in ("checkpoint", "metrics", "curve", "model"):
            self.assertTrue(os.path.isfile(result[key]), key)
        self.assertIn("<svg", content(result["curve"]).decode())
        self.assertIsNone(result["trace"])

    def test_a_number_is_learned(self):
        write_plane(self.csv)
        result = self.train("--task", "regression", "--epochs", "40")
        self.assertGreater(result["test_r2"], 0.97)
        self.assertLess(result["test_rmse"], 3)  # of a spread of about 21
        self.assertIsNone(result["test_accuracy"])

    def test_images_are_learned_in_every_dtype_by_both_networks(self):
        write_images(f"{self.out}/images")
        for i, flags in enumerate((["--amp", "none"], ["--amp", "bf16"],
                                   ["--amp", "f16", "--clip", "1"],
                                   ["--arch", "geglu", "--layers", "1", "--optimizer", "sgd"],
                                   ["--accumulate", "3", "--dropout", "0.1", "--schedule", "step",
                                    "--optimizer", "adam", "--lr", "0.001"])):
            result = json.loads(self.ok(
                "train", "fashion-mnist", "--data-dir", f"{self.out}/images", "--hidden", "64",
                "--batch", "50", "--epochs", "12", *flags, "--checkpoint-dir",
                f"{self.out}/{i}", "--format", "json"))
            self.assertGreater(result["test_accuracy"], 0.95, flags)

    def test_micro_batches_make_the_same_steps_to_rounding(self):
        whole = self.train("--epochs", "3", folder=f"{self.out}/a")
        parts = self.train("--epochs", "3", "--accumulate", "5", folder=f"{self.out}/b")
        self.assertEqual([len(run["history"]) for run in (whole, parts)], [3, 3])
        for a, b in zip(whole["history"], parts["history"]):
            self.assertAlmostEqual(a["train_loss"], b["train_loss"], delta=1e-4 * a["train_loss"])

    def test_compiled_steps_drop_what_eager_ones_drop(self):
        flags = ("--epochs", "3", "--dropout", "0.3")
        eager = self.train(*flags, folder=f"{self.out}/a")
        compiled = self.train(*flags, "--mode", "compile", folder=f"{self.out}/b")
        plain = self.train("--epochs", "3", folder=f"{self.out}/c")
        runs = (eager, compiled, plain)
        self.assertEqual([len(run["history"]) for run in runs], [3, 3, 3])
        for a, b, c in zip(*(run["history"] for run in runs)):
            self.assertAlmostEqual(a["train_loss"], b["train_loss"], delta=1e-4 * a["train_loss"])
            self.assertNotAlmostEqual(a["train_loss"], c["train_loss"],
                                      delta=1e-3 * a["train_loss"])

    def test_compiled_steps_count_right_answers_as_eager_ones_do(self):
        eager = self.train("--epochs", "3", folder=f"{self.out}/a")
        compiled = self.train("--epochs", "3", "--mode", "compile", folder=f"{self.out}/b")
        for a, b in zip(eager["history"], compiled["history"]):
            self.assertAlmostEqual(a["train_accuracy"], b["train_accuracy"], delta=0.005)
        self.assertEqual(len(self.metrics(f"{self.out}/b")), len(self.metrics(f"{self.out}/a")))

    def test_a_measured_plan_is_recorded_and_gives_the_same_bits_by_its_name(self):
        flags = ("--epochs", "2", "--mode", "compile")
        measured = self.train(*flags, "--tune", "measure", folder=f"{self.out}/a")
        plan = measured["config"]["plan"]
        self.assertIn(plan, ("automatic", "packed", "eager-products", "save", "recompute"))
        named = self.train(*flags, "--plan", plan, folder=f"{self.out}/b")
        self.assertEqual([e["train_loss"] for e in measured["history"]],
                         [e["train_loss"] for e in named["history"]])
        # A run that goes on takes the plan of its checkpoint, not a new measurement's.
        longer = self.train("--epochs", "4", *flags[2:], "--tune", "measure", folder=f"{self.out}/c")
        self.assertIn("plan", longer["config"])
        self.assertIn("expected model or measure, got 'guess'",
                      self.misuse("train", self.csv, *flags, "--tune", "guess"))
        self.assertIn("--mode compile beside it", self.misuse("train", self.csv, "--tune", "measure"))
        self.assertIn("--plan: expected automatic, packed",
                      self.misuse("train", self.csv, *flags, "--plan", "best", "--checkpoint-dir",
                                  f"{self.out}/d"))

    def test_text_and_markdown(self):
        text = self.ok("train", self.csv, "--epochs", "2", "--checkpoint-dir", f"{self.out}/a")
        self.assertIn("'constant' has one value in all training rows", text)
        self.assertRegex(text, r"epoch 2/2  loss \d\.\d+  accuracy \d+\.\d+ %  test loss")
        self.assertRegex(text, r"test accuracy \d+\.\d+ % after 2 epochs in")
        markdown = self.ok("train", self.csv, "--epochs", "2", "--checkpoint-dir",
                           f"{self.out}/b", "--format", "markdown")
        self.assertIn("| epoch | training loss | test loss | test accuracy |", markdown)

    def test_missing_values_are_counted(self):
        with open(self.csv, "a") as out:
            out.write("NA,0,7,a\n,0,7,b\n1,1,7,\n")
        result = self.train("--epochs", "1")
        self.assertEqual(result["missing_values"], {"x": 2})
        self.assertEqual(result["rows_without_target"], 1)

    def test_the_default_folder_is_a_new_one_each_time(self):
        for expected in ("runs/blobs", "runs/blobs-2"):
            result = subprocess.run([BINARY, "train", self.csv, "--epochs", "1", "--format", "json"],
                                    cwd=self.out, capture_output=True, text=True, timeout=120)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["model"], expected + "/model.safetensors")

    def test_a_profile_of_the_first_steps(self):
        result = self.train("--epochs", "2", "--profile")
        table = json.loads(self.ok("table", result["trace"], "--format", "json", "--row-limit", "-1"))
        names = [row["name"] for row in table["rows"]]
        for name in ("train_step", "Optimizer.step#AdamW.step", "aten::addmm", "ProfilerStep*"):
            self.assertTrue(any(n.startswith(name.rstrip("*")) for n in names), name)
        plain = self.train("--epochs", "2", folder=f"{self.out}/plain")
        self.assertEqual(content(result["model"]), content(plain["model"]))

    def test_progress_shows_on_a_terminal_only(self):
        self.assertEqual(run("train", self.csv, "--epochs", "2", "--checkpoint-dir",
                             f"{self.out}/a").stderr, "")
        ours, theirs = pty.openpty()
        process = subprocess.Popen([BINARY, "train", self.csv, "--checkpoint-dir", self.dir],
                                   stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        self.assertEqual(process.wait(timeout=120), 0)
        self.assertRegex(shown.decode(), r"training \[#*\.*\] +\d+ %.*epoch \d+/\d+  loss [\d.e-]+")


class Stopping(TrainTest):
    # Many small steps, a checkpoint every few.
    FLAGS = ("--epochs", "120", "--batch", "16", "--dropout", "0.1", "--checkpoint-every", "7")

    def reference(self):
        return self.train(*self.FLAGS, folder=f"{self.out}/whole")

    def assert_same_end(self, reference):
        self.assertEqual(content(f"{self.dir}/model.safetensors"), content(reference["model"]))
        ours, theirs = self.metrics(), self.metrics(f"{self.out}/whole")
        self.assertEqual([(m["event"], m["step"]) for m in ours],
                         [(m["event"], m["step"]) for m in theirs])
        losses = [[m.get("loss", m.get("test_loss")) for m in lines] for lines in (ours, theirs)]
        self.assertEqual(*losses)
        self.assertEqual(len(self.checkpoints()), 2)

    def test_ctrl_c_saves_and_says_how_to_go_on(self):
        for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            shutil.rmtree(self.dir, ignore_errors=True)
            process = self.start(self.csv, *self.FLAGS, "--checkpoint-dir", self.dir)
            self.wait_for_checkpoint()
            time.sleep(0.2)
            process.send_signal(sent)
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, code, errors)
            self.assertIn(f"go on with: epilogue train --resume {self.dir}", errors)
        self.ok("train", "--resume", self.dir)
        self.assert_same_end(self.reference())

    def test_kill_9_at_any_moment_changes_no_bit(self):
        begin = time.monotonic()
        reference = self.reference()
        whole_s = time.monotonic() - begin  # machines differ: parts of what this one takes
        draw = random.Random(os.environ.get("EPILOGUE_TEST_SEED", "5"))
        kills = 0
        for _ in range(8):
            known = os.path.isdir(self.dir) and any(c.endswith(".safetensors")
                                                    for c in self.checkpoints())
            where = ["--resume", self.dir] if known else ["--checkpoint-dir", self.dir]
            process = self.start(self.csv, *self.FLAGS, *where)
            time.sleep(draw.uniform(0.05, 0.3) * whole_s)
            process.kill()
            process.communicate(timeout=120)
            kills += process.returncode == -signal.SIGKILL
        self.assertGreater(kills, 1)
        self.ok("train", self.csv, "--resume", self.dir)
        self.assert_same_end(reference)

    def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(self):
        reference = self.reference()
        self.stop_in_the_middle()
        newest = self.checkpoints()[-1]
        for damage in (content(newest)[:-9], b"", b"{}" * 100, content(reference["model"])):
            with open(newest, "wb") as file:
                file.write(damage)
            copy = f"{self.out}/copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.dir, copy)
            result = run("train", "--resume", copy)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = result.stderr.strip().splitlines()
            self.assertEqual(len(lines), 1, result.stderr)
            self.assertIn(os.path.basename(newest), lines[0])
            self.assertIn(f"going on from {copy}/checkpoint-", lines[0])
            self.assertEqual(content(f"{copy}/model.safetensors"), content(reference["model"]))

    def test_no_usable_checkpoint_is_one_line(self):
        self.stop_in_the_middle()
        for path in self.checkpoints():
            with open(path, "r+b") as file:
                file.truncate(100)
        self.assertIn(os.path.basename(self.checkpoints()[-1]),
                      self.misuse("train", "--resume", self.dir))
        self.assertIn("expected a file checkpoint-STEP.safetensors, got none",
                      self.misuse("train", "--resume", self.out))

    def stop_in_the_middle(self):
        """Leaves two checkpoints of an unfinished run."""
        process = self.start(self.csv, *self.FLAGS, "--checkpoint-dir", self.dir)
        deadline = time.monotonic() + 120
        while not os.path.isdir(self.dir) or len(
                [c for c in self.checkpoints() if c.endswith(".safetensors")]) < 2:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130)

    def test_other_data_and_other_flags_are_refused(self):
        self.stop_in_the_middle()
        self.assertIn("epilogue train: --hidden: expected '64', as in the run that is resumed, got '32'",
                      self.misuse("train", "--resume", self.dir, "--hidden", "32"))
        self.assertIn("expected the data", self.misuse("train", "fashion-mnist", "--resume", self.dir))
        self.assertIn("expected a folder without checkpoints",
                      self.misuse("train", self.csv, "--checkpoint-dir", self.dir))
        self.assertIn("expected the folder of --resume",
                      self.misuse("train", "--resume", self.dir, "--checkpoint-dir", self.out))
        with open(self.csv, "a") as out:
            out.write("1,2,7,a\n")
        self.assertIn("got other data", self.misuse("train", "--resume", self.dir))

    def test_a_run_that_is_done_can_be_asked_again(self):
        first = self.train("--epochs", "2")
        again = json.loads(self.ok("train", "--resume", self.dir, "--format", "json"))
        self.assertEqual(again["test_accuracy"], first["test_accuracy"])
        self.assertEqual(again["steps"], first["steps"])

    def test_a_run_that_leaves_the_numbers_ends_with_1_and_keeps_a_checkpoint(self):
        result = run("train", self.csv, "--lr", "1e30", "--optimizer", "sgd", "--warmup", "0",
                     "--checkpoint-dir", self.dir)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("no finite number", result.stderr)
        self.assertTrue(self.checkpoints())


class Misuse(TrainTest):
    def test_flags(self):
        for flags, text in ((["--arch", "cnn"], "epilogue train: --arch: expected mlp or geglu, got 'cnn'"),
                            (["--amp", "f8"], "--amp: expected none, bf16 (bfloat16) or f16 (float16, fp16, half), got 'f8'"),
                            (["--optimizer", "lion"], "expected adamw, adam or sgd"),
                            (["--schedule", "linear"], "expected constant, cosine or step"),
                            (["--mode", "fused"], "--mode: expected eager or compile"),
                            (["--batch", "-1"], "--batch: expected a whole number of 1 or more, got '-1'"),
                            (["--epochs", "0"], "--epochs: expected a whole number of 1 or more, got '0'"),
                            (["--batch", "0"], "--batch: expected a whole number of 1"),
                            (["--max-images", "0"], "--max-images: expected a whole number of 1"),
                            (["--seed", "-1"], "--seed: expected a whole number of 0 or more, got '-1'"),
                            (["--lr", "nan"], "--lr: expected a number above 0, got 'nan'"),
                            (["--lr", "-0.1"], "--lr: expected a number above 0, got '-0.1'"),
                            (["--dropout", "1"], "--dropout: expected 0 or more, below 1, got 1"),
                            (["--accumulate", "99"], "no more than the batch"),
                            (["--held-out", "1.5"], "--held-out: expected a share"),
                            (["--warmup", "100000"], "--warmup: expected fewer steps than"),
                            (["--task", "ranking"], "expected classification or regression"),
                            (["--target", "nothing"], "expected one of the columns x, y, constant"),
                            (["--task", "regression"], "expected a finite number, got 'a'"),
                            (["--checkpoint-every", "-2"], "--checkpoint-every: expected a whole number of 0 or more"),
                            (["--threads", "-3"], "threads"),
                            (["--delimiter", ";;"], "--delimiter: expected one character")):
            self.assertIn(text, self.misuse("train", self.csv, *flags, "--checkpoint-dir", self.dir))
        self.assertFalse(os.path.isdir(self.dir))

    def test_data(self):
        self.assertIn("expected fashion-mnist or a CSV file", self.misuse("train"))
        self.assertIn("none.csv: cannot read", self.misuse("train", f"{self.out}/none.csv"))
        self.assertIn("apt install dataset-fashion-mnist",
                      self.misuse("train", "fashion-mnist", "--data-dir", self.out))
        with open(self.csv, "a") as out:
            out.write("1,2\n")
        self.assertIn("CsvWidth: line 302: expected 4 cells, got 2", self.misuse("train", self.csv))

    def test_help_ends_with_examples(self):
        self.assertIn("Example: epilogue train", self.ok("train", "--help"))


if __name__ == "__main__":
    unittest.main()
