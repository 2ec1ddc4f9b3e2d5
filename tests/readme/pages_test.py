# SPDX-License-Identifier: Apache-2.0
"""README.md stays short, and the links of all pages lead somewhere."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


def anchors(page):
    """The names that GitHub gives to a page's headings."""
    heads = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


class Readme(unittest.TestCase):
    lines = (ROOT / "README.md").read_text().splitlines()

    def test_it_is_read_in_minutes(self):
        self.assertLessEqual(len(self.lines), 120)
        self.assertEqual([line for line in self.lines if len(line) > 120], [])
        tables = "\n".join((*re.findall(r"^```text$.*?^```$", "\n".join(self.lines), re.S | re.M),
                            *(line for line in self.lines if line.startswith("|"))))
        self.assertGreater(tables.count("\n"), 20)
        self.assertEqual([line for line in tables.splitlines() if len(line) > 100], [])

    def test_a_picture_then_three_doors_of_ten_lines_then_the_two_commands(self):
        text = "\n".join(self.lines)
        places = [text.index(mark) for mark in ("](docs/report-verdict.png)", "## I have a trace", "## I have a PyTorch model",
                                                "## I write C++", "\nmake demo ", "\nmake test ", "## How fast",
                                                "## What it does not do")]
        self.assertEqual(places, sorted(places))
        for door in re.findall(r"^## I [^\n]*\n(.*?)(?=^## )", text, re.S | re.M):
            said = [line for line in door.splitlines() if line and not line.startswith(("```", "<!--"))]
            self.assertLessEqual(len(said), 10, "\n".join(said))

    def test_it_leads_to_every_page(self):
        linked = set(re.findall(r"\]\((docs/\w+\.md)\)", "\n".join(self.lines)))
        pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
        self.assertEqual(pages - linked, set())


class Links(unittest.TestCase):
    def test_files_and_headings_that_are_linked_exist(self):
        checked = 0
        for page in PAGES:
            for path, heading in LINK.findall(without_code(page.read_text())):
                if path.startswith(("http:", "https:", "mailto:")):
                    continue
                target = page.parent / path if path else page
                with self.subTest(page=page.name, link=path, heading=heading):
                    self.assertTrue(target.exists())
                    if heading:
                        self.assertIn(heading, anchors(target))
                checked += 1
        self.assertGreater(checked, 50)


if __name__ == "__main__":
    unittest.main()
