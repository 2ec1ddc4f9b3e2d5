# SPDX-License-Identifier: Apache-2.0
"""A linear layer, and an activation after it.

Expected before it runs:
* eager: aten::addmm adds the bias itself, so the layer is one kernel; GELU reads its result and writes it again: two
  kernels per step.
* compiled: bias and GELU run while the product's block is still in registers: one kernel per step.
"""

import numpy as np

import epilogue

STEPS = 3

epilogue.manual_seed(0)
layer = epilogue.Linear(768, 3072)
x = epilogue.from_numpy(np.random.randn(64, 768).astype(np.float32))


def forward(x):
    return epilogue.gelu(layer(x))


def profiled(function):
    """A profile of STEPS steps, after one that is not recorded."""
    schedule = epilogue.schedule(wait=1, active=STEPS, repeat=1)
    with epilogue.no_grad(), epilogue.profile(schedule=schedule, record_shapes=True) as prof:
        for _ in range(1 + STEPS):
            function(x)
            prof.step()
    return prof


print(__doc__)
fast = epilogue.compile(forward)
with epilogue.no_grad():
    np.testing.assert_allclose(fast(x).numpy(), forward(x).numpy(), rtol=1e-4, atol=1e-4)
eager, compiled = profiled(forward), profiled(fast)
epilogue.check(eager, "kernels_per_step == 2")
epilogue.check(compiled, "kernels_per_step == 1")
print(eager.key_averages(row_limit=8))
print(epilogue.diff(eager, compiled))
print(epilogue.explain(compiled))
