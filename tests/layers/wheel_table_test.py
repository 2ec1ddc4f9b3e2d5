# SPDX-License-Identifier: Apache-2.0
"""scripts/wheel_table.py: what it says of a wheel, and which ones it refuses."""
import pathlib
import shutil
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import wheel_table


class WheelTable(unittest.TestCase):
    def wheel(self, name):
        """A wheel with one ELF file, the Python that runs this."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(pathlib.Path(sys.executable).resolve(), "package/program")
            archive.writestr("package/__init__.py", "")
        return path

    def test_platforms_that_are_old_enough(self):
        for platform in ("manylinux_2_34_x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux_2_5_x86_64",
                         "manylinux_2_31_x86_64.manylinux_2_35_x86_64"):
            self.assertEqual(wheel_table.check_tag(pathlib.Path(f"epilogue-0.1.0-py3-none-{platform}.whl")), [])

    def test_platforms_that_are_too_new_or_no_promise(self):
        for platform in ("manylinux_2_35_x86_64", "manylinux_3_1_x86_64", "linux_x86_64"):
            lines = wheel_table.check_tag(pathlib.Path(f"epilogue-0.1.0-py3-none-{platform}.whl"))
            self.assertEqual(lines, [f"epilogue-0.1.0-py3-none-{platform}.whl: expected a tag of at most manylinux_2_34, got {platform}"])

    @unittest.skipUnless(shutil.which("readelf"), "no readelf")
    def test_a_row_names_the_libraries(self):
        row, wrong = wheel_table.describe(self.wheel("epilogue-0.1.0-py3-none-linux_x86_64.whl"))
        self.assertTrue(row.startswith("| epilogue | py3-none-linux_x86_64 | "), row)
        self.assertIn("| program | ", row)
        self.assertIn("libc.so.6", row)
        self.assertEqual(wrong[-1:], wheel_table.check_tag(pathlib.Path("epilogue-0.1.0-py3-none-linux_x86_64.whl")))


if __name__ == "__main__":
    unittest.main()
