# SPDX-License-Identifier: Apache-2.0
"""epilogue predict: what was trained is used; as many rows out as in, in the target's own words and units."""
import csv
import datetime
import json
import os
import random
import struct
import unittest

from command import CommandTest, run
from train_cli_test import write_blobs, write_images, write_plane


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def write_tensor(path, shape, values):
    data = struct.pack(f"<{len(values)}f", *values)
    header = json.dumps({"values": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header + data)


def write_sales(path, rows=600):
    """price = 3 size + 20 (number of the city) + 0.1 (day) + noise; some gaps."""
    draw = random.Random(4)
    cities = ["Bern", "Oslo", "Rome", "New York"]
    first = datetime.date(2024, 1, 1)
    with open(path, "w", encoding="utf-8") as out:
        out.write('id,city,when,size,shop,"note, long",price\n')
        for i in range(rows):
            city, day, size = draw.randrange(4), draw.randrange(300), draw.gauss(50, 20)
            gap = draw.random()
            out.write(f"{i},{'' if gap < 0.03 else cities[city]},{first + datetime.timedelta(day)},"
                      f"{'NA' if gap > 0.97 else round(size, 2)},shop-{draw.randrange(200)},"
                      f'"so, ""so""",{3 * size + 20 * city + 0.1 * day + draw.gauss(0, 2):.2f}\n')


class PredictModel(CommandTest):
    def train(self, data, *args, epochs=20):
        result = json.loads(self.ok("train", data, "--epochs", str(epochs), "--checkpoint-dir", f"{self.out}/run",
                                    "--format", "json", *args))
        return result["model"]

    def predict(self, model, data, *args):
        out = f"{self.out}/predicted.csv"
        result = json.loads(self.ok("predict", model, data, "-o", out, "--format", "json", *args))
        self.assertEqual(result["output"], out)
        rows = rows_of(out)
        self.assertEqual(result["rows"], len(rows))
        return rows

    def test_classes_of_a_table(self):
        table = f"{self.out}/blobs.csv"
        write_blobs(table)
        model = self.train(table)
        rows = self.predict(model, table)
        known = rows_of(table)
        self.assertEqual(len(rows), len(known))
        right = sum(row["prediction"] == k["kind"] for row, k in zip(rows, known))
        self.assertGreater(right / len(known), 0.97)
        for row in rows:
            chances = {name: float(row[f"p({name})"]) for name in "abc"}
            self.assertAlmostEqual(sum(chances.values()), 1, places=5)
            self.assertEqual(max(chances, key=chances.get), row["prediction"])
        # Without the target, in another order, with another delimiter and a missing value.
        fewer = f"{self.out}/new.csv"
        with open(fewer, "w", encoding="utf-8") as out:
            out.write("y;extra;constant;x\n0.1;q;7;4.9\n;r;7;\n")
        rows = self.predict(model, fewer, "--delimiter", ";")
        self.assertEqual(rows[0]["prediction"], "b")
        self.assertEqual(len(rows), 2)

    def test_numbers_of_a_table(self):
        table = f"{self.out}/plane.csv"
        write_plane(table)
        rows = self.predict(self.train(table, epochs=60), table)
        errors = [abs(float(row["prediction"]) - float(k["value"])) for row, k in zip(rows, rows_of(table))]
        self.assertLess(sum(errors) / len(errors), 3)  # of values from 950 to 1050

    def test_fewer_bits_change_predictions_a_little(self):
        table = f"{self.out}/plane.csv"
        write_plane(table)
        model = self.train(table)
        exact = [float(row["prediction"]) for row in self.predict(model, table)]
        spread = max(exact) - min(exact)
        seen = set()
        for flags, most in ((("int8",), 0.05), (("int8", "--activation-bits", "int8"), 0.1), (("int4",), 0.5),
                            (("int4", "--group", "32", "--zero-points"), 0.5), (("int4", "--activation-bits", "int8"), 0.5)):
            got = [float(row["prediction"]) for row in self.predict(model, table, "--weight-bits", *flags)]
            off = max(abs(a - b) for a, b in zip(got, exact))
            self.assertGreater(off, 0, flags)
            self.assertLess(off, most * spread, flags)
            seen.add(tuple(got))
        self.assertEqual(len(seen), 5)
        for flags, line in ((("--group", "32"), "--group, --zero-points: expected --weight-bits int4 beside them, got same"),
                            (("--activation-bits", "int8"),
                             "--activation-bits: expected --weight-bits int8 or int4 beside int8 activations, got same")):
            self.assertIn(line, self.misuse("predict", model, table, "-o", f"{self.out}/x.csv", *flags))

    def test_many_rows_are_read_piece_by_piece(self):
        table = f"{self.out}/plane.csv"
        write_plane(table)
        model = self.train(table)
        large = f"{self.out}/large.csv"
        with open(large, "w", encoding="utf-8") as out:
            out.write("a,b\n")
            out.writelines(f"{i % 100 / 50 - 1},{i % 37 / 18 - 1}\n" for i in range(20000))
        rows = self.predict(model, large)
        self.assertEqual(len(rows), 20000)
        self.assertEqual(rows[0], rows[3700])  # of the same values, in another piece

    def test_text_dates_and_gaps(self):
        table = f"{self.out}/sales.csv"
        write_sales(table)
        model = self.train(table, "--ignore", "id", "--ignore", '"note, long"', epochs=30)
        known = rows_of(table)
        rows = self.predict(model, table)
        self.assertEqual(len(rows), len(known))
        mean = sum(float(k["price"]) for k in known) / len(known)
        spread = sum((float(k["price"]) - mean) ** 2 for k in known)
        error = sum((float(r["prediction"]) - float(k["price"])) ** 2 for r, k in zip(rows, known))
        self.assertLess(error, 0.1 * spread)
        new = f"{self.out}/new.csv"
        with open(new, "w", encoding="utf-8") as out:
            out.write("city,when,size,shop\nAtlantis,2024-03-01,7,shop-1\n,,,\nBern,2024-03-01T12:00,5,never seen\n")
        text = self.ok("predict", model, new, "-o", f"{self.out}/p.csv")
        self.assertIn("1 value of 'city' that no training row had: as none of its categories", text)
        self.assertEqual(len(rows_of(f"{self.out}/p.csv")), 3)
        for bad, message in (("city,when,size\nBern,2024-03-01,5\n", "expected the column 'shop'"),
                             ("city,when,size,shop\nBern,tomorrow,5,x\n", "line 2, column 'when': expected a date"),
                             ("city,when,size,shop\nBern,2024-03-01,-inf,x\n", "line 2, column 'size': expected a finite"),
                             ("city,when,size,shop\nBern,2024-03-01,5,x\nBern,2024", "line 3: expected 4 cells, got 2"),
                             ("city;when;size;shop\nBern;2024-03-01;5;x\n", "looks like --delimiter ';'")):
            with open(new, "w", encoding="utf-8") as out:
                out.write(bad)
            self.assertIn(message, self.misuse("predict", model, new, "-o", f"{self.out}/q.csv"))
        self.assertFalse(os.path.exists(f"{self.out}/q.csv"))

    # Pieces and threads are the command's own: the same numbers, whatever they are.
    def test_predictions_do_not_depend_on_threads(self):
        table = f"{self.out}/sales.csv"
        write_sales(table, rows=30000)
        model = self.train(table, "--ignore", "id", "--ignore", '"note, long"', epochs=1)
        rows = self.predict(model, table, "--threads", "1")
        self.assertEqual(rows, self.predict(model, table, "--threads", "3"))

    def test_a_tensor(self):
        table = f"{self.out}/plane.csv"
        write_plane(table, rows=50)
        model = self.train(table)
        values = [float(row[name]) for row in rows_of(table) for name in "ab"]
        tensor = f"{self.out}/values.safetensors"
        write_tensor(tensor, [50, 2], values)
        for row, known in zip(self.predict(model, tensor), self.predict(model, table)):
            self.assertAlmostEqual(float(row["prediction"]), float(known["prediction"]), places=2)
        write_tensor(tensor, [25, 4], values)
        self.assertIn("expected rows of 2 values, got f32[25, 4]",
                      self.misuse("predict", model, tensor, "-o", f"{self.out}/x.csv"))

    def test_images(self):
        folder = f"{self.out}/images"
        write_images(folder)
        model = self.train("fashion-mnist", "--data-dir", folder, "--hidden", "32")
        rows = self.predict(model, f"{folder}/t10k-images-idx3-ubyte")
        right = sum(row["prediction"] == str(i % 10) for i, row in enumerate(rows))
        self.assertGreater(right / len(rows), 0.9)
        self.assertIn("expected IDX images or a .safetensors file", self.misuse("predict", model, __file__, "-o", f"{self.out}/x.csv"))

    def test_what_cannot_be_used_leaves_no_file(self):
        table = f"{self.out}/blobs.csv"
        write_blobs(table)
        model = self.train(table)
        out = f"{self.out}/x.csv"
        bad = f"{self.out}/bad.csv"
        with open(bad, "w", encoding="utf-8") as f:
            f.write("x,y,constant\n1,2,7\n1,two,7\n")
        self.assertIn("line 3, column 'y': expected a finite number, got 'two'",
                      self.misuse("predict", model, bad, "-o", out))
        with open(bad, "w", encoding="utf-8") as f:
            f.write("x,constant\n1,7\n")
        self.assertIn("expected the column 'y', which the model reads", self.misuse("predict", model, bad, "-o", out))
        self.assertIn("none.safetensors", self.misuse("predict", f"{self.out}/none.safetensors", table, "-o", out))
        self.assertFalse(os.path.exists(out))
        self.assertNotEqual(run("predict", model).returncode, 0)


if __name__ == "__main__":
    unittest.main()
