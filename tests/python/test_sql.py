# SPDX-License-Identifier: Apache-2.0
"""`epilogue sql`, and the recipes of docs/query.md: each runs, and prints what the page shows."""

import csv
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

import epilogue
import made_run
from conftest import DATA, ROOT

pytest.importorskip("duckdb", reason="duckdb is not installed")

from epilogue import sql

EAGER = str(DATA / "mlp_geglu_eager.json.gz")
PAGE = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^### (.+?)\n.*?```sh\n(epilogue sql .*?)\n```\n\n```text\n(.*?)```", PAGE, re.M | re.S)


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "epilogue", "sql", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.path.abspath(pathlib.Path(epilogue.__path__[0]).parent)},
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    made_run.make_run(folder)
    return folder


def test_there_are_ten_recipes():
    assert len(RECIPES) == 10 and PAGE.count("\n### ") == 10


@pytest.mark.parametrize("command, expected", [pytest.param(c, o, id=t) for t, c, o in RECIPES])
def test_a_recipe_prints_what_the_page_shows(made, command, expected):
    result = run(*shlex.split(command)[2:], cwd=made)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == expected


def test_the_page_has_all_columns():
    tables = epilogue.tables(EAGER)
    for name, table in tables.items():
        (row,) = re.findall(rf"^\| {name} \| .*? \| (.*) \|$", PAGE, re.M)
        listed = re.sub(r"\([^)]*\)", "", row).replace(" and ", ", ").split(", ")
        assert sorted(c.strip() for c in listed) == sorted(table.columns), name


def test_forms_say_the_same(tmp_path):
    query = "SELECT name, count(*) AS n, avg(dur_ns) AS mean FROM ops GROUP BY 1 ORDER BY n DESC, name"
    document = json.loads(run(EAGER, query, "--format", "json").stdout)
    assert document["schema_version"] == 1 and document["columns"] == ["name", "n", "mean"]
    rows = document["rows"]
    assert len(rows) > 5
    read = list(csv.DictReader(io.StringIO(run(EAGER, query, "--format", "csv").stdout, newline="")))
    assert [(r["name"], int(r["n"]), float(r["mean"])) for r in read] == [
        (r["name"], r["n"], r["mean"]) for r in rows
    ]
    markdown = run(EAGER, query, "--format", "markdown").stdout.splitlines()
    assert markdown[0] == "| name | n | mean |" and len(markdown) == 2 + len(rows)
    text = run(EAGER, query, "--limit", "2").stdout.splitlines()
    assert len(text) == 4 and "--limit" in text[3] and text[1].split()[0] == rows[0]["name"]


def test_arrow_is_an_ipc_stream(tmp_path):
    pytest.importorskip("nanoarrow", reason="nanoarrow is not installed")
    pa = pytest.importorskip("pyarrow")
    result = subprocess.run(
        [sys.executable, "-m", "epilogue", "sql", EAGER, "SELECT name, dur_ns FROM ops", "--format", "arrow"],
        capture_output=True,
    )
    table = pa.ipc.open_stream(result.stdout).read_all()
    assert table.num_rows == len(epilogue.tables(EAGER).ops)
    assert table["dur_ns"].type == pa.int64() and "aten::mm" in table["name"].to_pylist()


def test_ranks_are_one_table(made):
    rows = json.loads(run(made / "ranks", "SELECT rank, file, count(*) AS n FROM kernels GROUP BY ALL ORDER BY rank",
                          "--format", "json").stdout)["rows"]
    assert [r["rank"] for r in rows] == list(range(64))
    assert all(r["file"].endswith(f"rank{r['rank']}.json") and r["n"] == 30 for r in rows)


def test_one_trace_is_in_memory_at_a_time(made, monkeypatch):
    import gc
    import weakref

    references, most = [], []
    original = sql.tables

    def counted(*arguments, **options):
        gc.collect()
        most.append(sum(r() is not None for r in references))
        found = original(*arguments, **options)
        references.append(weakref.ref(found))
        return found

    monkeypatch.setattr(sql, "tables", counted)
    query = "SELECT count(*) FROM kernels JOIN ops ON kernels.op_id = ops.id AND kernels.rank = ops.rank"
    gc.freeze()  # what was there before need not be looked at 64 times
    try:
        with sql.Database([made / "ranks"], query) as database:
            assert list(database.answer().rows) == [(64 * 30,)]
    finally:
        gc.unfreeze()
    assert len(most) == 64 and max(most) == 0


def test_the_temporary_folder_is_removed(made, monkeypatch, tmp_path):
    monkeypatch.setattr(sql.tempfile, "tempdir", str(tmp_path))
    with sql.Database([made / "ranks"], "SELECT count(*) FROM ops") as database:
        assert list(tmp_path.iterdir())
        list(database.answer().rows)
    with pytest.raises(epilogue.Error):
        sql.Database([made / "ranks"], "SELECT nothing FROM ops").answer()
    assert list(tmp_path.iterdir()) == [] or all("epilogue-sql-" in p.name for p in tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments, line",
    [
        ((EAGER, "SELECT nam FROM ops"), 'Did you mean: "name"'),
        ((EAGER, "SELECT nam FROM ops"), "columns of ops: rank, file, id, name, ts_ns"),
        ((EAGER, "SELECT * FROM kernel"), "tables: ops, kernels, launches"),
        ((EAGER, "SELEC 1"), "syntax error"),
        ((EAGER, "DROP TABLE ops"), "expected one statement that reads (SELECT ...), got DROP"),
        ((EAGER, "SELECT 1; SELECT 2"), "got SELECT, SELECT"),
        ((EAGER, "COPY ops TO 'x.csv'"), "got COPY"),
        ((EAGER, "SELECT * FROM read_text('/etc/passwd')"), "disabled by configuration"),
        (("nowhere.json", "SELECT 1"), "nowhere.json: No such file or directory"),
        ((EAGER, "SELECT 1", "--limit", "-1"), "--limit: expected a whole number of 0 or more, got '-1'"),
        ((EAGER,), "the following arguments are required: QUERY"),
    ],
)
def test_an_error_is_one_line(arguments, line):
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("epilogue sql: ") and result.stderr.count("\n") == 1
    assert line in result.stderr


def test_a_folder_without_traces(tmp_path):
    result = run(tmp_path, "SELECT 1")
    assert result.returncode == 2 and "expected a folder with traces" in result.stderr


def test_a_small_memory_limit_still_answers(made):
    query = "SELECT count(DISTINCT rank) AS n FROM ops"
    result = run(made / "ranks", query, "--memory-limit", "64", "--format", "csv")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1] == "64"


def test_help_has_an_example():
    result = run("--help")
    assert result.returncode == 0 and "Example:\n  epilogue sql trace.json.gz" in result.stdout


def test_the_native_command_says_how_to_get_it(command):
    result = command("sql", EAGER, "SELECT 1")
    assert result.returncode == 2
    assert result.stderr == ("epilogue sql: this is part of the Python package; in a clone of epilogue: "
                             "pip install '.[sql]'\n")
