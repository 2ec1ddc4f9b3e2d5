# SPDX-License-Identifier: Apache-2.0
"""Weights that are rounded already: as parameters of a module, in files, and as torchao holds them.

A linear layer whose weight is a PackedWeight has no other copy of it. fuse() gives the engine its steps and scales as
they are; a call that the engine cannot make widens them for that call.
"""

import json
import os
import typing

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from .linears import is_conv1d, is_linear
from .sharded import is_dtensor

_VERSION = "1"
_ROUNDED, _TIED, _TRANSPOSED, _DTYPE = "rounded.", "tied.", "transposed.", "dtype."
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Rounded(typing.NamedTuple):
    """A weight [n, k] as epilogue/rounded_weight.h describes it, and how a module holds it."""

    steps: torch.Tensor  # uint8 [n, (k + 1) // 2] of 4 bits, [n, k] of 8
    scales: torch.Tensor
    zeros: "torch.Tensor | None"
    inputs: int  # k
    group: int  # 0: 8 bits
    dtype: torch.dtype  # that it stands for
    transposed: bool  # the module's weight is [k, n]

    @property
    def shape(self) -> torch.Size:
        n = self.steps.shape[0]
        return torch.Size((self.inputs, n) if self.transposed else (n, self.inputs))

    def outputs(self, first: int, last: int) -> "Rounded":
        """Of some of the outputs."""
        zeros = None if self.zeros is None else self.zeros[first:last].contiguous()
        return self._replace(steps=self.steps[first:last].contiguous(), scales=self.scales[first:last].contiguous(), zeros=zeros)

    def map(self, f: "typing.Callable[[torch.Tensor], torch.Tensor]") -> "Rounded":
        return self._replace(steps=f(self.steps), scales=f(self.scales), zeros=None if self.zeros is None else f(self.zeros))

    def dequantize(self) -> torch.Tensor:
        if self.group == 0:
            values = self.steps.view(torch.int8).float() * self.scales[:, None]
        else:
            steps = torch.stack((self.steps & 15, self.steps >> 4), dim=-1).flatten(1)[:, : self.inputs].float()

            def spread(t: torch.Tensor) -> torch.Tensor:
                return t.float().repeat_interleave(self.group, dim=1)[:, : self.inputs]

            values = (steps - (8.0 if self.zeros is None else spread(self.zeros))) * spread(self.scales)
        return (values.t() if self.transposed else values).to(self.dtype)


class PackedWeight(torch.Tensor):
    """A weight of which the rounded copy alone is there. Ops widen it for their call; no gradients."""

    rounded: Rounded
    # Ops give plain tensors, and a compiler reads no function of this class.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, rounded: Rounded) -> "PackedWeight":
        made = torch.Tensor._make_wrapper_subclass(cls, rounded.shape, dtype=rounded.dtype, device="cpu", requires_grad=False)
        made.rounded = rounded
        return made

    def __init__(self, rounded: Rounded) -> None:
        pass

    def current(self) -> Rounded:
        """Of the dtype that the weight has now: Module.to() writes that alone."""
        if self.rounded.dtype is not self.dtype:
            self.rounded = self.rounded._replace(dtype=self.dtype)
        return self.rounded

    def dequantize(self) -> torch.Tensor:
        return self.current().dequantize()

    def __repr__(self, *, tensor_contents: typing.Any = None) -> str:
        r = self.rounded
        kind = "int8" if r.group == 0 else f"int4 in groups of {r.group}" + (" with zero points" if r.zeros is not None else "")
        return f"PackedWeight({kind}, {list(self.shape)}, {self.dtype})"

    def __deepcopy__(self, memo: typing.Any) -> "PackedWeight":
        copy = memo.get(id(self))
        if copy is None:
            copy = memo[id(self)] = parameter_of(self.current().map(torch.clone))
        return copy

    def __reduce_ex__(self, protocol: typing.Any) -> typing.Any:
        return _rebuild, (tuple(self.current()),)

    def __tensor_flatten__(self) -> "tuple[list[str], typing.Any]":
        """torch.compile: graphs read steps and scales as tensors of their own."""
        r = self.current()
        return [n for n in ("steps", "scales", "zeros") if getattr(r, n) is not None], (r.inputs, r.group, r.dtype, r.transposed)

    def _stable_hash_for_caching(self) -> str:
        """For the cache of compiled graphs, which keeps none of the values."""
        return str(self.__tensor_flatten__())

    def __getattr__(self, name: str) -> typing.Any:
        if name in ("steps", "scales", "zeros"):
            return getattr(self.rounded, name)
        raise AttributeError(name)

    @staticmethod
    def __tensor_unflatten__(inner: "dict[str, torch.Tensor]", rest: typing.Any, size: typing.Any, stride: typing.Any) -> "PackedWeight":
        return PackedWeight(Rounded(inner["steps"], inner["scales"], inner.get("zeros"), *rest))

    @classmethod
    def __torch_dispatch__(cls, func: typing.Any, types: typing.Any, args: typing.Any = (), kwargs: typing.Any = None) -> typing.Any:
        kwargs = kwargs or {}
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.alias.default):
            return PackedWeight(args[0].current())
        if func is aten.clone.default:
            return PackedWeight(args[0].current().map(torch.clone))
        if func is aten._to_copy.default and set(kwargs) <= {"dtype"} and kwargs.get("dtype") in _DTYPES.values():
            return PackedWeight(args[0].rounded._replace(dtype=kwargs["dtype"]))
        if func is aten.t.default:
            r = args[0].current()
            return PackedWeight(r._replace(transposed=not r.transposed))
        if func is aten.slice.Tensor and not kwargs and tuple(args[1:2]) in ((), (0,)) and tuple(args[4:]) in ((), (1,)):
            r = args[0].current()
            if not r.transposed:
                first, last, _ = slice(*args[2:4]).indices(r.steps.shape[0])
                return PackedWeight(r.outputs(first, last))
        if func.namespace == "epilogue" and func._opname in ("linears", "kept_mlp") and not kwargs:
            if all(type(w) is PackedWeight for w in args[1]):
                from .packed_call import of_weights

                out = of_weights(func, args, [w.current() for w in args[1]])
                if out is not None:
                    return out
        plain = torch.utils._pytree.tree_map_only(PackedWeight, PackedWeight.dequantize, (args, kwargs))
        return func(*plain[0], **plain[1])


def parameter_of(rounded: Rounded) -> PackedWeight:
    return typing.cast(PackedWeight, nn.Parameter(PackedWeight(rounded), requires_grad=False))


def _rebuild(parts: typing.Any) -> PackedWeight:
    return parameter_of(Rounded(*parts))


_converted = WeakIdKeyDictionary()  # of torchao's tensors


def rounded_of(p: typing.Any) -> "Rounded | None":
    """What a parameter holds where it is rounded already: ours, or torchao's (int8 per output, int4 per group)."""
    if type(p) is PackedWeight:
        return p.current()
    if not isinstance(p, torch.Tensor) or type(p).__module__.split(".")[0] != "torchao":
        return None
    found = _converted.get(p)
    if found is None:
        found = _of_torchao(p)
        if found is not None:
            _converted[p] = found
    return found


def _of_torchao(p: typing.Any) -> "Rounded | None":
    """By structure: torchao has many classes, whose names change. Scales of 4 bits become float16 if these hold them."""
    q, scale, block = (getattr(p, name, None) for name in ("qdata", "scale", "block_size"))
    zero = getattr(p, "zero_point", None)
    if not isinstance(q, torch.Tensor) or not isinstance(scale, torch.Tensor) or q.dtype is not torch.int8 or q.dim() != 2:
        return None
    if block is None or len(block) != 2 or block[0] != 1 or p.dtype not in _DTYPES.values() or q.shape != p.shape or not q.is_cpu:
        return None
    if any(getattr(p, name, None) is not None for name in ("act_pre_scale", "act_quant_scale", "activation_quantization")):
        return None
    n, k = q.shape
    group = int(block[1])
    has_zeros = zero is not None and bool((zero != 0).any())
    if group == k and getattr(p, "target_dtype", torch.int8) is torch.int8:
        if has_zeros or scale.numel() != n:
            return None
        return Rounded(q.contiguous().view(torch.uint8), scale.detach().flatten().float().contiguous(), None, k, 0, p.dtype, False)
    if group % 32 or k % group or tuple(scale.shape) != (n, k // group) or int(q.min()) < -8 or int(q.max()) > 7:
        return None
    steps = (q + 8).view(torch.uint8)
    zeros = None
    if has_zeros:
        if int(zero.min()) < -8 or int(zero.max()) > 8:
            return None
        zeros = (zero + 8).to(torch.uint8).contiguous()
    low, high = steps[:, 0::2], steps[:, 1::2]
    scale = scale.detach()
    if scale.dtype is torch.float32:
        fits = bool((scale.abs().max() < 65504) & (scale.abs().min() > 1e-4))
        scale = scale.to(torch.float16 if fits else torch.bfloat16)
    return Rounded((low | high << 4).contiguous(), scale.contiguous(), zeros, k, group, p.dtype, False)


def round_weight(weight: torch.Tensor, bits: str, transposed: bool = False) -> Rounded:
    """As the engine packs a weight with these bits (bits.py), bit for bit. transposed: it is [k, n]."""
    matrix = weight.detach().t() if transposed else weight.detach()
    n, k = matrix.shape
    if bits in ("int8", "w8a8"):
        rounded = Rounded(torch.empty(n, k, dtype=torch.uint8), torch.empty(n), None, k, 0, weight.dtype, transposed)
    else:
        group = int(bits.split("_")[1])
        groups = (k + group - 1) // group
        zeros = torch.empty(n, groups, dtype=torch.uint8) if bits.endswith("_zeros") else None
        steps, scales = torch.empty(n, (k + 1) // 2, dtype=torch.uint8), torch.empty(n, groups, dtype=torch.bfloat16)
        rounded = Rounded(steps, scales, zeros, k, group, weight.dtype, transposed)
    torch.ops.epilogue.round_into.default(matrix, bits, rounded.steps, rounded.scales, rounded.zeros)
    return rounded


def _text_of(r: Rounded) -> str:
    n = r.steps.shape[0]
    return f"int8 {n} {r.inputs}" if r.group == 0 else f"int4 {n} {r.inputs} {r.group}"


def _persistent(module: nn.Module) -> "typing.Iterator[tuple[str, torch.Tensor]]":
    for name, b in module._buffers.items():
        if b is not None and name not in module._non_persistent_buffers_set:
            yield name, b


def save_packed(model: nn.Module, path: "str | os.PathLike[str]", metadata: "dict[str, str] | None" = None) -> None:
    """Writes `model` with the rounded copies in place of the weights that fuse(model, weights=...) rounds.

    The file is safetensors: NAME.steps, NAME.scales and NAME.zeros of each rounded weight NAME, all other
    parameters (experts' too) and buffers as they are; epilogue/rounded_file.h of the C++ library describes it, and reads it.
    load_packed() makes a model of it without the originals. ValueError where no weight is rounded.
    """
    from safetensors.torch import save_file

    from .fuse import bits_by_linear

    if any(is_dtensor(p) for p in model.parameters()):
        raise ValueError("model: expected parameters of one process, got DTensors: save the model before it is split")
    bits, common = bits_by_linear(model)
    tensors: "dict[str, torch.Tensor]" = {}
    facts = {**(metadata or {}), "epilogue.packed": _VERSION, "epilogue.options": json.dumps(common)}
    seen: "dict[int, str]" = {}  # dense parameters, and those that are others'
    count = 0
    for prefix, module in model.named_modules(remove_duplicate=False):
        for own, p in module._parameters.items():
            if p is None:
                continue
            name = f"{prefix}.{own}" if prefix else own
            rounded = rounded_of(p)
            if rounded is None and own == "weight" and bits.get(module):
                rounded = round_weight(p, bits[module], is_conv1d(module))
            if rounded is not None:
                count += 1
                facts[_ROUNDED + name] = _text_of(rounded)
                facts[_DTYPE + name] = str(rounded.dtype)[6:]
                if rounded.transposed:
                    facts[_TRANSPOSED + name] = "1"
                parts = {"steps": rounded.steps, "scales": rounded.scales, "zeros": rounded.zeros}
                tensors.update({f"{name}.{part}": t for part, t in parts.items() if t is not None})
            elif id(p) in seen:
                facts[_TIED + name] = seen[id(p)]
            else:
                seen[id(p)] = name
                tensors[name] = p.detach().contiguous()
        for own, b in _persistent(module):
            tensors[f"{prefix}.{own}" if prefix else own] = b.detach().clone()
    if count == 0:
        raise ValueError("model: expected one that fuse(model, weights='int8' or 'int4') changed, got one without rounded weights")
    addresses: "set[int]" = set()
    for name, t in tensors.items():  # views of one memory are written each by itself
        if t.numel() and t.untyped_storage().data_ptr() in addresses:
            tensors[name] = t.clone()
        addresses.add(tensors[name].untyped_storage().data_ptr())
    save_file(tensors, os.fspath(path), facts)


class _File:
    """A file of save_packed(), checked against itself."""

    def __init__(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            with safe_open(path, "pt") as file:
                self.facts: "dict[str, str]" = file.metadata() or {}
                self.tensors: "dict[str, torch.Tensor]" = {name: file.get_tensor(name) for name in file.keys()}
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: expected a file of save_packed(), got one that cannot be read: {error}") from None
        version = self.facts.get("epilogue.packed")
        if version != _VERSION:
            raise self.wrong(f"a file of save_packed() of version {_VERSION}", "none" if version is None else f"version {version!r}")
        self.options = self._options()
        self.rounded = {key[len(_ROUNDED) :]: self._rounded(key) for key in self.facts if key.startswith(_ROUNDED)}
        self.tied = {key[len(_TIED) :]: value for key, value in self.facts.items() if key.startswith(_TIED)}

    def wrong(self, expected: str, got: str) -> ValueError:
        return ValueError(f"{self.path}: expected {expected}, got {got}")

    def _options(self) -> "dict[str, typing.Any]":
        known = {"weights", "activations", "group", "zero_points", "linears"}
        try:
            options = json.loads(self.facts["epilogue.options"])
        except (KeyError, json.JSONDecodeError):
            options = None
        if not isinstance(options, dict) or not set(options) <= known:
            raise self.wrong("options of fuse() in its metadata", repr(self.facts.get("epilogue.options"))[:80])
        return options

    def _part(self, name: str, dtypes: "tuple[torch.dtype, ...]", shape: "tuple[int, ...]") -> torch.Tensor:
        t = self.tensors.pop(name, None)
        if t is None or t.dtype not in dtypes or tuple(t.shape) != shape:
            wanted = " or ".join(str(d)[6:] for d in dtypes)
            raise self.wrong(f"{name} {wanted} {list(shape)}", "none" if t is None else f"{str(t.dtype)[6:]} {list(t.shape)}")
        return t

    def _rounded(self, key: str) -> Rounded:
        name = key[len(_ROUNDED) :]
        kind, *sizes = self.facts[key].split()
        count = {"int8": 2, "int4": 3}.get(kind)
        if len(sizes) != count or not all(s.isascii() and s.isdigit() and 0 < int(s) < 1 << 31 for s in sizes):
            raise self.wrong(f"{key} of 'int8 n k' or 'int4 n k group'", repr(self.facts[key])[:80])
        n, k, group = (*(int(s) for s in sizes), 0)[:3]
        if kind == "int4" and group % 32:
            raise self.wrong(f"{key} in groups of a multiple of 32", f"groups of {group}")
        dtype = _DTYPES.get(self.facts.get(_DTYPE + name, ""))
        if dtype is None:
            raise self.wrong(f"{_DTYPE}{name} of {', '.join(_DTYPES)}", repr(self.facts.get(_DTYPE + name)))
        transposed = self.facts.get(_TRANSPOSED + name) == "1"
        if group == 0:
            steps = self._part(name + ".steps", (torch.uint8,), (n, k))
            return Rounded(steps, self._part(name + ".scales", (torch.float32,), (n,)), None, k, 0, dtype, transposed)
        groups = (k + group - 1) // group
        steps = self._part(name + ".steps", (torch.uint8,), (n, (k + 1) // 2))
        scales = self._part(name + ".scales", (torch.bfloat16, torch.float16), (n, groups))
        zeros = self._part(name + ".zeros", (torch.uint8,), (n, groups)) if name + ".zeros" in self.tensors else None
        if zeros is not None and int(zeros.max()) > 16:
            raise self.wrong(f"{name}.zeros from 0 to 16", str(int(zeros.max())))
        return Rounded(steps, scales, zeros, k, group, dtype, transposed)


def _slots_of(model: nn.Module) -> "dict[str, tuple[nn.Module, str, bool]]":
    """By name: the module, its own name for the tensor, whether it is a parameter."""
    slots = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        slots.update({start + own: (module, own, True) for own, p in module._parameters.items() if p is not None})
        slots.update({start + own: (module, own, False) for own, _ in _persistent(module)})
    return slots


def load_packed(model: nn.Module, path: "str | os.PathLike[str]") -> nn.Module:
    """Gives `model` the tensors of a file of save_packed(), fuses it as the saved one was, and returns it.

    Its own values are not read: it may be made on the meta device, where all buffers that no state_dict has are real.
    Rounded weights become parameters of their own type (PackedWeight), without the originals: no training. ValueError
    where the file is not whole or is of another model; then `model` is as it was.
    """
    file = _File(os.fspath(path))
    slots = _slots_of(model)
    have = {*file.rounded, *file.tied, *file.tensors}
    for names, text in ((set(slots) - have, "that the model has"), (have - set(slots), "of the model alone")):
        if names:
            some = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise file.wrong(f"all tensors {text}" if "has" in text else f"tensors {text}", f"no {some}" if "has" in text else some)
    made: "dict[str, torch.Tensor]" = {}
    for name, (module, own, is_parameter) in slots.items():
        rounded = file.rounded.get(name)
        old = module._parameters[own] if is_parameter else module._buffers[own]
        new = rounded if rounded is not None else file.tensors.get(file.tied.get(name, name))
        if new is None or (rounded is not None and not (own == "weight" and is_linear(module))):
            raise file.wrong(f"{name} of a linear layer, or tied to a tensor of the file", repr(file.tied.get(name, name)))
        if tuple(new.shape) != tuple(old.shape):
            raise file.wrong(f"{name} {list(old.shape)}", str(list(new.shape)))
        made[name] = parameter_of(rounded) if rounded is not None else new  # type: ignore[assignment]
    lost = [name for name, b in model.named_buffers() if b.is_meta and name not in made]
    if lost:
        raise ValueError(f"model: expected buffers in memory that no file has, got {lost[0]} on the meta device")
    from .fuse import fuse, unfuse

    unfuse(model)
    parameters: "dict[str, torch.Tensor]" = {}
    for name, (module, own, is_parameter) in slots.items():
        new = made[name]
        if not is_parameter:
            module._buffers[own] = new
        elif isinstance(new, PackedWeight):
            module._parameters[own] = new
        else:
            root = file.tied.get(name, name)
            if root not in parameters:
                parameters[root] = nn.Parameter(new, requires_grad=new.is_floating_point() and module._parameters[own].requires_grad)
            module._parameters[own] = parameters[root]
    return fuse(model, **file.options)
