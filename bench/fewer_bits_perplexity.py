#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much accuracy do fewer bits cost a language model? fewer_bits_perplexity.py [--format text|markdown|json]

Trains a small Llama (transformers; bytes are its tokens) on sources of Python's standard library, which Debian ships,
with a fixed seed, then prints the perplexity per byte of files that it never saw: in f32, in bf16, and with every linear
layer rounded by each choice of fuse(weights=, activations=), beside torchao's same scheme where that is installed.
Rounded models compute in f32, so that nothing but the rounding shows. `change` is what the scheme adds to the loss of a
byte, in thousandths of a nat, with its standard error over windows of the text: all schemes read the same windows.

--model FILE keeps the trained weights, and takes them from there if they are of the same text and steps. Exit 1 if a
scheme of ours costs more than 1.02 times torchao's loss of accuracy and two standard errors. Needs torch, transformers,
safetensors and epilogue.torch.
"""
import argparse
import copy
import glob
import json
import math
import os
import sys
import time
import warnings
import zlib

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

import epilogue.torch
from fewer_bits_error import SCHEMES, torchao_of

WINDOW = 256  # bytes of context
BATCH = 8
HELD_OUT = 10  # one file of so many is never trained on
NAME = os.path.basename(__file__)


def read_text(pattern):
    """Bytes to train on, bytes held out: whole files, so that no function is in both."""
    files = sorted(glob.glob(pattern))
    parts = {False: [], True: []}
    for i, name in enumerate(files):
        with open(name, "rb") as f:
            parts[i % HELD_OUT == HELD_OUT - 1].append(f.read())
    texts = [b"\0".join(parts[held]) for held in (False, True)]
    if min(map(len, texts)) < 8 * WINDOW:
        sys.exit(f"{NAME}: --text: expected at least {HELD_OUT} files with {8 * WINDOW} bytes to train on and to hold out, "
                 f"got {len(files)} files with {len(texts[0])} and {len(texts[1])}: {pattern}")
    return files, texts[0], texts[1]


def tensor_of(text):
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def make_model(seed):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=768, num_hidden_layers=4,
                                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=WINDOW,
                                        tie_word_embeddings=False, attention_dropout=0.0))  # fmt: skip


def train(model, text, steps, seed):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(seed)
    began = time.monotonic()
    for step in range(steps):
        warm, done = min(1, (step + 1) / 50), step / steps
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * warm * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)
        at = torch.randint(len(text) - WINDOW - 1, (BATCH,), generator=generator)
        batch = torch.stack([text[i : i + WINDOW + 1] for i in at])
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 49:
            print(f"{NAME}: step {step + 1} of {steps}: loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", file=sys.stderr)


def trained(options, text):
    """The model, from --model where that is of this text."""
    key = {"crc32": f"{zlib.crc32(text):08x}", "steps": str(options.steps), "seed": str(options.seed)}
    model = make_model(options.seed)
    if options.model and os.path.exists(options.model):
        try:
            with safe_open(options.model, "pt") as file:
                got = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}
        except (SafetensorError, OSError) as error:
            sys.exit(f"{NAME}: --model: {options.model}: {error}")
        if {name: got.get(name) for name in key} != key:
            sys.exit(f"{NAME}: --model: expected weights of {key}, got those of {got or 'another program'}: {options.model}")
        model.load_state_dict(state)
        return model.eval()
    train(model, tensor_of(text), options.steps, options.seed)
    if options.model:
        save_file({name: t.contiguous() for name, t in model.state_dict().items()}, options.model, key)
    return model.eval()


def losses_of(model, windows, what):
    """The mean loss of a byte in each window, in double."""
    losses = []
    began = time.monotonic()
    with torch.inference_mode():
        for batch in windows.split(BATCH):
            logits = model(input_ids=batch[:, :-1], use_cache=False).logits.double()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
            losses.append(loss.view(len(batch), -1).mean(1))
    print(f"{NAME}: {what}: {len(windows)} windows, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return torch.cat(losses)


def rounded(model, fuse_options):
    """Our model with every linear layer rounded; leaves where one was not."""
    ours = epilogue.torch.fuse(copy.deepcopy(model), linears="always", **fuse_options)

    def check():
        report = epilogue.torch.why(ours)
        idle = [r for r in (*report.rows, *report.linears) if not r.is_fused or r.own_calls or not r.fused_calls]
        if idle:
            sys.exit(f"{NAME}: {fuse_options}: expected that every linear layer runs fused:\n{report}")

    return ours, check


def measure(model, windows, text, without):
    exact = losses_of(model, windows, "f32")
    rows = [{"scheme": "f32", "losses": exact, "torchao": None}]
    rows.append({"scheme": "bf16", "losses": losses_of(copy.deepcopy(model).bfloat16(), windows, "bf16"), "torchao": None})
    for name, fuse_options, theirs in SCHEMES:
        ours, check = rounded(model, fuse_options)
        row = {"scheme": name, "losses": losses_of(ours, windows, name), "torchao": None}
        check()
        other = None if theirs in without else torchao_of(model, theirs)
        if other is not None:
            row["torchao"] = losses_of(other, windows, "torchao's " + name)
        rows.append(row)
    smoothed = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    at = torch.randint(len(text) - WINDOW, (4, BATCH), generator=generator)
    epilogue.torch.smooth(smoothed, [{"input_ids": torch.stack([text[i : i + WINDOW] for i in some])} for some in at])
    ours, check = rounded(smoothed, {"weights": "int8", "activations": "int8"})
    rows.append({"scheme": "int8, rows too, smoothed", "losses": losses_of(ours, windows, "smoothed"), "torchao": None})
    check()
    return [summary(row, exact) for row in rows]


def summary(row, exact):
    def of(losses):
        change = losses - exact
        return {"perplexity": losses.mean().exp().item(), "change": 1e3 * change.mean().item(),
                "error": 1e3 * (change.std() / math.sqrt(len(change))).item()}  # fmt: skip

    return {"scheme": row["scheme"], **of(row["losses"]), "torchao": None if row["torchao"] is None else of(row["torchao"])}


def is_worse(row):
    theirs = row["torchao"]
    return theirs is not None and row["change"] > 1.02 * max(theirs["change"], 0) + 2 * (row["error"] + theirs["error"])


def show(rows, is_text):
    line = "{:<38}{:>11}{:>16}{:>21}{:>16}" if is_text else "| {} | {} | {} | {} | {} |"
    print(line.format("scheme", "perplexity", "change, mnat", "torchao perplexity", "change, mnat"))
    if not is_text:
        print("|---|---:|---:|---:|---:|")
    for row in rows:
        cells = []
        for one in (row, row["torchao"]):
            cells += ["-", "-"] if one is None else [f"{one['perplexity']:.4f}", f"{one['change']:+.2f} ± {one['error']:.2f}"]
        if row["scheme"] == "f32":
            cells[1] = "0"
        print(line.format(row["scheme"], *cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", metavar="GLOB", default="/usr/lib/python3*/*.py", help="of files")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--windows", type=int, default=256, help=f"of {WINDOW} bytes that are measured, spread over the text held out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", metavar="SCHEME", nargs="+", default=[],
                        help="of torchao: w8a8 takes a quarter of an hour where its int8 products have no kernel")
    parser.add_argument("--model", metavar="FILE", help="trained weights, as safetensors")
    parser.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    options = parser.parse_args()
    if options.steps < 0 or options.windows < 2:
        parser.error(f"expected --steps of at least 0 and --windows of at least 2, got {options.steps} and {options.windows}")
    warnings.filterwarnings("ignore")
    files, text, held_out = read_text(options.text)
    model = trained(options, text)
    held_out = tensor_of(held_out)
    count = min(options.windows, (len(held_out) - 1) // WINDOW)
    starts = [i * (len(held_out) - WINDOW - 1) // max(count - 1, 1) for i in range(count)]
    rows = measure(model, torch.stack([held_out[s : s + WINDOW + 1] for s in starts]), tensor_of(text), options.without)
    facts = {"files": len(files), "trained_on_bytes": len(text), "crc32": f"{zlib.crc32(text):08x}", "steps": options.steps,
             "seed": options.seed, "held_out_bytes": count * WINDOW, "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip
    if options.format == "json":
        json.dump({"schema_version": 1, **facts, "rows": rows}, sys.stdout, indent=2)
        print()
    else:
        show(rows, options.format == "text")
        print(f"\n{facts['parameters']} parameters, {options.steps} steps of {BATCH} x {WINDOW} bytes, seed {options.seed}; {len(files)} files "
              f"({len(text)} bytes to train on, CRC-32 {facts['crc32']}), {facts['held_out_bytes']} bytes measured")
    worse = [row for row in rows if is_worse(row)]
    for row in worse:
        print(f"{NAME}: {row['scheme']}: expected at most 1.02 times torchao's loss of accuracy, got "
              f"{row['change']:.2f} beside {row['torchao']['change']:.2f} mnat", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
