# SPDX-License-Identifier: Apache-2.0
"""From a fused MLP to a language model: a small Llama, its MLPs eager and fused.

    python examples/python/04_transformers.py [--out FOLDER] [--hidden 512] [--layers 4]

Records both with torch.profiler, checks that they agree, and writes one HTML report of the fused
run beside the eager one. Needs torch, transformers and epilogue-torch (docs/pytorch.md).
"""

import argparse
import pathlib

import torch
import transformers
from torch.profiler import ProfilerActivity, profile, record_function

import epilogue.torch


def record(model: torch.nn.Module, ids: torch.Tensor, path: pathlib.Path) -> torch.Tensor:
    with torch.no_grad():
        logits = model(ids).logits  # the first call packs weights
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            for _ in range(3):
                with record_function("forward"):
                    logits = model(ids).logits
    recorded.export_chrome_trace(str(path))
    return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("traces"))
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=options.hidden,
        intermediate_size=4 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=1024,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 1024, (1, options.tokens))

    eager_trace, fused_trace = options.out / "llama_eager.json.gz", options.out / "llama_fused.json.gz"
    eager = record(model, ids, eager_trace)
    epilogue.torch.fuse(model)
    fused = record(model, ids, fused_trace)
    torch.testing.assert_close(fused, eager, rtol=1e-3, atol=1e-4)
    print(epilogue.torch.why(model))

    print(epilogue.diff(str(eager_trace), str(fused_trace)))
    page = options.out / "llama.html"
    epilogue.report(str(fused_trace), str(page), against=str(eager_trace))
    print(f"{page}: the fused run beside the eager one")


if __name__ == "__main__":
    main()
