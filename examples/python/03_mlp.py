# SPDX-License-Identifier: Apache-2.0
"""The GeGLU MLP of a transformer, op by op, compiled, and by name.

Expected before it runs:
* eager: gate, up and down are a product each, GELU and the multiplication a kernel each: five per step.
* compiled: gate and up become one product, and GELU, the multiplication and the second product run on its blocks while
  they are in cache: one row chain, one kernel per step. fused_gated_mlp() is that kernel by name.
* The hidden activations, 64 x 3072 floats, are then neither written to memory nor read from it.
"""

import numpy as np

import epilogue

STEPS = 3

epilogue.manual_seed(0)
mlp = epilogue.GatedMLP(768, 3072, "geglu")
gate, up, down = (layer.weight for layer in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
x = epilogue.from_numpy(np.random.randn(64, 768).astype(np.float32))


def fused(x):
    return epilogue.fused_gated_mlp(x, gate, up, down, activation="geglu")


def profiled(function):
    """A profile of STEPS steps, after one that is not recorded."""
    schedule = epilogue.schedule(wait=1, active=STEPS, repeat=1)
    with epilogue.no_grad(), epilogue.profile(schedule=schedule, record_shapes=True) as prof:
        for _ in range(1 + STEPS):
            function(x)
            prof.step()
    return prof


print(__doc__)
fast = epilogue.compile(mlp)
with epilogue.no_grad():
    for function in (fast, fused):
        np.testing.assert_allclose(function(x).numpy(), mlp(x).numpy(), rtol=1e-3, atol=1e-4)
eager, compiled, by_name = profiled(mlp), profiled(fast), profiled(fused)
epilogue.check(eager, "kernels_per_step == 5")
epilogue.check(compiled, "kernels_per_step == 1")
epilogue.check(by_name, "kernels_per_step == 1")
print(fast.explain())
print(epilogue.explain(eager))
print(epilogue.diff(eager, compiled))
print(epilogue.explain(compiled))
