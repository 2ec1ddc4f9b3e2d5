# SPDX-License-Identifier: Apache-2.0
"""scripts/benchmark_figures.py: what it reads in blocks, and what it refuses."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import benchmark_figures  # noqa: E402

HEAD = "a title: Intel(R) Xeon(R) Processor, 2 thread(s), amx (found amx)\n"
BLOCKS = {
    "mlp_bench": HEAD + """
 8192 x  768 x  3072 bf16    2375.6 GF +- 0.5 %   1861.4 GF +- 1.0 %   1354.3 GF +- 0.9 %    2.00    1.75   2.4e-03 3.9e-03
    1 x  768 x  3072 bf16      60.3 GF +-12.9 %     49.0 GF +- 0.8 %     57.4 GF +- 0.7 %    0.50    1.05   2.2e-03 3.6e-03
    1 x  768 x  3072 f32       60.3 GF +- 1.0 %     49.0 GF +- 0.8 %     57.4 GF +- 0.7 %    1.25    9.00   2.2e-07 3.6e-07
""",
    "bench-mlp": """mlp: geglu [2, 128, 768] -> 3072, bf16
AMD EPYC, 2 thread(s), avx2 (found avx512); bf16 peak 6711 GFLOP/s
                        min   median
  epilogue.compile   500 us  51.3 ms
  pytorch.eager      127 ms   130 ms
  pytorch.compile   1.50 ms   103 ms
""",
    "gemm_bench": HEAD + """
 8192 x   768 x  3072 f32      357.7 +- 1.1 %    363.2 +- 0.7 %   0.98    358.3 +- 0.1 %    342.2 +- 0.5 %   1.05   4.0e-07
 8192 x   768 x  3072 bf16    2073.5 +-11.8 %   2497.1 +- 4.4 %   0.83   1563.8 +- 4.0 %   1951.0 +- 0.2 %   0.80   0.0e+00
""",
    "train_bench": HEAD + """noise probe: 1.21x

1024 x 768 x 3072 bf16, gradients within 5.5e-03
  epilogue.eager       88.929 ms +-  1.4 %  median    90.212 ms   380.3 GF   0.99x    40.5 MiB
  pytorch.eager       100.652 ms +-  2.6 %  median   103.378 ms   336.0 GF   1.30x    42.0 MiB
  pytorch.compile     100.626 ms +-  0.1 %  median   100.760 ms   336.1 GF   1.12x    30.0 MiB
64 x 784 x 256 f32, gradients within 9.8e-07
  pytorch.eager         2.089 ms +-  5.3 %  median     2.584 ms    86.1 GF   1.95x     2.6 MiB
""",
    "trace_bench": """a.json.gz x 5: 107 MB of text, 6 MB compressed
  table .gz is 1.35 times as fast as gunzip alone
  table is 19.0 times as fast as json.load
a.json.gz x 47: 1015 MB of text, 58 MB compressed
  table .gz is 1.58 times as fast as gunzip alone
""",
}


class Figures(unittest.TestCase):
    def test_ratios_of_each_block(self):
        self.assertEqual(benchmark_figures.figures(BLOCKS), """\
                                   beside               least   mean  most  on
GeGLU MLP, 2 shapes, bf16          oneDNN, prepacked     0.50   1.00  2.00  Intel Xeon, amx
GeGLU MLP, 1 shape, f32            oneDNN, prepacked            1.25        Intel Xeon, amx
GeGLU MLP, 256 x 768 x 3072, bf16  torch.compile                3.00        AMD EPYC, avx2
one product, 1 shape, bf16         oneDNN, prepacked            0.83        Intel Xeon, amx
one product, 1 shape, f32          oneDNN, prepacked            0.98        Intel Xeon, amx
training step, 1 shape, bf16       PyTorch's best mode          1.12        Intel Xeon, amx
training step, 1 shape, f32        PyTorch's best mode          1.95        Intel Xeon, amx
table of a trace of 107 MB         json.load                   19.00
table of a trace of 107 MB         gunzip                       1.35
""")

    def test_a_block_that_is_missing_or_of_another_form_is_named(self):
        for blocks, message in (({}, "no page has the block 'mlp_bench'"),
                                ({**BLOCKS, "trace_bench": "x\n"}, "the block 'trace_bench' has no line"),
                                ({**BLOCKS, "gemm_bench": BLOCKS["gemm_bench"].replace("bf16", "f16")},
                                 "the block 'gemm_bench' has no shape in bf16")):
            with self.assertRaises(SystemExit) as raised:
                benchmark_figures.figures(blocks)
            self.assertIn(message, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
