# SPDX-License-Identifier: Apache-2.0
"""pytest: expectations about traces, and baselines that tests are held to.

    def test_step(epilogue_trace):
        with torch.profiler.profile() as prof:
            step()
        epilogue_trace(prof, "kernels_per_step <= 5", "gpu_idle_pct < 20")

``pytest --epilogue-baseline DIR`` also keeps each test's trace in DIR the first time, and later
fails where it became worse beyond noise. Loaded by pytest itself where epilogue is installed; the
native half is loaded when a test asks for the fixture.
"""

from __future__ import annotations

import pathlib
import typing

import pytest

if typing.TYPE_CHECKING:
    from ._explanation import Explanation
    from ._source import TraceLike


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("epilogue", "traces of epilogue")
    group.addoption(
        "--epilogue-baseline",
        metavar="DIR",
        help="keep the traces of tests in DIR; fail where one became worse beyond noise",
    )
    group.addoption(
        "--epilogue-update-baseline",
        action="store_true",
        help="replace the traces of --epilogue-baseline by those of this run",
    )
    group.addoption(
        "--epilogue-tolerance",
        metavar="PCT",
        type=float,
        default=10.0,
        help="median step times may grow by so many per cent [10]",
    )


class TraceRecorder:
    """What the fixture ``epilogue_trace`` gives. Call it with a trace."""

    def __init__(self, node_id: str, folder: "pathlib.Path | None", update: bool, tolerance: float):
        self._node_id = node_id
        self._folder = folder
        self._update = update
        self._tolerance = tolerance

    def __call__(
        self, trace: "TraceLike", *expressions: str, label: str = ""
    ) -> "Explanation":
        """Checks a trace and holds it to the baseline.

        Args:
            trace: A path, bytes, or a profiler.
            expressions: As of :func:`epilogue.check`.
            label: Tells the traces of one test apart.

        Returns:
            The explanation of the trace.

        Raises:
            CheckFailed: An expectation does not hold.
            pytest.fail.Exception: It is worse than the baseline.
        """
        import epilogue

        if expressions:
            epilogue.check(trace, *expressions)
        if self._folder is not None:
            self._hold_to_baseline(trace, label)
        return epilogue.explain(trace)

    def _hold_to_baseline(self, trace: "TraceLike", label: str) -> None:
        from . import _baseline

        path = self._folder / _baseline.file_name(self._node_id, label)
        if self._update or not path.exists():
            _baseline.keep(trace, path)
            return
        found = _baseline.regressions(path, trace, tolerance_pct=self._tolerance)
        if found:
            pytest.fail(_baseline.describe(found, path), pytrace=False)


@pytest.fixture
def epilogue_trace(request: pytest.FixtureRequest) -> TraceRecorder:
    """Checks traces, and holds them to the baseline of ``--epilogue-baseline DIR``."""
    option = request.config.getoption
    folder = option("--epilogue-baseline")
    return TraceRecorder(
        request.node.nodeid,
        None if folder is None else pathlib.Path(folder),
        option("--epilogue-update-baseline"),
        option("--epilogue-tolerance"),
    )
