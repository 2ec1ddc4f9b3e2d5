# SPDX-License-Identifier: Apache-2.0
"""A product and an addition: two kernels, and one after compile().

Expected before it runs:
* eager: aten::mm and aten::add are a kernel each, so two per step; what the product writes is read and written again.
* compiled, both matrices inputs: still two. The second matrix may differ in each call, and packing it anew each time
  would cost more than fusing saves.
* compiled, the second matrix held by the function: it is a weight. It is packed once, and the addition runs while the
  product's block is in registers: one kernel per step. The results agree to rounding.
"""

import numpy as np

import epilogue

STEPS = 3

epilogue.manual_seed(0)
a, b, c = (epilogue.from_numpy(np.random.randn(256, 256).astype(np.float32)) for _ in range(3))


def product_plus(a, b, c):
    return epilogue.matmul(a, b) + c


def weighted_plus(a, c):
    return epilogue.matmul(a, b) + c


def profiled(function, *inputs):
    """A profile of STEPS steps, after one that is not recorded."""
    schedule = epilogue.schedule(wait=1, active=STEPS, repeat=1)
    with epilogue.no_grad(), epilogue.profile(schedule=schedule, record_shapes=True) as prof:
        for _ in range(1 + STEPS):
            function(*inputs)
            prof.step()
    return prof


print(__doc__)
of_inputs, of_weights = epilogue.compile(product_plus), epilogue.compile(weighted_plus)
with epilogue.no_grad():
    expected = a.numpy() @ b.numpy() + c.numpy()
    np.testing.assert_allclose(of_weights(a, c).numpy(), expected, rtol=1e-4, atol=1e-3)
eager = profiled(product_plus, a, b, c)
epilogue.check(eager, "kernels_per_step == 2")
epilogue.check(profiled(of_inputs, a, b, c), "kernels_per_step == 2")
print(of_inputs.explain())
compiled = profiled(of_weights, a, c)
epilogue.check(compiled, "kernels_per_step == 1")
print(of_weights.explain())
print(epilogue.diff(eager, compiled))
print(epilogue.explain(compiled))
