# SPDX-License-Identifier: Apache-2.0
"""explain of a made trace of a server whose layers loop over experts: how uneven their tokens are."""
import json
import os
import unittest

from command import CommandTest

TOKENS, EXPERTS, PER_TOKEN = 10, 8, 2
LAYERS = ([1, 9, 4, 6], [2, 3, 5, 2, 3, 2, 2, 1])  # rows of each expert that has any; 20 in all


def trace():
    events, at, id = [], 0.0, 0

    def event(cat, name, pid, tid, ts, dur, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    def op(name, dims, concrete=None, kernel_us=None):
        nonlocal at, id
        id += 1
        event("cpu_op", name, 1, 1, at, 8, **{"External id": id, "Input Dims": dims, "Input type": ["float"] * len(dims),
                                              "Concrete Inputs": concrete or [""] * len(dims)})
        if kernel_us:
            event("cuda_runtime", "cudaLaunchKernel", 1, 1, at + 1, 2, correlation=id)
            event("kernel", "ampere_sgemm_32x32_tn", 0, 7, at + 5, kernel_us, correlation=id, device=0, stream=7)
        at += 20

    event("user_annotation", f"execute_context_1({TOKENS})_generation_0(0)", 1, 1, 0, 5)
    for rows in LAYERS:
        op("aten::mm", [[TOKENS, 64], [64, EXPERTS]], kernel_us=1)
        op("aten::topk", [[TOKENS, EXPERTS], []], ["", str(PER_TOKEN)])
        for m in rows:
            op("aten::mm", [[m, 64], [64, 256]], kernel_us=m)
            op("aten::mm", [[m, 256], [256, 64]], kernel_us=m)
    return {"traceEvents": events}


class ServingTest(CommandTest):
    def test_the_imbalance_of_experts_is_said(self):
        path = os.path.join(self.out, "moe.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(trace(), f)
        found = json.loads(self.ok("explain", path, "--format", "json"))["serving"]["imbalance"]
        self.assertEqual(found, [{
            "phase": "prefill", "op": "aten::mm", "layers": 2, "experts": 8, "experts_per_token": 2, "tokens": 10,
            "max_over_mean": 2.0, "worst_max_over_mean": 3.6, "device_us": 80.0, "largest_us": 28.0, "largest_pct": 35.0}])
        text = self.ok("explain", path)
        self.assertIn("prefill: the expert with most tokens has 2.00 times the mean (at worst 3.60), by the rows of aten::mm in "
                      "2 layers; it holds 28.0 us of the 80.0 us of all experts (35 %).", " ".join(text.split()))
        self.assertRegex(text, r"max / mean +worst +experts take +largest +its share")


if __name__ == "__main__":
    unittest.main()
