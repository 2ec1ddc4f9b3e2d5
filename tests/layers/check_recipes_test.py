# SPDX-License-Identifier: Apache-2.0
"""check_recipes.py on small trees made for it."""
import importlib.util
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_recipes.py"
spec = importlib.util.spec_from_file_location("check_recipes", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

RECIPE = """# Contributing

**An op.** One file.

```diff
 src/ops/pair.cpp
+constinit const OpDef kPair{
```

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

**A pass.** One line.

```diff
 src/passes.h
+void pair(Graph& graph);
```

**A fused pattern.** Two files.

```diff
 src/core/knot.h
+inline constexpr OpDef kKnot{.name = "epilogue::knot"};
 src/passes/fuse_knot.cpp
+class Knot final : public FusedNode {
```

**A finding.** One line.

```diff
 src/rules.h
+extern const Rule kRarePairRule;
 src/rare_pair.cpp
+    .id = "rare-pair",
```

**A section.** One file.

```diff
 src/pair_section.cpp
+const Section kPairs{};
```

**A subcommand.** Two files.

```diff
 tools/pair_command.cpp
+void add_pair_command(CLI::App& app) {
 tools/commands.cpp
+void add_pair_command(CLI::App& app);
```

## Rules
"""


class RecipeTest(unittest.TestCase):
    def complaints(self, recipe=RECIPE, **files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "CONTRIBUTING.md").write_text(recipe, encoding="utf-8")
            tree = {"src/table.h": "  twice,\n", "include/ops.h": "Tensor twice(const Tensor& self);\n",
                    "src/ops/pair.cpp": "constinit const OpDef kPair{\n",
                    "src/passes.h": "void pair(Graph& graph);\n",
                    "src/core/knot.h": 'inline constexpr OpDef kKnot{.name = "epilogue::knot"};\n',
                    "src/passes/fuse_knot.cpp": "class Knot final : public FusedNode {\n",
                    "src/explain/knot.cpp": "// Traces have knots too.\n",
                    "src/rules.h": "extern const Rule kRarePairRule;\n",
                    "src/rare_pair.cpp": '    .id = "rare-pair",\n',
                    "src/pair_section.cpp": "const Section kPairs{};\n",
                    "tools/pair_command.cpp": "void add_pair_command(CLI::App& app) {\n",
                    "tools/commands.cpp": "void add_pair_command(CLI::App& app);\n"}
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
                "src/gone.h: either listed by the recipe or quoted by its diff, not both",
            ],
        )

    def test_a_finding_in_a_third_file_is_found(self):
        for text in ("std::vector<Loss> rare_pairs;\n", '"rare-pair"\n', "&kRarePairRule,\n"):
            self.assertEqual(
                self.complaints(src__host=text),
                ["src/host.cpp: either names rare-pair or is quoted by the recipe, not both"],
            )

    def test_a_finding_without_an_id_is_found(self):
        self.assertEqual(self.complaints(RECIPE.replace('+    .id = "rare-pair",\n', "")),
                         ["CONTRIBUTING.md: the recipe 'A finding' quotes no id"])

    def test_a_pattern_in_a_third_file_is_found(self):
        self.assertEqual(
            self.complaints(src__plan__memory="if (node.as<Knot>()) {\n"),
            ["src/plan/memory.cpp: either names knot or is quoted by the recipe, not both"],
        )

    def test_a_pattern_without_a_name_is_found(self):
        recipe = RECIPE.replace('+inline constexpr OpDef kKnot{.name = "epilogue::knot"};', "+inline")
        self.assertIn("CONTRIBUTING.md: the recipe 'A fused pattern' quotes no name", self.complaints(recipe))

    def test_a_stale_quotation_is_found(self):
        self.assertEqual(
            self.complaints(RECIPE.replace("+  twice,", "+  twice = 2,")),
            ["src/table.h: has no line that the recipe 'A pointwise function' quotes: twice = 2,"],
        )

    def test_a_missing_recipe_is_found(self):
        self.assertEqual(len(self.complaints("# Contributing\n")), len(script.MOST_FILES))

    def test_a_diff_of_too_many_files_is_found(self):
        recipe = RECIPE.replace("+constinit const OpDef kPair{\n", "+constinit const OpDef kPair{\n" + "".join(
            f" src/{name}.h\n+int {name};\n" for name in "abc"))
        self.assertEqual(
            self.complaints(recipe, **{f"src__{name}": "" for name in "abc"})[0],
            "CONTRIBUTING.md: the recipe 'An op' touches 4 files, the limit is 3",
        )


if __name__ == "__main__":
    unittest.main()
