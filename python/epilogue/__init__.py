# SPDX-License-Identifier: Apache-2.0
"""Profile it, explain it, fuse it: epilogue from Python.

The trace half reads traces of PyTorch's profiler (or of this library) and says what they mean::

    import epilogue
    print(epilogue.explain("trace.json.gz"))        # a path, bytes, or a torch.profiler.profile
    epilogue.check(prof, "kernels_per_step <= 5", "gpu_idle_pct < 20")

The engine half has tensors over NumPy's memory (or DLPack's), and fuses what it is given::

    fast = epilogue.compile(mlp)
    with epilogue.profile() as prof:
        fast(epilogue.from_numpy(x))
    print(epilogue.explain(prof))

Nothing here needs torch. What needs the compiled extension is loaded when it is first used, so
that the pure Python parts (``epilogue.torch``) can be imported from a source tree too.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from ._arrow import TraceTable, TraceTables, tables
    from ._core import version as __version__
    from ._checks import (
        BaselineFailed,
        BaselineResult,
        CheckFailed,
        CheckResult,
        Expectation,
        Quantities,
        StepChange,
    )
    from ._engine import (
        MLP,
        Compiled,
        GatedMLP,
        Linear,
        Module,
        Predicted,
        Predictor,
        Tensor,
        compile,
        empty,
        exp,
        from_dlpack,
        from_numpy,
        fused_gated_mlp,
        gelu,
        linear,
        manual_seed,
        matmul,
        mean,
        no_grad,
        num_threads,
        ones,
        randn,
        record_function,
        relu,
        set_num_threads,
        sigmoid,
        silu,
        softmax,
        sum,
        tanh,
        tensor,
        zeros,
    )
    from ._memory import DeviceMemory, MemoryFinding, MemoryReport, MemoryTables, memory, memory_tables
    from ._explanation import Explanation, Finding, RanksExplanation
    from ._profile import profile, schedule
    from ._result import KernelName, RankPart, Report, Result
    from ._source import TraceLike
    from ._tables import Diff, DiffPart, Table, TableRow
    from ._trace import (
        Error,
        TraceError,
        TraceWarning,
        check,
        check_baseline,
        diff,
        explain,
        merge,
        name,
        quantities,
        report,
        shard,
        sort_keys,
        table,
    )

# The module that defines a public name.
_HOMES = {
    "._arrow": "TraceTable TraceTables tables",
    "._checks": (
        "BaselineFailed BaselineResult CheckFailed CheckResult Expectation Quantities StepChange"
    ),
    "._engine": (
        "Compiled GatedMLP Linear MLP Module Predicted Predictor Tensor compile empty exp "
        "from_dlpack from_numpy fused_gated_mlp gelu linear manual_seed matmul mean no_grad num_threads ones randn "
        "record_function relu set_num_threads sigmoid silu softmax sum tanh tensor zeros"
    ),
    "._explanation": "Explanation Finding RanksExplanation",
    "._memory": "DeviceMemory MemoryFinding MemoryReport MemoryTables memory memory_tables",
    "._profile": "profile schedule",
    "._result": "KernelName RankPart Report Result",
    "._source": "TraceLike",
    "._tables": "Diff DiffPart Table TableRow",
    "._trace": (
        "Error TraceError TraceWarning check check_baseline diff explain merge name quantities report "
        "shard sort_keys table"
    ),
}
# For CMake: find_package(epilogue COMPONENTS shared) with this as CMAKE_PREFIX_PATH.
cmake_prefix_path: str = __path__[0]

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> typing.Any:
    if name == "__version__":
        return importlib.import_module("._core", __name__).version
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *_HOME, "__version__"})
