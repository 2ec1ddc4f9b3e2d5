# SPDX-License-Identifier: Apache-2.0
"""epilogue train on tables as people have them: text, dates, gaps, names with commas; hints where they are wrong."""
import unittest

from train_cli_test import TrainTest


class Tables(TrainTest):
    def test_what_is_no_number_is_said(self):
        with open(self.csv, "w") as out:
            out.write('"k, id",city,when,shop,zip,kind\n')
            for i in range(300):
                city = "" if i % 50 == 0 else ["Oslo", "Rome"][i % 2]
                out.write(f"{i},{city},2024-01-{i % 28 + 1:02},shop {i % 99},0{i % 3},{'ab'[i % 2]}\n")
        flags = ("--ignore", '"k, id"', "--categorical", "zip", "--epochs", "3", "--checkpoint-dir", self.dir)
        text = self.ok("train", self.csv, *flags)
        for line in ("'city' is text of 2 different values: an input each", "'when' is a date: counted in days",
                     "'shop' is text of more than 64 different values: hashed to 64 inputs",
                     "'zip' is text of 3 different values", "6 missing values of 'city': taken as no category, and marked"):
            self.assertIn(line, text)
        self.assertIn("of 71 values, 2 classes", text)  # city 2 + 1, when, shop 64, zip 3
        self.ok("train", "--resume", self.dir, "--epochs", "4", *flags[:4])
        self.assertIn("--ignore: expected", self.misuse("train", "--resume", self.dir, "--ignore", "city"))
        small = self.ok("train", self.csv, "--max-categories", "2", *flags[:-1], f"{self.out}/small")
        self.assertIn("'zip' is text of more than 2 different values: hashed to 2 inputs", small)

    def test_hints(self):
        semicolons = f"{self.out}/semicolons.csv"
        with open(semicolons, "w") as out:
            out.write("a;y\n" + "1;2\n" * 9)
        for args, text in (([semicolons], "'a;y' looks like --delimiter ';'"),
                           ([semicolons, "--target", "y"], "'a;y' looks like --delimiter ';'"),
                           ([self.csv, "--task", "clasification"], "got 'clasification'; did you mean classification?"),
                           ([self.csv, "--optimizer", "adamv"], "did you mean adamw"),
                           ([self.csv, "--target", "kid"], "did you mean kind?"),
                           ([self.csv, "--ignore", "constand"], "did you mean constant?"),
                           (["fashion-mnits"], "did you mean fashion-mnist?")):
            self.assertIn(text, self.misuse("train", *args, "--checkpoint-dir", self.dir))

    def test_a_stray_infinity_is_named_whatever_the_task(self):
        with open(self.csv, "w") as out:
            out.write("x,y\n" + "".join(f"{i},{i % 7}\n" for i in range(50)) + "3,-inf\n")
        for task in ([], ["--task", "regression"], ["--task", "classification"]):
            self.assertIn("line 52, column 'y': expected a finite number, got '-inf'",
                          self.misuse("train", self.csv, *task, "--checkpoint-dir", self.dir))
        self.assertIn("line 52, column 'y': expected a finite number",
                      self.misuse("train", self.csv, "--target", "x", "--checkpoint-dir", self.dir))


if __name__ == "__main__":
    unittest.main()
