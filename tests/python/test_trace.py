# SPDX-License-Identifier: Apache-2.0
"""The trace half's own ways: inputs, errors, signals, threads, typed results."""

import gzip
import pathlib
import signal
import sys
import threading
import warnings

import pytest

import epilogue


class FakeRecording:
    """What torch.profiler.profile holds of one recording."""


class FakeProfile:
    """A profiler whose native export works once, as PyTorch's."""

    def __init__(self, text):
        self.text, self.profiler, self.exports = text, FakeRecording(), []

    def export_chrome_trace(self, path, use_python_export=False):
        if self.exports and not use_python_export:
            raise RuntimeError("Trace is already saved.")
        self.exports.append(use_python_export)
        pathlib.Path(path).write_bytes(self.text)


def test_bytes_are_a_trace_plain_or_compressed(eager):
    packed = pathlib.Path(eager).read_bytes()
    plain = gzip.decompress(packed)
    expected = {**epilogue.table(eager).to_dict()}
    for content in (packed, plain, bytearray(packed), memoryview(plain)):
        assert epilogue.table(content).to_dict() == expected
    assert epilogue.explain(packed).to_dict()["path"] == "<bytes>"


def test_a_profiler_is_exported_once_for_any_number_of_calls(eager, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prof = FakeProfile(gzip.decompress(pathlib.Path(eager).read_bytes()))
    assert epilogue.table(prof).to_dict() == epilogue.table(eager).to_dict()
    assert epilogue.explain(prof).ops == 105
    assert prof.exports == [False]
    assert len(list(tmp_path.iterdir())) == 1
    prof.profiler = FakeRecording()  # the next cycle of its schedule
    prof.exports = [False]  # whose native export the user took
    assert epilogue.explain(prof).ops == 105
    assert prof.exports == [False, True]
    del prof
    assert list(tmp_path.iterdir()) == []


def test_a_profiler_that_fails_says_so():
    class Old:
        def export_chrome_trace(self, path):
            raise RuntimeError("Trace is already saved.")

    with pytest.raises(RuntimeError, match="already saved"):
        epilogue.explain(Old())


def test_bad_input_is_named(tmp_path, eager):
    with pytest.raises(FileNotFoundError, match="nothere"):
        epilogue.explain(tmp_path / "nothere.json")
    with pytest.raises(epilogue.TraceError, match="no JSON") as raised:
        epilogue.explain(b"neither")
    assert raised.value.code == "NotJson"
    assert isinstance(raised.value, ValueError)
    with pytest.raises(epilogue.TraceError, match="steps are 2, 3, 4") as raised:
        epilogue.explain(eager, step=99)
    assert raised.value.code == "NoSuchStep"
    with pytest.raises(TypeError, match="got int"):
        epilogue.explain(3)
    with pytest.raises(epilogue.Error, match="expected a sort key"):
        epilogue.table(eager, sort_by="speed")
    with pytest.raises(epilogue.Error, match="did you mean kernels_per_step"):
        epilogue.check(eager, "kernels_per_stp <= 5")
    with pytest.raises(TypeError, match="got none"):
        epilogue.check(eager)


def test_products_are_compared_with_the_cpu_that_is_named(eager, tmp_path):
    rich = pathlib.Path(eager).with_name("mlp_geglu_rich_eager.json.gz")  # with shapes
    host = epilogue.explain(rich, cpu="EPYC 7763", cpu_threads=8).to_dict()["host"]
    assert host["peaks"]["f32_gflops"] == 640
    assert host["products"][0]["peak_pct"] == pytest.approx(host["products"][0]["gflops"] / 6.4)
    assert epilogue.explain(rich).to_dict()["host"]["peaks"] is None
    assert epilogue.report(rich, tmp_path / "p.html", cpu="EPYC 7763")
    with pytest.warns(epilogue.TraceWarning, match="record_shapes=True"):
        epilogue.explain(eager, cpu="EPYC 7763")
    with pytest.raises(epilogue.Error, match="of one of the families Haswell"):
        epilogue.explain(eager, cpu="Pentium")


def test_a_truncated_trace_is_read_with_a_warning(eager):
    content = pathlib.Path(eager).read_bytes()
    with pytest.warns(epilogue.TraceWarning, match="<bytes>"):
        explanation = epilogue.explain(content[: len(content) * 3 // 4])
    assert 0 < explanation.ops < 105


def test_check_raises_what_was_expected_and_found(eager):
    assert epilogue.check(eager, "ops == 105", "kernels >= 0")
    with pytest.raises(AssertionError) as raised:
        epilogue.check(eager, "ops == 105", "ops <= 5", "gpu_idle_pct < 20")
    assert isinstance(raised.value, epilogue.CheckFailed)
    assert str(raised.value) == (
        "expected ops <= 5, found 105\n"
        "  expected gpu_idle_pct < 20, found nothing: this trace cannot give it"
    )
    result = raised.value.result
    assert [e.holds for e in result.expectations] == [True, False, False]
    assert not epilogue.check(eager, "ops <= 5", raises=False)


def test_results_are_typed(eager, compiled):
    explanation = epilogue.explain(eager)
    assert explanation.finding("verdict") is explanation.findings[0]
    assert explanation.finding("no-such") is None
    assert explanation.findings[0].action == "" and explanation.findings[0].confidence is None
    row = epilogue.table(eager)[0]
    assert (row.name, row.count) == ("aten::mm", 9)
    parts = epilogue.diff(eager, compiled).parts
    assert any(p.what == "aten::gelu: gone" and p.after_us == 0 for p in parts)
    quantities = epilogue.quantities(eager)
    assert quantities["ops"] == 105 and quantities["gpu_idle_pct"] is None
    assert "span_us" in quantities


def test_pandas(eager, compiled):
    pandas = pytest.importorskip("pandas")
    table = epilogue.table(eager)
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["self_cpu_us"].sum() == pytest.approx(table.self_cpu_total_us)
    assert len(epilogue.diff(eager, compiled).to_pandas()) > 3
    assert set(epilogue.explain(eager).to_pandas()["id"]) >= {"verdict"}


def test_without_pandas_the_error_says_what_to_install(eager, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        epilogue.table(eager).to_pandas()


def test_html_escapes_what_traces_hold():
    trace = b"""{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "<script>x</script>",
                 "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}"""
    shown = epilogue.table(trace)._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown
    for result in (epilogue.explain(trace), epilogue.diff(trace, trace), epilogue.name("<b>")):
        assert "<script>" not in result._repr_html_() and "<b>" not in result._repr_html_()


def large_trace(events=1_000_000):
    event = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1.5,"dur":2.5},\n'
    return b'{"traceEvents": [' + event * events + event.rstrip(b",\n") + b"]}"


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no timers that send signals"
)
def test_ctrl_c_ends_a_call_under_way():
    """The handler of a signal runs while a trace is read, and what it raises comes out."""
    content = large_trace()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyboardInterrupt):
            epilogue.explain(content)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert epilogue.explain(b'{"traceEvents": []}').ops == 0


def test_other_threads_run_meanwhile():
    """The interpreter's lock is free while a trace is read."""
    done = threading.Event()
    counted = [0]

    def count():
        while not done.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    content = large_trace(300_000)
    counter.start()
    try:
        start = counted[0]
        epilogue.table(content)
        assert counted[0] > start
    finally:
        done.set()
        counter.join()


def test_threads_get_what_one_gets(eager, compiled):
    expected = epilogue.explain(eager).to_dict(), epilogue.diff(eager, compiled).to_dict()
    results, shared = [], epilogue.explain(eager)

    def work():
        for _ in range(5):
            one = epilogue.explain(eager).to_dict(), epilogue.diff(eager, compiled).to_dict()
            results.append(one == expected and shared.to_dict() == expected[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        epilogue.explian  # noqa: B018


def test_no_warning_of_a_sound_trace(eager):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epilogue.explain(eager)
