# SPDX-License-Identifier: Apache-2.0
"""shard() and merge(): the parts of a run joined are the run in one piece, bit for bit."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys

import pytest

import epilogue

RANKS = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Made traces of eight ranks (tests/cli/rank_traces.py)."""
    folder = tmp_path_factory.mktemp("ranks") / "run"
    maker = pathlib.Path(__file__).parents[1] / "cli" / "rank_traces.py"
    subprocess.run([sys.executable, maker, folder, str(RANKS), "--mb", "0.1"], check=True)
    return folder


@pytest.mark.parametrize("count", [1, 3, 11])
def test_parts_joined_are_the_run_bit_for_bit(run, tmp_path, count):
    parts = [epilogue.shard(run, i, count, tmp_path) for i in range(1, count + 1)]
    assert [(p.part, p.parts, p.traces_of_all) for p in parts] == [(i, count, RANKS) for i in range(1, count + 1)]
    assert sum(p.traces for p in parts) == RANKS
    for part in parts:
        assert pathlib.Path(part.path) == tmp_path / f"part-{part.part}-of-{count}.epart"
        assert part.bytes == pathlib.Path(part).stat().st_size
    whole = epilogue.explain(run)
    for named in (parts, list(reversed(parts)), tmp_path, str(tmp_path)):
        merged = epilogue.merge(named)
        assert isinstance(merged, epilogue.RanksExplanation)
        assert merged.to_json() == whole.to_json()
        assert merged.text() == whole.text() and merged.markdown() == whole.markdown()
    assert [rank["rank"] for rank in merged.ranks] == list(range(RANKS))
    assert epilogue.merge(parts, top=-1).text() == epilogue.explain(run, top=-1).text()


def test_parts_may_be_read_by_threads(run, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: epilogue.shard(run, i, 4, tmp_path), range(1, 5)))
    assert epilogue.merge(parts).to_json() == epilogue.explain(run).to_json()


def test_the_files_are_those_of_the_command(run, tmp_path, command):
    part = epilogue.shard(run, 2, 3, tmp_path / "ours", step=6)
    ran = command("explain", run, "--shard", "2/3", "--parts", tmp_path / "theirs", "--step", "6", "--format", "json")
    theirs = json.loads(ran.stdout)
    assert pathlib.Path(part.path).read_bytes() == pathlib.Path(theirs["file"]).read_bytes()
    assert part.to_dict() | {"file": ""} == theirs | {"file": ""}


def test_merge_writes_the_page_of_all_ranks(run, tmp_path):
    epilogue.shard(run, 1, 1, tmp_path)
    epilogue.merge(tmp_path, page=tmp_path / "merged.html", title="Run 7")
    epilogue.report(run, tmp_path / "whole.html", title="Run 7")
    assert (tmp_path / "merged.html").read_bytes() == (tmp_path / "whole.html").read_bytes()


def test_misuse(run, tmp_path, eager):
    with pytest.raises(FileNotFoundError, match="nothere"):
        epilogue.shard(tmp_path / "nothere", 1, 2)
    with pytest.raises(epilogue.Error, match="expected a folder with one trace for each rank"):
        epilogue.shard(eager, 1, 2, tmp_path)
    for index, count in ((0, 2), (3, 2), (1, 0)):
        with pytest.raises(epilogue.Error, match="expected a part from 1/"):
            epilogue.shard(run, index, count, tmp_path)
    part = epilogue.shard(run, 1, 2, tmp_path)
    with pytest.raises(epilogue.Error, match="expected all 2 parts, got 1: 2 is missing"):
        epilogue.merge(part)
    with pytest.raises(epilogue.Error, match="expected each part once"):
        epilogue.merge([part, part])
    with pytest.raises(TypeError, match="got none"):
        epilogue.merge([])
    with pytest.raises(FileNotFoundError, match="gone"):
        epilogue.merge([part, tmp_path / "gone.epart"])
    pathlib.Path(part.path).write_bytes(b"no part")
    with pytest.raises(epilogue.TraceError):
        epilogue.merge(part)
