#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/: one small file per form that the reader knows."""
import json
import struct
from pathlib import Path


def tensor(dtype, shape, begin, end, **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def file(header, data_bytes, padding=0):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * padding
    return struct.pack("<Q", len(text)) + text + bytes(range(data_bytes))


SEEDS = {
    "two.safetensors": file({"__metadata__": {"format": "pt", "größe": "\"\\\n"},
                             "a.weight": tensor("F32", [2, 3], 0, 24),
                             "a.bias": tensor("BF16", [2], 24, 28)}, 28, padding=5),
    "odd.safetensors": file({"scalar": tensor("F64", [], 0, 8), "empty": tensor("I64", [0, 7], 8, 8),
                             "nibbles": tensor("F4", [4], 8, 10),
                             "more": tensor("BOOL", [1], 10, 11, extra={"x": [None, 1.5, True]})}, 11),
    "none.safetensors": file({}, 0),
    "escapes.safetensors": file(b'{"\\u0061\\ud83d\\ude42":{"shape":[1],"data_offsets":[0,1],"dtype":"U8"}}', 1),
    "large.safetensors": file({"w": tensor("U8", [2**63 - 1, 2**32], 0, 2**64 - 1)}, 0),
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for name, content in SEEDS.items():
        (folder / name).write_bytes(content)
