# SPDX-License-Identifier: Apache-2.0
"""What check_pointwise_recipe.py finds in small trees made for it."""
import importlib.util
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_pointwise_recipe.py"
spec = importlib.util.spec_from_file_location("check_pointwise_recipe", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

RECIPE = """# Contributing

**A pointwise function.** Two files. For
`twice` these are:

* `src/table.h`: the row.
* `include/ops.h`: the declaration.

```diff
 src/table.h
+  twice,
 include/ops.h
+Tensor twice(const Tensor& self);
```

**A kernel.** See `src/kernel.cpp`.
"""


class RecipeTest(unittest.TestCase):
    def complaints(self, recipe=RECIPE, **files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "CONTRIBUTING.md").write_text(recipe, encoding="utf-8")
            tree = {"src/table.h": "  twice,\n", "include/ops.h": "Tensor twice(const Tensor& self);\n"}
            tree.update({name.replace("__", "/") + ".cpp": text for name, text in files.items()})
            for name, text in tree.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return list(script.check(root))

    def test_a_true_recipe_is_fine(self):
        self.assertEqual(self.complaints(), [])

    def test_a_file_more_is_found(self):
        self.assertEqual(
            self.complaints(src__extra="case Fn::Twice:\n"),
            ["src/extra.cpp: names twice, but the recipe does not list it"],
        )

    def test_a_file_less_is_found(self):
        recipe = RECIPE.replace("* `include/ops.h`", "* `src/gone.h`: gone.\n* `include/ops.h`")
        self.assertEqual(
            self.complaints(recipe),
            [
                "src/gone.h: listed by the recipe, but does not name twice",
                "src/gone.h: listed by the recipe, but its diff does not quote it",
            ],
        )

    def test_a_stale_quotation_is_found(self):
        self.assertEqual(
            self.complaints(RECIPE.replace("+  twice,", "+  twice = 2,")),
            ["src/table.h: has no line that the recipe quotes: twice = 2,"],
        )

    def test_a_missing_recipe_is_found(self):
        self.assertEqual(len(self.complaints("# Contributing\n")), 1)


if __name__ == "__main__":
    unittest.main()
