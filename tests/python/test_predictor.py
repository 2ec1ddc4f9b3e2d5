# SPDX-License-Identifier: Apache-2.0
"""epilogue.Predictor gives the digits of `epilogue predict`, and the metadata is enough to compute them without it."""
import csv
import json
import math
import os
import random
import struct
import subprocess

import pytest

import epilogue
import epilogue._core

np = pytest.importorskip("numpy")
if not epilogue._core.has_engine:
    pytest.skip("this build holds the trace half only", allow_module_level=True)
COMMAND = os.environ["EPILOGUE_COMMAND"]


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_table(path, rows=9000):
    draw = random.Random(6)
    with open(path, "w", encoding="utf-8") as out:
        out.write("city,when,size,shop,kind,price\n")
        for _ in range(rows):
            city, size, gap = draw.randrange(4), draw.gauss(50, 20), draw.random()
            price = 3 * size + 20 * city + draw.gauss(0, 9)
            out.write(f"{'' if gap < 0.1 else 'Bern Oslo Rome Ulm'.split()[city]},2024-0{draw.randrange(9) + 1}-11,"
                      f"{'' if gap > 0.9 else size},s{draw.randrange(300)},{'high' if price > 180 else 'low'},{price}\n")


@pytest.fixture(scope="module", params=["price", "kind"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    table, model, out = f"{folder}/t.csv", f"{folder}/run/model.safetensors", f"{folder}/predicted.csv"
    write_table(table)
    other = {"price": "kind", "kind": "price"}[request.param]
    subprocess.run([COMMAND, "train", table, "--target", request.param, "--ignore", other, "--epochs", "2",
                    "--layers", "1", "--checkpoint-dir", f"{folder}/run"], check=True, capture_output=True)
    subprocess.run([COMMAND, "predict", model, table, "-o", out], check=True, capture_output=True)
    return model, table, rows_of(out)


def test_every_digit_is_the_commands(trained):
    model, table, printed = trained
    predictor = epilogue.Predictor(model)
    predicted = predictor.predict(table)
    if predictor.class_names:
        assert predicted.values == [] and predictor.class_names == ["high", "low"]
        assert predicted.classes == [row["prediction"] for row in printed]
        ours = np.asarray(predicted.probabilities.numpy())
        theirs = np.array([[row["p(high)"], row["p(low)"]] for row in printed], dtype=np.float32)
        assert np.array_equal(ours, theirs)
    else:
        assert predicted.probabilities is None and predicted.classes == []
        assert predicted.values == [float(row["prediction"]) for row in printed]


@pytest.mark.parametrize("flags", [["int8"], ["int8", "int8"], ["int4", None, 32, True], ["int4", "int8"]], ids=str)
def test_fewer_bits_are_the_commands_too(trained, flags, tmp_path):
    model, table, exact = trained
    weights, activations, group, zeros = [*flags, None, 128, False][: len(flags)] + [None, 128, False][len(flags) - 1:]
    out = str(tmp_path / "p.csv")
    arguments = ["--weight-bits", weights, *(["--activation-bits", activations] if activations else []),
                 *(["--group", str(group)] if group != 128 else []), *(["--zero-points"] if zeros else [])]
    subprocess.run([COMMAND, "predict", model, table, "-o", out, *arguments], check=True, capture_output=True)
    printed = rows_of(out)
    predictor = epilogue.Predictor(model, weights=weights, activations=activations, group=group, zero_points=zeros)
    predicted = predictor.predict(table)
    if predictor.class_names:
        assert predicted.classes == [row["prediction"] for row in printed]
        name = "p(high)"
        assert np.array_equal(np.asarray(predicted.probabilities.numpy())[:, 0], np.array([r[name] for r in printed], dtype=np.float32))
    else:
        name = "prediction"
        assert predicted.values == [float(row[name]) for row in printed]
    ours, theirs = (np.array([float(row[name]) for row in rows]) for rows in (printed, exact))
    off = np.abs(ours - theirs).max()
    assert 0 < off < (0.05 if weights == "int8" else 0.5) * np.ptp(theirs)


def test_bits_that_do_not_fit_are_said(trained):
    for options, message in (({"weights": "int2"}, r"\[weights\] expected None, 'int8' or 'int4', got 'int2'"),
                             ({"activations": "int8"}, r"\[activations\] expected None unless weights are"),
                             ({"weights": "int4", "group": 64}, r"\[group\] expected 32 or 128, got 64"),
                             ({"group": 32}, r"\[group and zero_points\] expected none unless weights are 'int4', got 32")):
        with pytest.raises(epilogue.Error, match=message):
            epilogue.Predictor(trained[0], **options)


def test_the_metadata_says_it_all(trained):
    """docs/training.md, read with NumPy alone."""
    model, table, printed = trained
    with open(model, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {name: np.frombuffer(data[8 + size:], np.float32, math.prod(t["shape"]), t["data_offsets"][0])
               .reshape(t["shape"]) for name, t in header.items() if name != "__metadata__"}
    meaning = json.loads(header["__metadata__"]["table"])
    rows = rows_of(table)
    inputs = []
    for f in meaning["features"]:
        cells = [row[f["name"]] for row in rows]
        if f["kind"] == "number" or f["kind"] == "date":
            values = np.array([np.nan if c == "" else np.datetime64(c).astype(int) if f["kind"] == "date" else float(c)
                               for c in cells])
            inputs.append(np.nan_to_num((values - f["mean"]) / f["std"]))
        else:
            if f["kind"] == "category":
                index = [f["categories"].index(c) if c else -1 for c in cells]
            else:
                index = [hashed(c) % f["buckets"] for c in cells]
            inputs += list(np.arange(f.get("buckets", len(f.get("categories", ()))))[:, None] == np.array(index))
        if f["missing_input"]:
            inputs.append(np.array([c == "" for c in cells]))
    x = np.stack(inputs, 1).astype(np.float32)
    (w1, b1), (w2, b2) = ((tensors[n + ".weight"], tensors[n + ".bias"])
                          for n in sorted({t.rpartition(".")[0] for t in tensors}, key=lambda n: int(n)))
    h = x @ w1.T + b1
    h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    y = h @ w2.T + b2
    if meaning["task"] == "regression":
        theirs = np.array([float(row["prediction"]) for row in printed])
        assert np.allclose(y[:, 0] * meaning["target_std"] + meaning["target_mean"], theirs,
                           atol=1e-4 * meaning["target_std"])
    else:
        p = np.exp(y - y.max(1, keepdims=True))
        assert np.allclose((p / p.sum(1, keepdims=True))[:, 0], [float(r["p(high)"]) for r in printed], atol=1e-5)


def hashed(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def test_what_is_no_model_is_said(tmp_path):
    with pytest.raises(epilogue.Error, match="none.safetensors"):
        epilogue.Predictor(str(tmp_path / "none.safetensors"))
