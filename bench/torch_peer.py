#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch as a peer of `epilogue bench`: answers one JSON object per line of stdin.

  {"do": "start", "threads": 2}                  -> {"version": "2.8.0"}
  {"do": "load", "file": F, "model": {...}}      -> {}      weights and input, a safetensors file
  {"do": "prepare", "mode": "eager"|"compile",
   "out": F}                                     -> {"peak_intermediate_bytes": N or null}
                                                    writes the result to F as safetensors
  {"do": "prepare_step", "mode": ...,
   "out": F, "lr": L}                            -> {"peak_intermediate_bytes": N or null}
                                                    a training step towards the loaded "target"
                                                    with AdamW; F gets the first step's gradients
  {"do": "run", "mode": M, "calls": C,
   "samples": S, "dropped": D}                   -> {"ns": [per call, one number per sample]}

What cannot be done answers {"error": "one line"}. Between requests the process sleeps in read().
"""
import ctypes
import functools
import json
import os
import shutil
import struct
import sys
import sysconfig
import time
import warnings


def torch_dtypes():
    import torch

    return {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def load_tensors(path):
    """Name -> tensor of a safetensors file."""
    import torch

    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = bytearray(f.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = torch_dtypes()[entry["dtype"]]
        count = (end - begin) // dtype.itemsize
        # A copy of its own, so that memory is aligned as PyTorch aligns it.
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=begin)
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def save_tensors(path, tensors):
    """Writes a safetensors file: name -> tensor."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    names = {dtype: text for text, dtype in torch_dtypes().items()}
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            f.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))


def activation(name):
    import torch.nn.functional as F

    if name in ("geglu", "gelu_tanh"):
        return lambda x: F.gelu(x, approximate="tanh")
    return {"swiglu": F.silu, "silu": F.silu, "reglu": F.relu, "relu": F.relu, "gelu": F.gelu}[name]


def build_model(spec, tensors):
    """The model as one would write it for PyTorch: nn.Linear layers, or matmul and add."""
    import torch
    import torch.nn.functional as F

    def parameter(name):
        return torch.nn.Parameter(tensors[name], requires_grad=False) if name in tensors else None

    class MatmulAdd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.b = parameter("b")
            self.c = parameter("c")

        def forward(self, x):
            return torch.add(torch.matmul(x, self.b), self.c)

    def linear(prefix):
        weight = tensors[prefix + ".weight"]
        bias = parameter(prefix + ".bias")
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None,
                                device="meta")
        layer.weight = parameter(prefix + ".weight")
        if bias is not None:
            layer.bias = bias
        return layer

    class Mlp(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_weight = parameter("norm.weight")
            self.norm_bias = parameter("norm.bias")
            stages = range(len(spec["activations"]))
            self.layers = torch.nn.ModuleList(linear(f"{i}") for i in stages)
            self.ups = torch.nn.ModuleDict(
                {f"{i}": linear(f"{i}.up") for i in stages if f"{i}.up.weight" in tensors})
            self.functions = [activation(a) if a else None for a in spec["activations"]]

        def forward(self, x):
            h = x
            if spec["norm"] == "rms":
                h = F.rms_norm(h, h.shape[-1:], self.norm_weight, spec["norm_eps"])
            if spec["norm"] == "layer":
                h = F.layer_norm(h, h.shape[-1:], self.norm_weight, self.norm_bias,
                                 spec["norm_eps"])
            for i, layer in enumerate(self.layers):
                y = layer(h)
                if self.functions[i] is not None:
                    y = self.functions[i](y)
                if f"{i}" in self.ups:
                    y = y * self.ups[f"{i}"](h)
                h = y
            return x + h if spec["residual"] else h

    return (MatmulAdd() if spec["kind"] == "matmul-add" else Mlp()).eval()


def file_name(name):
    """A parameter's name here, from its name in build_model()'s module: ups.0.weight -> 0.up.weight."""
    if name.startswith("ups."):
        _, index, kind = name.split(".")
        return f"{index}.up.{kind}"
    return name.removeprefix("layers.").replace("norm_", "norm.")


def require_compiler():
    """torch.compile builds C++ extensions: a compiler and Python's own headers."""
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        raise RuntimeError("torch.compile needs Python.h (python3-dev), which is not there")
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler.split()[0]) is None:
        raise RuntimeError(f"torch.compile needs a C++ compiler, and there is no {compiler}")


def memory_events(function):
    """The result of a call, and the bytes of each allocation and (below 0) free; None where the
    profiler cannot tell."""
    import torch

    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                    profile_memory=True) as profile:
            result = function()
        return result, [event.nbytes() for event in profile.profiler.kineto_results.events()
                        if event.name() == "[memory]"]
    except (AttributeError, RuntimeError):
        return None, None


def peak_intermediate_bytes(function):
    """The most memory that a call holds besides its result; None where the profiler cannot tell."""
    result, sizes = memory_events(function)
    if not sizes:
        return None
    wanted = result.numel() * result.element_size()
    if wanted not in sizes:
        return None  # not even the result was seen
    # The result is the last that was made of its size.
    made = len(sizes) - 1 - sizes[::-1].index(wanted)
    live = peak = 0
    for i, size in enumerate(sizes):
        if i != made:
            live += size
            peak = max(peak, live)
    return peak


class Peer:
    def __init__(self):
        self.functions = {}
        self.make_model = self.model = None
        self.x = self.target = None

    def start(self, request):
        try:
            import torch
        except ImportError as e:
            raise RuntimeError(f"PyTorch is not installed for this Python ({e})") from e
        torch.set_grad_enabled(False)
        torch.set_num_threads(request["threads"])
        return {"version": torch.__version__}

    def load(self, request):
        tensors = load_tensors(request["file"])
        self.x = tensors.pop("input")
        self.target = tensors.pop("target", None)
        self.make_model = lambda: build_model(
            request["model"], {name: tensor.clone() for name, tensor in tensors.items()})
        self.model = self.make_model()
        self.functions = {}
        return {}

    def prepare(self, request):
        function = self.model
        if request["mode"] == "compile":
            import torch
            import torch._inductor.config

            require_compiler()
            torch._dynamo.reset()
            torch._inductor.config.freezing = True
            function = torch.compile(self.model, mode="max-autotune")
        call = functools.partial(function, self.x)
        save_tensors(request["out"], {"output": call()})
        call()
        self.functions[request["mode"]] = call
        return {"peak_intermediate_bytes": peak_intermediate_bytes(call)}

    def prepare_step(self, request):
        import torch
        import torch.nn.functional as F

        model = self.make_model().train()
        parameters = dict(model.named_parameters())
        for parameter in parameters.values():
            parameter.requires_grad_(True)
        optimizer = torch.optim.AdamW(parameters.values(), lr=request["lr"], fused=True)
        function = model
        if request["mode"] == "compile":
            import torch._inductor.config

            require_compiler()
            torch._dynamo.reset()
            torch._inductor.config.freezing = False
            function = torch.compile(model, mode="max-autotune")
        x, target = self.x, self.target

        def gradients():
            with torch.enable_grad():
                loss = F.mse_loss(function(x), target)
                loss.backward()
            return loss

        def step():
            loss = gradients()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        gradients()
        save_tensors(request["out"],
                     {file_name(name): p.grad for name, p in parameters.items()})
        optimizer.zero_grad()
        step()
        self.functions[request["mode"]] = step
        return {"peak_intermediate_bytes": peak_intermediate_bytes(step)}

    def run(self, request):
        function = self.functions[request["mode"]]
        calls = request["calls"]
        samples = []
        for _ in range(request["dropped"] + request["samples"]):
            start = time.perf_counter_ns()
            for _ in range(calls):
                function()
            samples.append((time.perf_counter_ns() - start) / calls)
        return {"ns": samples[request["dropped"]:]}


def answer(peer, line):
    request = json.loads(line)
    try:
        return {"start": peer.start, "load": peer.load, "prepare": peer.prepare,
                "prepare_step": peer.prepare_step, "run": peer.run}[request["do"]](request)
    except Exception as e:  # whatever a compiler throws: it becomes the reason in the report
        first = next((text for text in str(e).splitlines() if text.strip()), "")
        return {"error": f"{type(e).__name__}: {first.strip()}" if first else type(e).__name__}


def main():
    # Libraries print to stdout too; the answers get a channel of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    peer = Peer()
    for line in sys.stdin:
        answers.write(json.dumps(answer(peer, line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
