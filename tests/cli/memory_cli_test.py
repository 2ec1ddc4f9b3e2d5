# SPDX-License-Identifier: Apache-2.0
"""How much memory explain and table take for each byte of a large trace."""
import os
import subprocess
import unittest

from command import BINARY, CommandTest

# Three ops, a launch, its arrow and a kernel, in the layout of PyTorch 2.1.
LAYER = """
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 101634, "tid": 101634,
    "ts": %(linear)d, "dur": 90,
    "args": {
      "External id": %(id)d,"Concrete Inputs": ["", "", ""], "Input type": ["float", "float", "float"], "Input Dims": [[4900, 1280], [3840, 1280], [3840]], "Ev Idx": %(id)d
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::t", "pid": 101634, "tid": 101634,
    "ts": %(t)d, "dur": 4,
    "args": {
      "External id": %(id1)d,"Concrete Inputs": [""], "Input type": ["float"], "Input Dims": [[3840, 1280]], "Ev Idx": %(id1)d
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 101634, "tid": 101634,
    "ts": %(addmm)d, "dur": 64,
    "args": {
      "External id": %(id2)d,"Concrete Inputs": ["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Input Dims": [[3840], [4900, 1280], [1280, 3840], [], []], "Ev Idx": %(id2)d
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 101634, "tid": 101634,
    "ts": %(launch)d, "dur": 9,
    "args": {
      "External id": %(id2)d,
      "cbid": 211, "correlation": %(id2)d
    }
  },
  {
    "ph": "s", "id": %(id2)d, "pid": 101634, "tid": 101634, "ts": %(launch)d,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "pid": 0, "tid": 7,
    "ts": %(kernel)d, "dur": 70,
    "args": {
      "External id": %(id2)d,
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": %(id2)d,
      "registers per thread": 122,
      "shared memory": 12288,
      "blocks per SM": 14.8148,
      "warps per SM": 59.2593,
      "grid": [20, 80, 1],
      "block": [128, 1, 1],
      "est. achieved occupancy %%": 25
    }
  },
  {
    "ph": "f", "id": %(id2)d, "pid": 0, "tid": 7, "ts": %(kernel)d,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  },"""
STEP = """
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 101634, "tid": 101634,
    "ts": 1000, "dur": %d, "args": {}
  }
]}
"""
DEVICE = '{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "computeMajor": 8}'


def write_trace(path, layers):
    with open(path, "w", encoding="ascii") as f:
        f.write('{"schemaVersion": 1, "deviceProperties": [' + DEVICE + '], "traceEvents": [')
        for i in range(layers):
            ts = 1000 + 100 * i
            f.write(LAYER % {"linear": ts, "t": ts + 2, "addmm": ts + 10, "launch": ts + 20,
                             "kernel": ts + 40, "id": 3 * i + 1, "id1": 3 * i + 2, "id2": 3 * i + 3})
        f.write(STEP % (100 * layers))
    return os.path.getsize(path)


def resident_bytes(*args):
    process = subprocess.Popen([BINARY, *args], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


class ResidentMemory(CommandTest):
    def test_grows_by_less_than_seven_tenths_of_the_text(self):
        """The text is denser than that of most traces: names are short."""
        paths = [os.path.join(self.out, name) for name in ("small.json", "large.json")]
        sizes = [write_trace(path, layers) for path, layers in zip(paths, (8_000, 32_000))]
        for command in ("explain", "table"):
            found = [resident_bytes(command, path) for path in paths]
            self.assertEqual([code for code, _ in found], [0, 0])
            growth = (found[1][1] - found[0][1]) / (sizes[1] - sizes[0])
            self.assertLess(growth, 0.70, command)


if __name__ == "__main__":
    unittest.main()
