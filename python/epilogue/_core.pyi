# SPDX-License-Identifier: Apache-2.0
# Of python -m nanobind.stubgen -m epilogue._core, with the exceptions and the ops in place by hand.
"""Native half of epilogue. Private: use the package's own functions."""

from collections.abc import Sequence
from typing import Annotated, overload

from numpy.typing import NDArray
from typing_extensions import CapsuleType


class Error(ValueError):
    """The library was misused: ``[op] expected ..., got ...``."""

class TraceError(Error):
    """
    A trace cannot be used.

    ``code`` is a stable name: ``NotATrace``, ``NoSuchStep``, ...
    """

    code: str


version: str

class Answer:
    def text(self, use_bold: bool = False) -> str: ...

    def markdown(self) -> str: ...

    def json(self) -> str: ...

class Source:
    pass

def source(path: str, bytes: bytes | None, name: str, step: int | None, from_ms: float | None, to_ms: float | None) -> Source: ...

def explain(source: Source, top: int, modules: bool, cpu: str, cpu_threads: int, capture: Source | None) -> tuple[Answer, list[str]]: ...

def shard(folder: Source, index: int, count: int, out: str, modules: bool) -> tuple[Answer, list[str]]: ...

def merge(parts: Sequence[str], top: int, page: str, title: str) -> tuple[Answer, list[str]]: ...

def table(source: Source, sort_by: str, row_limit: int | None, group_by_input_shape: bool, capture: Source | None) -> tuple[Answer, list[str]]: ...

def diff(before: Source, after: Source, top: int, captures: Sequence[Source]) -> tuple[Answer, list[str]]: ...

def check(source: Source, expressions: Sequence[str]) -> tuple[Answer, bool, list[str]]: ...

def check_baseline(after: Sequence[Source], before: Sequence[Source], tolerance_pct: float) -> tuple[Answer, bool, list[str]]: ...

def quantities(source: Source) -> tuple[Answer, list[str]]: ...

def report(source: Source, out: str, against: Source | None, title: str, embeds_trace: bool, modules: bool, rank_pages: bool, cpu: str, cpu_threads: int, capture: Source | None) -> tuple[Answer, list[str], list[str]]: ...

def memory(source: Source, against: Source | None, device: int | None, top: int, page: str) -> tuple[Answer, list[str]]: ...

def names(arg: Sequence[str], /) -> Answer: ...

def sort_keys() -> list[str]: ...

class TraceTables:
    def row_count(self, table: str) -> int: ...

    def columns(self, table: str) -> list[tuple[str, str]]: ...

    def schema(self, table: str) -> CapsuleType: ...

    def stream(self, table: str) -> CapsuleType: ...

    def base_time_ns(self) -> int: ...

    def metadata(self) -> list[tuple[str, str]]: ...

class SnapshotTables:
    def row_count(self, table: str) -> int: ...

    def columns(self, table: str) -> list[tuple[str, str]]: ...

    def schema(self, table: str) -> CapsuleType: ...

    def stream(self, table: str) -> CapsuleType: ...

def memory_tables(source: Source) -> tuple[SnapshotTables, list[str]]: ...

def memory_table_names() -> list[str]: ...

def tables(source: Source, python_frames: bool) -> tuple[TraceTables, list[str]]: ...

def table_names() -> list[str]: ...

has_engine: bool

class Tensor:
    """
    A strided view of memory. Handles share data; reading from several threads is safe, writing needs the caller's own ordering.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def dtype(self) -> str:
        """``f32``, ``bf16``, ``f16``, ``f64``, ``i64``, ``u8`` or ``bool``."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:0``."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps."""

    @property
    def is_writable(self) -> bool:
        """Ops may write in place."""

    @property
    def requires_grad(self) -> bool:
        """Ops on it are recorded for gradients."""

    @requires_grad.setter
    def requires_grad(self, arg: bool, /) -> Tensor: ...

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward() accumulated, or None."""

    def backward(self) -> None:
        """
        Gradients of this one-element tensor into the leaves that require them.
        """

    def detach(self) -> Tensor:
        """Same data, outside the graph."""

    def item(self) -> float:
        """The only element, as a float."""

    def tolist(self) -> list[float]:
        """All elements in row-major order, as floats."""

    def numpy(self) -> object:
        """
        A NumPy array over the same memory, no copy. Raises Error for bf16, which NumPy does not have. After writing through it to a tensor that a compiled function or a fused op holds, call increment_version().
        """

    def increment_version(self) -> None:
        """Says that the memory was written without an op."""

    def __dlpack__(self, **kwargs) -> object:
        """The memory as a DLPack capsule, no copy."""

    def __dlpack_device__(self) -> tuple[int, ...]: ...

    def __repr__(self) -> str: ...

    @overload
    def __add__(self, arg: Tensor, /) -> Tensor: ...

    @overload
    def __add__(self, arg: float, /) -> Tensor: ...

    def __radd__(self, arg: float, /) -> Tensor: ...

    @overload
    def __sub__(self, arg: Tensor, /) -> Tensor: ...

    @overload
    def __sub__(self, arg: float, /) -> Tensor: ...

    def __rsub__(self, arg: float, /) -> Tensor: ...

    @overload
    def __mul__(self, arg: Tensor, /) -> Tensor: ...

    @overload
    def __mul__(self, arg: float, /) -> Tensor: ...

    def __rmul__(self, arg: float, /) -> Tensor: ...

    @overload
    def __truediv__(self, arg: Tensor, /) -> Tensor: ...

    @overload
    def __truediv__(self, arg: float, /) -> Tensor: ...

    def __rtruediv__(self, arg: float, /) -> Tensor: ...

    def __matmul__(self, arg: Tensor, /) -> Tensor: ...

    def __neg__(self) -> Tensor: ...

    def add_(self, arg: Tensor, /) -> Tensor:
        """Adds in place. Raises Error on memory that is only read."""

    def mul_(self, arg: Tensor, /) -> Tensor:
        """Multiplies in place."""

    def copy_(self, arg: Tensor, /) -> Tensor:
        """Writes another tensor's values in place."""

    def fill_(self, arg: float, /) -> Tensor:
        """Writes one number in place."""

    def to(self, dtype: str) -> Tensor:
        """Its values rounded to a dtype; itself if it has that."""

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """A view."""

    def reshape(self, sizes: object) -> Tensor:
        """A view where strides allow, else a copy."""

    @property
    def T(self) -> Tensor:
        """The matrix transposed; a view."""

# Two overloads at run time, for arrays that may be written and those that may not: one type.
def from_dlpack(array: Annotated[NDArray, dict(device='cpu')]) -> Tensor: ...

def from_list(arg0: Sequence[float], arg1: object, arg2: str, /) -> Tensor: ...

def zeros(sizes: object, dtype: str = 'f32') -> Tensor:
    """A new tensor of zeros."""

def ones(sizes: object, dtype: str = 'f32') -> Tensor:
    """A new tensor of ones."""

def empty(sizes: object, dtype: str = 'f32') -> Tensor:
    """A new tensor of any values."""

def randn(sizes: object, dtype: str = 'f32') -> Tensor:
    """A new tensor drawn from N(0, 1). Thread-safe."""

def manual_seed(seed: int) -> None:
    """Seeds the process's generator. (The numbers are not PyTorch's.)"""

def matmul(a: Tensor, b: Tensor) -> Tensor:
    """torch.matmul."""

def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: x [..., in], weight [out, in], bias [out] -> [..., out]."""

def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""

def gelu(x: Tensor, approximate: str = 'none') -> Tensor:
    """GELU, exact or (``tanh``) approximated."""

def silu(x: Tensor) -> Tensor:
    """x sigmoid(x)."""

def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""

def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""

def exp(x: Tensor) -> Tensor:
    """e to the x."""

def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) over its sum along a dimension."""

def sum(x: Tensor) -> Tensor:
    """Of all elements."""

def mean(x: Tensor) -> Tensor:
    """Of all elements."""

class Module:
    """A layer, or a model of layers. Calls are thread-safe."""

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """Names with their tensors, in order."""

    def parameters(self) -> list[Tensor]:
        """The tensors of named_parameters()."""

    def state_dict(self) -> dict:
        """
        Every parameter by name, outside the graph, sharing memory with the module.
        """

    def load_state_dict(self, state: dict) -> None:
        """
        Copies tensors into the parameters. Raises Error on names that do not fit.
        """

    def train(self, on: bool = True) -> None:
        """Training mode, of all below too."""

    def eval(self) -> None:
        """Ends training mode."""

    def zero_grad(self) -> None:
        """Drops all gradients."""

    def to(self, dtype: str) -> None:
        """Converts all parameters."""

    def __repr__(self) -> str: ...

class Linear(Module):
    """y = x W^T + b, initialised as torch.nn.Linear."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None: ...

    @property
    def weight(self) -> Tensor:
        """[out, in]."""

    @weight.setter
    def weight(self, arg: Tensor, /) -> None: ...

    @property
    def bias(self) -> Tensor | None:
        """[out], or None."""

class GatedMLP(Module):
    """down_proj(act(gate_proj(x)) * up_proj(x)): geglu, swiglu, reglu, geglu_erf, quick_geglu, squared_reglu or clamped_swiglu."""

    def __init__(self, dim: int, hidden: int, activation: str = 'geglu', bias: bool = False) -> None: ...

    @property
    def gate_proj(self) -> Linear:
        """Linear, weight [hidden, dim]."""

    @property
    def up_proj(self) -> Linear:
        """Linear, weight [hidden, dim]."""

    @property
    def down_proj(self) -> Linear:
        """Linear, weight [dim, hidden]."""

class MLP(Module):
    """fc1, act, ..., projection: gelu, relu, silu, gelu_tanh."""

    def __init__(self, dim: int, hidden: int, layers: int = 1, activation: str = 'gelu', bias: bool = True) -> None: ...

class Compiled:
    """A compiled function. Any number of threads may call it."""

    def __call__(self, *args) -> object: ...

    def explain(self) -> str:
        """
        What the plan that ran last does, and why. Empty before the first call.
        """

    def stats(self) -> dict:
        """Calls, plans, and of the plan that ran last its kernels and bytes."""

    def reset(self) -> None:
        """Forgets all plans."""

    def __repr__(self) -> str: ...

def compile(f: object, *, dynamic_rows: bool = True, int8_weights: bool = False, tune: str = 'model', weights: str | None = None, activations: str | None = None, group: int = 128, zero_points: bool = False) -> Compiled:
    """
    A module or a function of tensors as a few fused kernels. The first call captures, fuses and plans.

    The function must be pure: its results depend on its inputs and on tensors that it holds, by way of ops alone. ``tune='measure'`` times the plans on the first call's inputs. ``weights``: 'int8' or 'int4' for the packed copies of weights (of 4 bits with a scale for ``group`` inputs, 32 or 128, and a zero point each with ``zero_points``); ``activations``: 'int8' makes rows integers too before each product. Both change results. ``int8_weights`` is the same as ``weights='int8'``. Raises Error where it writes elsewhere in place or reads elements.
    """

def fused_gated_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, *, activation: str = 'geglu', norm: str = 'none', norm_weight: Tensor | None = None, residual: bool = False, int8_weights: bool = False, weights: str | None = None, activations: str | None = None, group: int = 128, zero_points: bool = False) -> Tensor:
    """
    down (act(gate norm(x)) * (up norm(x))) (+ x) as one kernel: x [..., k]; gate and up [h, k], down [n, h]; f32, bf16 or f16, all of one dtype.

    Inference only. Weights are packed at the first call and kept: pass the same tensors call after call. Fewer bits as compile()'s. Thread-safe.
    """

class Profile:
    def start(self) -> None: ...

    def step(self) -> None: ...

    def stop(self) -> None: ...

    @property
    def step_num(self) -> int: ...

    def warnings(self) -> list[str]: ...

    def export_chrome_trace(self, arg: str, /) -> None: ...

def make_profile(record_shapes: bool, profile_memory: bool, with_flops: bool, schedule: object | None, ready: object | None) -> Profile: ...

class record_function:
    """
    A labelled range of this thread, for profiles: ``with record_function('x'):``.
    """

    def __init__(self, name: str) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

class no_grad:
    """Ops of this thread are not recorded for gradients in this ``with``."""

    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

class Predicted:
    """What a model says of the rows of a table."""

    @property
    def classes(self) -> list[str]:
        """The most likely class of each row; of regression []."""

    @property
    def probabilities(self) -> Tensor | None:
        """Of each row and class, [n, classes]; of regression None."""

    @property
    def values(self) -> list[float]:
        """Numbers in the target's unit; of classification []."""

class Predictor:
    """A model.safetensors of ``epilogue train``."""

    def __init__(self, path: str, *, weights: str | None = None, activations: str | None = None, group: int = 128, zero_points: bool = False) -> None:
        """Fewer bits as compile()'s, which change predictions."""

    def predict(self, path: str) -> Predicted:
        """
        Predictions for a CSV file, to the last digit those of ``epilogue predict``. Raises Error on a file that the model cannot use.
        """

    @property
    def class_names(self) -> list[str]:
        """The classes, in the order of the probabilities; of regression []."""

def num_threads() -> int:
    """Threads that kernels may use, the caller included."""

def set_num_threads(n: int) -> None:
    """Not while kernels run. Raises Error outside [1, 4096]."""
