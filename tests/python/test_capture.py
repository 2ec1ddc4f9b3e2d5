# SPDX-License-Identifier: Apache-2.0
"""capture= of explain(), table(), diff() and report() means what --capture means to the command."""

import pathlib
import sys

import pytest

import epilogue

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))
import graph_traces  # noqa: E402


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    eager = graph_traces.write(folder / "eager.json", graph_traces.eager())
    return eager, graph_traces.write(folder / "graphs.json", graph_traces.replays(3))


def test_results_are_the_commands(traces, command, tmp_path):
    eager, graphs = traces
    for name, function, arguments in (
        ("explain", epilogue.explain, [graphs]),
        ("table", epilogue.table, [graphs]),
        ("diff", epilogue.diff, [graphs, graphs]),
    ):
        ran = command(name, *arguments, "--capture", eager, "--format", "json")
        assert function(*arguments, capture=eager).to_json() == ran.stdout, name
        assert function(*arguments, capture=pathlib.Path(eager).read_bytes()).to_json() == ran.stdout, name
        assert function(*arguments).to_json() != ran.stdout, name
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    epilogue.report(graphs, ours, capture=eager)
    assert command("report", graphs, "--capture", eager, "-o", theirs).returncode == 0
    assert ours.read_bytes() == theirs.read_bytes()


def test_values_are_typed(traces):
    eager, graphs = traces
    table = epilogue.table(graphs, capture=eager)
    assert table.captured_pct == 100 and epilogue.table(graphs).captured_pct is None
    assert {row.name: row.count for row in table}["aten::addmm"] == 12
    assert epilogue.diff(eager, graphs, capture=eager).captured_pct == (None, 100)
    one, two = epilogue.diff(graphs, graphs, capture=eager), epilogue.diff(graphs, graphs, capture=(eager, eager))
    assert one.to_dict() == two.to_dict()


def test_misuse(traces):
    eager, graphs = traces
    with pytest.warns(epilogue.TraceWarning, match="the capture names nothing"):
        epilogue.table(eager, capture=eager)
    with pytest.raises(FileNotFoundError, match="nothere"):
        epilogue.explain(graphs, capture="nothere.json")
    with pytest.raises(epilogue.Error, match="or one of each, got 3"):
        epilogue.diff(graphs, graphs, capture=(eager, eager, eager))
