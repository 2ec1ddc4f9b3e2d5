# SPDX-License-Identifier: Apache-2.0
"""Python's results are the command's, on every trace at hand."""

import json
import pathlib
import shutil
import warnings

import pytest
from conftest import DATA, REAL, trace_params

import epilogue


def from_python(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", epilogue.TraceWarning)
        return function(*arguments, **options)


def assert_same(run, function, *arguments, **options):
    """`run`: of the command; it failed if Python's function does, and says the same."""
    if run.returncode == 2:
        with pytest.raises(epilogue.TraceError) as raised:
            from_python(function, *arguments, **options)
        assert str(raised.value) in run.stderr
        return None
    result = from_python(function, *arguments, **options)
    assert result.to_json() == run.stdout
    assert result.to_dict() == json.loads(run.stdout)
    return result


@pytest.mark.parametrize("path", trace_params())
def test_explain(path, command):
    run = command("explain", path, "--format", "json")
    result = assert_same(run, epilogue.explain, str(path))
    if result is not None:
        assert str(result) + "\n" == command("explain", path).stdout
        assert result.markdown() == command("explain", path, "--format", "markdown").stdout


@pytest.mark.parametrize("path", trace_params())
def test_table(path, command):
    run = command("table", path, "--format", "json")
    result = assert_same(run, epilogue.table, str(path))
    if result is not None:
        assert result.text() == command("table", path).stdout
        assert len(result) == len(json.loads(run.stdout)["rows"])


@pytest.mark.parametrize("path", trace_params())
def test_quantities(path, command):
    run = command("check", path, "--list", "--format", "json")
    result = assert_same(run, epilogue.quantities, str(path))
    if result is not None and result["ops"] is not None:
        expression = f"ops == {result['ops']:.0f}"
        check = command("check", path, expression, "ops < 0", "--format", "json")
        assert check.returncode == 1
        assert_same(check, epilogue.check, str(path), expression, "ops < 0", raises=False)


@pytest.mark.parametrize(
    "before, after",
    [
        (DATA / "mlp_geglu_eager.json.gz", DATA / "mlp_geglu_compile.json.gz"),
        pytest.param(
            REAL / "sam" / "a100_eager.json.gz",
            REAL / "sam" / "a100_optimised.json.gz",
            marks=pytest.mark.skipif(not REAL.is_dir(), reason=f"no real traces at {REAL}"),
        ),
    ],
)
def test_diff(before, after, command):
    run = command("diff", before, after, "--format", "json")
    result = assert_same(run, epilogue.diff, before, after)
    assert str(result) + "\n" == command("diff", before, after).stdout
    assert result.delta_us == pytest.approx(result.wall_us[1] - result.wall_us[0])


def test_options_mean_what_they_mean_to_the_command(eager, command):
    run = command("explain", eager, "--top", 2, "--step", 3)
    assert epilogue.explain(eager, top=2, step=3).text() == run.stdout
    run = command("table", eager, "--sort-by", "count", "--row-limit", 3, "--group-by-input-shape")
    table = epilogue.table(eager, sort_by="count", row_limit=3, group_by_input_shape=True)
    assert table.text() == run.stdout
    run = command("explain", eager, "--from", 1, "--to", 4, "--format", "json")
    assert epilogue.explain(eager, from_ms=1, to_ms=4).to_json() == run.stdout


def test_name(command):
    name = "nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT"
    assert [epilogue.name(name).to_dict()] == json.loads(
        command("name", name, "--format", "json").stdout
    )
    assert epilogue.name(name).text() == command("name", name).stdout


def test_report(tmp_path, eager, compiled, command):
    ours, theirs = tmp_path / "a" / "page.html", tmp_path / "b" / "page.html"
    report = epilogue.report(compiled, ours, against=eager, title="t")
    run = command("report", compiled, "--against", eager, "--title", "t", "-o", theirs)
    assert run.returncode == 0
    assert ours.read_bytes() == theirs.read_bytes()
    assert report.bytes == ours.stat().st_size and report.has_trace
    assert not epilogue.report(compiled, ours, embed_trace=False).has_trace


def test_report_of_ranks(tmp_path, eager, command):
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(2):
        shutil.copy(eager, folder / f"rank{rank}.json.gz")
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    assert not epilogue.report(folder, ours).has_trace
    assert command("report", folder, "-o", theirs).returncode == 0
    assert ours.read_bytes() == theirs.read_bytes()
    with pytest.raises(epilogue.Error, match="expected one trace to compare with another"):
        epilogue.report(folder, ours, against=eager)


def test_report_with_pages_of_ranks(tmp_path, eager, command):
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(2):
        shutil.copy(eager, folder / f"rank{rank}.json.gz")
    ours, theirs = tmp_path / "ours" / "a.html", tmp_path / "theirs" / "a.html"
    report = epilogue.report(folder, ours, rank_pages=True)
    assert command("report", folder, "--rank-pages", "-o", theirs).returncode == 0
    assert ours.read_bytes() == theirs.read_bytes()
    assert report.rank_pages == tuple(str(ours.parent / "a_ranks" / f"rank_000{i}.html") for i in range(2))
    for page in report.rank_pages:
        name = pathlib.Path(page).relative_to(ours.parent)
        assert (ours.parent / name).read_bytes() == (theirs.parent / name).read_bytes()
    assert epilogue.report(folder, ours).rank_pages == ()
    with pytest.raises(epilogue.Error, match="to write a page of each, got one trace"):
        epilogue.report(eager, ours, rank_pages=True)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real traces at {REAL}")
def test_the_ranks_of_a_run(command):
    folder = REAL / "param" / "dlrm"
    run = command("explain", folder, "--format", "json")
    result = assert_same(run, epilogue.explain, folder)
    assert isinstance(result, epilogue.RanksExplanation) and len(result.ranks) > 1
