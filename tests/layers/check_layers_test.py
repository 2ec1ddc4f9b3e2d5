# SPDX-License-Identifier: Apache-2.0
"""check_layers.py and check_sizes.py on small trees, good and bad."""
import sys
import unittest

from small_tree import SCRIPTS, run

GOOD = {
    "include/epilogue/base/result.h": "#include <string>\n",
    "include/epilogue/tensor.h": '#include "epilogue/base/result.h"\n',
    "include/epilogue/trace/event.h": "",
    "src/base/file.h": '#include "epilogue/base/result.h"\n',
    "src/core/op.h": '#include "base/file.h"\n#include "epilogue/tensor.h"\n',
    "src/ops/run_op.cpp": '#include "core/op.h"\n',
    "src/backend/cpu/simd/reduce.cpp": '#include <hwy/highway.h>\n#include "base/file.h"\n',
    "src/backend/cpu/simd/panels/kernel.h": "",
    "src/backend/cpu/simd/gemm/gemm.h": '#include "backend/cpu/simd/panels/kernel.h"\n',
    "src/trace/reader.cpp": '#include "epilogue/trace/event.h"\n',
    "bench/harness.h": "",
    "tools/epilogue/bench_case.h": '#include "bench/harness.h"\n',
    "tools/epilogue/command.h": "",
    "tools/epilogue/main.cpp": '#include <CLI/CLI.hpp>\n#include "tools/epilogue/command.h"\n#include "core/op.h"\n',
}


class CheckLayers(unittest.TestCase):
    def expect_complaint(self, path, text, complaint):
        code, out = run("check_layers.py", {**GOOD, path: text})
        self.assertEqual(code, 1, out)
        self.assertEqual(out, f"{path}:{complaint}\n")

    def test_a_good_tree_passes_in_silence(self):
        self.assertEqual(run("check_layers.py", GOOD), (0, ""))

    def test_an_empty_tree_is_not_a_pass(self):
        self.assertEqual(run("check_layers.py", {})[0], 1)

    def test_upward_include(self):
        self.expect_complaint("src/base/clock.cpp", '\n#include "core/op.h"\n',
                              '2: layer base may not include "core/op.h" (layer core)')

    def test_the_trace_half_sees_no_engine(self):
        self.expect_complaint("src/explain/index/steps.cpp", '  #  include "core/op.h"\n',
                              '1: layer explain/index may not include "core/op.h" (layer core)')
        self.expect_complaint(
            "src/explain/index/steps.cpp", '#include "epilogue/tensor.h"\n',
            '1: layer explain/index may not include "epilogue/tensor.h" (layer core)')

    def test_a_header_includes_what_declares_its_types(self):
        files = {**GOOD, "src/core/kernel.h": "struct Kernel {\n};\n"}
        path = "src/core/backend.h"
        for text in ('#include "core/kernel.h"\nKernel& kernel();\n', "struct Kernel;\nKernel& kernel();\n",
                     "// a Kernel\nconst char* name = \"Kernel\";\n", "struct Mine {\n  enum Kernel { a };\n  Kernel b;\n};\n",
                     "int kernel(Mine::Kernel);\n"):
            self.assertEqual(run("check_layers.py", {**files, path: text}), (0, ""), text)
        for text in ("Kernel& kernel();\n", '#include "core/op.h"\n\nstruct Backend {\n  Kernel kernel;\n};\n'):
            self.assertEqual(run("check_layers.py", {**files, path: text}),
                             (1, f"{path}:1: names Kernel without a header that declares it\n"), text)

    def test_rooms_of_the_analysis(self):
        rooms = {
            "src/explain/findings/index.h": '#include "explain/timeline/idle.h"\n',
            "src/explain/timeline/idle.h": '#include "explain/index/intervals.h"\n',
            "src/explain/index/intervals.h": "",
        }
        self.assertEqual(run("check_layers.py", {**GOOD, **rooms}), (0, ""))
        path = "src/explain/timeline/steps.cpp"
        upward = {**GOOD, **rooms, path: '#include "explain/findings/index.h"\n'}
        self.assertEqual(run("check_layers.py", upward),
                         (1, f'{path}:1: layer explain/timeline may not include '
                             '"explain/findings/index.h" (layer explain/findings)\n'))

    def test_the_rooms_have_no_cycle(self):
        sys.path.insert(0, str(SCRIPTS))
        from check_layers import LAYERS  # pylint: disable=import-outside-toplevel
        above = set()
        for layer, below in LAYERS.items():  # the table is in the order of the layers
            above.add(layer)
            if layer.startswith("explain"):
                self.assertLessEqual(set(below), above, layer)

    def test_the_library_sees_no_benchmarks(self):
        self.expect_complaint("src/core/op.cpp", '#include "bench/harness.h"\n',
                              '1: "bench/harness.h" is not a file of src/ (includes are written '
                              "relative to it)")

    def test_simd_kernels_take_plain_pointers(self):
        self.expect_complaint("src/backend/cpu/simd/reduce.h", '#include "core/op.h"\n',
                              '1: layer backend/cpu/simd may not include "core/op.h" (layer core)')

    def test_panels_know_no_gemm(self):
        self.expect_complaint(
            "src/backend/cpu/simd/panels/f32.cpp", '#include "backend/cpu/simd/gemm/gemm.h"\n',
            '1: layer backend/cpu/simd/panels may not include "backend/cpu/simd/gemm/gemm.h" '
            "(layer backend/cpu/simd/gemm)")

    def test_passes_name_no_hardware(self):
        for name in ("DeviceType::cpu", "Isa::amx", "CpuFeature::avx2", "cpu_has"):
            self.expect_complaint("src/passes/a.cpp", f"// {name}\nif (x == {name}) {{}}\n",
                                  f"2: layer passes asks capabilities(), it does not name {name}")
        self.assertEqual(run("check_layers.py", {**GOOD, "src/nn/a.cpp": "f(DeviceType::cpu);"}),
                         (0, ""))

    def test_public_headers_stay_public(self):
        self.expect_complaint("include/epilogue/dtype.h", '#include "core/op.h"\n',
                              '1: a public header includes "core/op.h", which is not public')

    def test_public_headers_obey_their_layer(self):
        self.expect_complaint(
            "include/epilogue/trace/file.h", '#include "epilogue/tensor.h"\n',
            '1: layer trace may not include "epilogue/tensor.h" (layer core)')

    def test_the_headers_that_include_all_are_for_embedders(self):
        all_headers = {"include/epilogue/epilogue.h": '#include "epilogue/tensor.h"\n'}
        self.assertEqual(run("check_layers.py", {**GOOD, **all_headers}), (0, ""))
        code, out = run("check_layers.py", {**GOOD, **all_headers, "src/core/op.cpp":
                                            '#include "epilogue/epilogue.h"\n'})
        self.assertEqual((code, out), (1, 'src/core/op.cpp:1: layer core may not include '
                                          '"epilogue/epilogue.h" (layer everything)\n'))

    def test_they_do_include_all(self):
        headers = SCRIPTS.parent / "include" / "epilogue"
        for name, narrow in (("epilogue.h", headers), ("trace.h", headers / "trace")):
            text = (headers / name).read_text(encoding="utf-8")
            for header in narrow.glob("*.h"):
                if header.name not in ("epilogue.h", "trace.h"):
                    path = header.relative_to(headers.parent).as_posix()
                    self.assertIn(f'#include "{path}"', text)

    def test_unknown_files_are_named(self):
        self.expect_complaint("include/epilogue/misc.h", "",
                              "1: belongs to no layer; add it to the table in "
                              "scripts/check_layers.py")
        self.expect_complaint("src/misc/a.cpp", "",
                              "1: belongs to no layer; add it to the table in "
                              "scripts/check_layers.py")

    def test_includes_are_relative_to_src(self):
        self.expect_complaint("src/base/file.cpp", '#include "file.h"\n',
                              '1: "file.h" is not a file of src/ (includes are written relative '
                              'to it)')

    def test_libraries_stay_in_their_place(self):
        self.expect_complaint("src/ops/add.cpp", "#include <hwy/highway.h>\n",
                              "1: <hwy/highway.h> is allowed in src/backend/cpu/simd only")


class CheckSizes(unittest.TestCase):
    def test_limits(self):
        self.assertEqual(run("check_sizes.py", {"src/a.cpp": "\n" * 600}), (0, ""))
        self.assertEqual(run("check_sizes.py", {"src/a.cpp": "\n" * 601}),
                         (0, "src/a.cpp: 601 lines\n"))
        self.assertEqual(run("check_sizes.py", {"tests/a.py": "\n" * 801}),
                         (1, "tests/a.py: 801 lines, the limit is 800\n"))


if __name__ == "__main__":
    unittest.main()
