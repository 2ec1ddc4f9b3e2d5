# SPDX-License-Identifier: Apache-2.0
"""`epilogue mcp`, spoken to by the SDK's own client over stdin and stdout."""

import os
import shutil
import subprocess
import sys

import pytest

from conftest import DATA

pytest.importorskip("mcp", reason="the SDK mcp is not installed")
pytest.importorskip("duckdb", reason="duckdb is not installed")

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

MAX_BYTES = 4096


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    base = tmp_path_factory.mktemp("mcp")
    inside = base / "traces"
    inside.mkdir()
    for name in ("mlp_geglu_eager.json.gz", "mlp_geglu_compile.json.gz", "train_f32_eager.json.gz"):
        shutil.copy(DATA / name, inside)
    (base / "secret.json").write_text('{"traceEvents": []}')
    (inside / "link.json").symlink_to(base / "secret.json")
    ranks = inside / "ranks"
    ranks.mkdir()
    for rank in range(2):
        shutil.copy(DATA / "mlp_tiny_eager.json.gz", ranks / f"rank{rank}.json.gz")
    return inside


def talk(root, body):
    """Runs body(call, session) beside a server; call(name, **arguments) gives (is_error, text)."""

    async def session():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "epilogue", "mcp", "--root", str(root)],
            env={**os.environ},
        )
        async with stdio_client(server) as (read, write):
            async with ClientSession(read, write) as client:
                await client.initialize()

                async def call(name, **arguments):
                    result = await client.call_tool(name, arguments)
                    text = "".join(c.text for c in result.content)
                    assert len(text.encode()) <= MAX_BYTES, (name, len(text.encode()))
                    return result.is_error, text

                with anyio.fail_after(120):
                    await body(call, client)

    anyio.run(session)


def test_tools_are_listed_with_descriptions(root):
    async def body(call, client):
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == {"explain", "table", "diff", "check", "name", "sql"}
        for tool in listed.values():
            assert len(tool.description) > 40
            assert tool.annotations.read_only_hint
            for name, field in tool.input_schema["properties"].items():
                assert field.get("description"), (tool.name, name)

    talk(root, body)


def test_every_tool_answers(root):
    async def body(call, client):
        error, text = await call("explain", path="mlp_geglu_eager.json.gz")
        assert not error and "compute-bound on the CPU" in text
        error, text = await call("explain", path=str(root / "mlp_geglu_eager.json.gz"), section="steps")
        assert not error and "ProfilerStep#" in text and "Findings" not in text
        error, text = await call("table", path="mlp_geglu_eager.json.gz", rows=3)
        assert not error and "aten::mm" in text
        error, text = await call("diff", before="mlp_geglu_eager.json.gz", after="mlp_geglu_compile.json.gz")
        assert not error and "->" in text or "ms" in text
        error, text = await call("check", path="mlp_geglu_eager.json.gz", expressions=["ops == 0"])
        assert not error and "ops" in text
        error, text = await call("check", path="mlp_geglu_eager.json.gz")
        assert not error and "kernels_per_step" in text
        error, text = await call("name", kernel="nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT")
        assert not error and "512x8" in text
        error, text = await call("sql", paths=["mlp_geglu_eager.json.gz"], query="SELECT count(*) AS n FROM steps")
        assert not error and text.split() == ["n", "3"]
        error, text = await call("sql", paths=["ranks"], query="SELECT DISTINCT rank FROM ops ORDER BY 1")
        assert not error and text.split() == ["rank", "0", "1"]

    talk(root, body)


def test_long_answers_point_on_and_can_be_put_together(root):
    async def body(call, client):
        query = "SELECT name, input_shapes, ts_ns FROM ops ORDER BY ts_ns"
        arguments = {"paths": ["train_f32_eager.json.gz"], "query": query, "limit": 200}
        offset, parts = 0, []
        while True:
            error, text = await call("sql", offset=offset, **arguments)
            assert not error
            head, bracket, pointer = text.rpartition("\n[characters ")
            parts.append(head if bracket else text)
            if not bracket:
                break
            following = int(pointer.partition("offset=")[2].partition(" ")[0])
            assert following > offset
            offset = following
        whole = "\n".join(part.strip("\n") for part in parts)
        rows = [line for line in whole.splitlines() if "::" in line]
        assert len(parts) > 2 and len(rows) == len(set(rows)) > 100
        error, text = await call("explain", path="train_f32_eager.json.gz")
        assert not error and "sections, each by section=" in text and "Findings" in text
        error, text = await call("explain", path="train_f32_eager.json.gz", offset=10**6)
        assert error and "offset: expected 0 to" in text

    talk(root, body)


REFUSED_PATHS = {
    "nowhere.json": "no such file",
    "../secret.json": "outside of the folders",
    "link.json": "outside of the folders",
    "/etc/passwd": "outside of the folders",
    "": "expected a path",
}
WRONG_QUERIES = {
    "SELECT nam FROM ops": 'Did you mean: "name"',
    "SELEC 1": "syntax error",
    "DROP TABLE ops": "expected one statement that reads",
    "SELECT 1; SELECT 2": "expected one statement that reads",
    "SET memory_limit='8GB'": "expected one statement that reads",
    "COPY ops TO 'out.csv'": "expected one statement that reads",
    "SELECT * FROM read_text('/etc/passwd')": "disabled by configuration",
    "SELECT * FROM '/etc/passwd'": "does not exist",
    "SELECT * FROM glob('/*')": "disabled by configuration",
    "SELECT * FROM sys": "does not exist",
}


def calls_with(path):
    return {
        "explain": {"path": path},
        "table": {"path": path},
        "check": {"path": path},
        "diff": {"before": "mlp_geglu_eager.json.gz", "after": path},
        "sql": {"paths": [path], "query": "SELECT 1"},
    }


@pytest.fixture(scope="module")
def refusals(root):
    """What one server says to all of them; each server takes a second to start."""
    said = {}

    async def body(call, client):
        for path in REFUSED_PATHS:
            for tool, arguments in calls_with(path).items():
                said[tool, path] = await call(tool, **arguments)
        for query in WRONG_QUERIES:
            said[query] = await call("sql", paths=["mlp_geglu_eager.json.gz"], query=query)

    talk(root, body)
    return said


@pytest.mark.parametrize("path", REFUSED_PATHS)
def test_paths_are_refused(refusals, path):
    for tool in calls_with(path):
        error, text = refusals[tool, path]
        assert error and REFUSED_PATHS[path] in text, (tool, text)


@pytest.mark.parametrize("query", WRONG_QUERIES)
def test_sql_that_is_wrong_or_reaches_out(refusals, query):
    error, text = refusals[query]
    assert error and WRONG_QUERIES[query] in text, text


def test_an_answer_is_of_the_trace_as_it_is_now(root):
    """Also where a trace of a folder of ranks is written anew, in place."""

    async def body(call, client):
        question = {"paths": ["ranks"], "query": "SELECT sum(dur_ns) AS ns FROM ops WHERE rank = 1"}
        first = await call("sql", **question)
        file, kept = root / "ranks" / "rank1.json.gz", (root / "ranks" / "rank1.json.gz").read_bytes()
        try:
            file.write_bytes((root / "mlp_geglu_eager.json.gz").read_bytes())
            second = await call("sql", **question)
        finally:
            file.write_bytes(kept)
        assert not first[0] and not second[0] and first[1] != second[1]
        assert await call("sql", **question) == first

    talk(root, body)


def test_a_folder_with_a_link_outside_is_refused(root):
    async def body(call, client):
        error, text = await call("explain", path=".")
        assert error and "a link that leads outside" in text

    talk(root, body)


def test_a_query_without_end_is_stopped():
    import time

    from epilogue import sql

    begin = time.monotonic()
    endless = "SELECT count(*) FROM range(10000000000) a, range(1000000) b WHERE a.range % 7 = b.range % 5"
    with sql.Database([DATA / "mlp_tiny_eager.json.gz"], endless, timeout_s=0.5) as database:
        with pytest.raises(sql.Error, match="stopped after 0.5 s"):
            list(database.answer().rows)
    assert time.monotonic() - begin < 60


def test_a_root_that_is_no_folder():
    result = subprocess.run(
        [sys.executable, "-m", "epilogue", "mcp", "--root", "/nowhere"], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "epilogue mcp: --root: expected a folder, got /nowhere\n"
