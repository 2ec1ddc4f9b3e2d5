# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model's MLPs as fused kernels of epilogue, on the CPU.

    import epilogue.torch
    epilogue.torch.fuse(model)          # MLPs run fused from here on
    print(epilogue.torch.why(model))    # which, and why others do not
    epilogue.torch.unfuse(model)        # as before

Needs torch (2.11 or later) and the compiled ops: a part of the package where torch was there when it
was built, or the package ``epilogue-torch``. Importing this module without them says what to install.
"""

import importlib.util as _importlib_util

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "epilogue.torch needs PyTorch 2.11 or later: pip install torch"
    ) from error

try:
    if _importlib_util.find_spec("epilogue._torch_ops"):
        from epilogue import _torch_ops as _ops  # noqa: F401
    else:
        import epilogue_torch as _ops  # noqa: F401
except ImportError as error:
    raise ImportError(
        "epilogue.torch needs its compiled ops. In a clone of epilogue, with the torch that is installed:\n"
        "  pip install ./python/epilogue_torch\n"
        f"({error})"
    ) from error

from . import functional
from .advice import Advice
from .advisor import advise
from .cache import grow
from .fuse import Report, fuse, refresh, unfuse, why
from .packed import load_packed, save_packed
from .smooth import Smoothing, smooth

__all__ = ["Advice", "Report", "Smoothing", "advise", "functional", "fuse", "grow", "load_packed", "refresh", "save_packed", "smooth", "unfuse", "why"]
