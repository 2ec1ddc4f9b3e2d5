# SPDX-License-Identifier: Apache-2.0
"""The folder of epilogue train: more epochs for a run that is done, early stops, one process at a time, removal."""
import json
import os
import random
import shutil
import signal
import struct
import time
import unittest

from command import run
from train_cli_test import TrainTest, content


class Folder(TrainTest):
    def test_a_run_that_is_done_goes_on_with_more_epochs(self):
        self.train("--epochs", "3")
        again = run("train", "--resume", self.dir, "--format", "json")
        self.assertIn(f"the run is done after 3 epochs; go on with: epilogue train --resume {self.dir} --epochs N",
                      again.stderr)
        longer = json.loads(self.ok("train", "--resume", self.dir, "--epochs", "7", "--format", "json"))
        self.assertEqual([e["epoch"] for e in longer["history"]], [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual(longer["epochs"], 7)
        # Stopped and extended, it ends with the bits of a run that was extended and never stopped.
        self.train("--epochs", "3", folder=f"{self.out}/b")
        process = self.start("--resume", f"{self.out}/b", "--epochs", "7", "--checkpoint-every", "2")
        time.sleep(0.1)
        process.kill()
        process.communicate(timeout=120)
        self.ok("train", "--resume", f"{self.out}/b", "--epochs", "7")
        self.assertEqual(content(f"{self.out}/b/model.safetensors"), content(f"{self.dir}/model.safetensors"))
        self.assertIn("--epochs: expected 7 or more, as the run that is resumed has, got 5",
                      self.misuse("train", "--resume", self.dir, "--epochs", "5"))

    def test_early_stop_keeps_the_best_epoch_and_is_recorded(self):
        # The second column is noise, which a large rate learns by heart.
        draw = random.Random(7)
        with open(self.csv, "w") as out:
            out.write("x,kind\n")
            out.writelines(f"{draw.gauss(0, 1)},{draw.choice('ab')}\n" for _ in range(120))
        flags = ("--lr", "0.05", "--epochs", "60", "--schedule", "constant")
        result = self.train(*flags, "--early-stop", "4")
        losses = [e["test_loss"] for e in result["history"]]
        best = losses.index(min(losses)) + 1
        self.assertLess(len(losses), 60)
        self.assertEqual(result["early_stop"], {"patience": 4, "stopped": True, "best_epoch": best})
        self.assertEqual(len(losses), best + 4)
        self.assertEqual(result["test_loss"], min(losses))
        self.assertEqual(result["steps"], result["history"][-1]["step"])
        # The model is that of a run which ended at the best epoch.
        short = self.train(*flags[:2], *flags[4:], "--epochs", str(best), folder=f"{self.out}/short")
        self.assertEqual(self.weights(result["model"]), self.weights(short["model"]))
        again = run("train", "--resume", self.dir)
        self.assertIn(f"--early-stop 4 ended the run after {best + 4} epochs", again.stderr)
        self.assertIn(f"at epoch {best}, whose model is kept,", again.stdout)
        # More patience, and it goes on from where it stood.
        more = json.loads(self.ok("train", "--resume", self.dir, "--early-stop", "6", "--format", "json"))
        self.assertGreaterEqual(len(more["history"]), best + 6)
        # Killed in between, it ends at the same epoch.
        process = self.start(self.csv, *flags, "--early-stop", "4", "--checkpoint-dir", f"{self.out}/b",
                             "--checkpoint-every", "2")
        time.sleep(0.1)
        process.kill()
        process.communicate(timeout=120)
        began = os.path.isdir(f"{self.out}/b") and os.listdir(f"{self.out}/b")
        if any(c.startswith("checkpoint-") and c.endswith(".safetensors") for c in began or ()):
            resumed = json.loads(self.ok("train", "--resume", f"{self.out}/b", "--format", "json"))
            self.assertEqual(resumed["early_stop"], result["early_stop"])

    @staticmethod
    def weights(path):
        whole = content(path)
        return whole[8 + struct.unpack("<Q", whole[:8])[0]:]

    def test_one_process_at_a_time_works_in_a_folder(self):
        long = ("--epochs", "100000", "--checkpoint-every", "7")
        process = self.start(self.csv, *long, "--checkpoint-dir", self.dir)
        self.wait_for_checkpoint()
        for args in (("--resume", self.dir), (self.csv, "--checkpoint-dir", self.dir)):
            self.assertIn(f"{self.dir}", self.misuse("train", *args))
        self.assertIn("another epilogue train is at work there", self.misuse("train", "--resume", self.dir))
        process.kill()  # the lock dies with its process
        process.communicate(timeout=120)
        process = self.start("--resume", self.dir)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130)

    def test_a_folder_that_is_removed_meanwhile_is_an_error(self):
        for remove in (shutil.rmtree, lambda path: os.rename(path, path + ".moved")):
            shutil.rmtree(self.dir, ignore_errors=True)
            process = self.start(self.csv, "--epochs", "100000", "--checkpoint-dir", self.dir)
            self.wait_for_checkpoint()
            for _ in range(100):  # a file may come while the folder is emptied
                try:
                    remove(self.dir)
                    break
                except OSError:
                    pass
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 2, errors)
            # A checkpoint that is written while the folder is emptied loses its file before the folder is gone.
            self.assertRegex(errors, "it was removed or moved while the run went on|cannot rename to: No such file or directory")


if __name__ == "__main__":
    unittest.main()
