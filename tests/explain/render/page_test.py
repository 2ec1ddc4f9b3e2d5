# SPDX-License-Identifier: Apache-2.0
"""The HTML pages in a headless Chromium: page_test.py EPILOGUE. Exit 77 (skipped) without one.

Collects console errors and requests: there must be none of either. A page is no wider than its window, and no label of a plot lies on
another one or outside of the plot."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

import browser

BINARY = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.environ.get("EPILOGUE_TRACES", os.path.join(HERE, "../../../../shared/traces"))
SNAPSHOT = os.path.join(HERE, "../../data/memory_snapshots/train_protocol_5.pickle")
SKIPPED = 77
EVENTS = 100_000
PHONE = {"width": 390, "height": 844, "mobile": True}
VIEWS = ({}, {"dark": True}, PHONE)
# What lies where it should not. A phone zooms a wide page out, so innerWidth grows with it: the width is that of the screen.
MISPLACED = """((width) => {
    const found = document.documentElement.scrollWidth > width ? ["the page is " + document.documentElement.scrollWidth + " px wide"] : [];
    for (const plot of document.querySelectorAll("svg.plot")) {
        const whole = plot.getBoundingClientRect();
        const labels = [...plot.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
        labels.forEach(([text, a], i) => {
            if (a.left < whole.left - 1 || a.right > whole.right + 1 || a.top < whole.top - 1 || a.bottom > whole.bottom + 1)
                found.push(text + " lies outside");
            for (const [other, b] of labels.slice(i + 1))
                if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
                    found.push(text + " lies on " + other);
        });
    }
    return found; })(%d)"""
# The numbers along the two axes of a roofline plot.
TICKS = """((plot) => ["middle", "end"].map((anchor) => [...plot.querySelectorAll(`text.tick[text-anchor=${anchor}]`)]
    .map((t) => t.textContent).filter((text) => !/[a-z]/i.test(text))))(document.querySelector("%s svg.plot"))"""

# Presses what can be pressed, but for what leaves the page; gives the count, and the texts of those that changed nothing.
PRESS = """(() => {
    const state = () => [document.body.innerHTML.length, window.epilogueTimeline?.view.from, window.epilogueTimeline?.view.to,
        ...[...document.querySelectorAll("th")].map((head) => head.ariaSort)].join();
    const buttons = [...document.querySelectorAll("main button")].filter((button) => !button.hidden);
    const dead = buttons.filter((button) => { const before = state(); button.click(); return state() === before; });
    document.querySelectorAll("tbody").forEach((rows) => rows.querySelector("tr.clickable")?.click());
    document.querySelectorAll("details").forEach((details) => { details.open = !details.open; });
    document.querySelectorAll("[tabindex]").forEach((node) => { node.focus(); node.blur(); });
    for (const input of document.querySelectorAll("input[type=search]"))
        for (const text of ["mm", ""]) { input.value = text; input.dispatchEvent(new Event("input")); }
    return [buttons.length, dead.map((button) => button.textContent)]; })()"""


def synthetic_trace(events):
    """Ops with a launch and a kernel each, on 2 threads and 2 streams, with hostile names."""
    names = ["aten::mm", "aten::add", "</script><img src=x onerror=alert(1)>", "quote\" ' \\ \u2028"]
    kernels = ["ampere_sgemm_128x64_tn", "triton_poi_fused_add_0", "<b>bold</b>"]
    pick = random.Random(1)
    made = []
    for i in range(events // 3):
        ts, thread = i * 10.0, i % 2
        shared = {"ph": "X", "pid": 1, "tid": thread}
        made += [{**shared, "cat": "cpu_op", "name": pick.choice(names), "ts": ts, "dur": 9,
                  "args": {"External id": i + 1}},
                 {**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts + 2, "dur": 3,
                  "args": {"correlation": i + 1}},
                 {"ph": "X", "cat": "kernel", "name": pick.choice(kernels), "pid": 0, "tid": 7 + thread,
                  "ts": ts + 6, "dur": pick.choice([1, 5, 12]),
                  "args": {"correlation": i + 1, "device": 0, "stream": 7 + thread}}]
    return {"traceEvents": made}


def rank_trace(rank, ranks):
    """Three steps with a product and an all-reduce each; rank 1 is late by 300 us and more."""
    events = []
    for step in range(3):
        at, correlation, late = 1000 * step, 2 * step + 1, (300 + 7 * step if rank == 1 else 3 * rank)
        args = [{"correlation": correlation, "device": 0, "stream": 7},
                {"correlation": correlation + 1, "device": 0, "stream": 20, "Collective name": "allreduce",
                 "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float", "Group size": ranks}]
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 7}", "pid": 1, "tid": 1, "ts": at,
             "dur": 1000 + rank},
            *({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
               "ts": at + 1 + 3 * i, "dur": 2, "args": {"correlation": correlation + i}} for i in (0, 1)),
            {"ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_tn", "pid": 0, "tid": 7, "ts": at + 10,
             "dur": 390 + late, "args": args[0]},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 20,
             "ts": at + 390 + late, "dur": 400 - late, "args": args[1]}]
    return {"distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": events}


def triton_trace():
    """Two kernels; the op that launches the first says where Inductor wrote its source."""
    events = []
    for i, (op, kernel, args) in enumerate([
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0",
             {"kernel_file": "/tmp/inductor/c1.py", "kernel_kwargs": "XBLOCK=16"}),
            ("aten::mm", "ampere_sgemm_128x64_tn", {})], start=1):
        shared = {"ph": "X", "pid": 1, "tid": 1}
        events += [{**shared, "cat": "cpu_op", "name": op, "ts": 20 * i, "dur": 9, "args": {"External id": i, **args}},
                   {**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 20 * i + 2, "dur": 3,
                    "args": {"correlation": i, "External id": i}},
                   {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 20 * i + 6, "dur": 10,
                    "args": {"correlation": i, "External id": i, "device": 0, "stream": 7}}]
    return {"traceEvents": events}


def product_trace(kernel):
    """Three products of one shape: their one point leaves the axes of the roofline plot less than a decade."""
    events = []
    for i in range(1, 4):
        shared = {"ph": "X", "pid": 1, "tid": 1}
        events += [{**shared, "cat": "cpu_op", "name": "aten::mm", "ts": 200 * i, "dur": 9,
                    "args": {"External id": i, "Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}},
                   {**shared, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 200 * i + 2, "dur": 3,
                    "args": {"correlation": i, "External id": i}},
                   {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 200 * i + 6, "dur": 100 + i,
                    "args": {"correlation": i, "External id": i, "device": 0, "stream": 7}}]
    return {"traceEvents": events}


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.browser = browser.Browser().__enter__()
        cls.addClassCleanup(cls.browser.__exit__)
        trace = os.path.join(cls.folder.name, "synthetic.json")
        with open(trace, "w", encoding="utf-8") as f:
            json.dump(synthetic_trace(EVENTS), f)
        cls.big = cls.report(trace)

    @classmethod
    def report(cls, *args):
        page = os.path.join(cls.folder.name, f"{abs(hash(args))}.html")
        subprocess.run([BINARY, "report", *args, "-o", page], check=True, stdout=subprocess.DEVNULL)
        return page

    def open(self, path, **view):
        page = self.browser.open(path, **view)
        self.addCleanup(lambda: self.assertEqual(page.complaints(), []))
        return page

    def check_layout(self, path, views=VIEWS):
        for view in views:
            page = self.open(path, **view)
            self.assertEqual(page.evaluate(MISPLACED % view.get("width", 1280)), [], view)
        return page

    def write(self, name, trace):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(trace, f)
        return path

    def real(self, name):
        path = os.path.join(TRACES, name)
        if not os.path.exists(path):
            self.skipTest(f"no {name}")
        return path

    def pixels(self, page):
        """How many different colours the timeline's canvas shows."""
        return page.evaluate("""new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => {
            const canvas = document.querySelector("canvas");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            resolve(new Set(new Uint32Array(data.buffer)).size);
        })))""")

    def test_a_page_of_100000_events_opens_and_draws(self):
        page = self.open(self.big)
        events = page.evaluate("epilogueTimeline.model.events")
        self.assertGreater(events, EVENTS * 0.99)
        self.assertGreater(self.pixels(page), 5)
        # Never more rectangles than a row has pixels, whatever the zoom.
        rows = page.evaluate("epilogueTimeline.model.lanes.flatMap((lane) => lane.rows).length")
        width = page.evaluate("epilogueTimeline.painter.width")
        self.assertLess(page.evaluate("epilogueTimeline.painter.painted"), 2 * rows * width)
        ready = page.evaluate("document.documentElement.dataset.readyMs")
        draw = page.evaluate("epilogueTimeline.drawMs")
        print(f"\n{events} events: open {page.open_s:.2f} s, of that the page's script {ready} ms; "
              f"one frame {draw:.1f} ms", file=sys.stderr)

    def test_hostile_names_are_text(self):
        page = self.open(self.big)
        self.assertEqual(page.evaluate("document.querySelectorAll('img, #main b').length"), 0)
        page.evaluate("epilogueTimeline.select(epilogueTimeline.model.strings.findIndex(Boolean))")
        self.assertIn("</script><img", page.evaluate("document.body.innerText"))
        self.assertEqual(page.evaluate("document.querySelectorAll('img').length"), 0)

    def test_nothing_but_the_pages_own_script_runs(self):
        page = self.browser.open(self.big)
        page.evaluate("""(() => { const s = document.createElement("script");
            s.textContent = "window.wasRun = true"; document.body.append(s); })()""")
        self.assertFalse(page.evaluate("window.wasRun === true"))

    def test_tables_sort_and_filter(self):
        page = self.open(self.big)
        column = "[...document.querySelectorAll('#kernels tbody tr td:nth-child(4)')].map((td) => +td.textContent.replaceAll(',', ''))"
        head = "document.querySelectorAll('#kernels th button')[3]"
        page.evaluate(head + ".click()")
        falling = page.evaluate(column)
        page.evaluate(head + ".click()")
        rising = page.evaluate(column)
        self.assertEqual(len(falling), 3)
        self.assertEqual(falling, sorted(falling, reverse=True))
        self.assertEqual(rising, sorted(rising))
        self.assertNotEqual(falling, rising)
        self.assertEqual(page.evaluate("document.querySelectorAll('#kernels th')[3].ariaSort"), "ascending")
        page.evaluate("""(() => { const i = document.querySelector("#averages input");
            i.value = "triton"; i.dispatchEvent(new Event("input")); })()""")
        names = page.evaluate("[...document.querySelectorAll('#averages tbody td:first-child')].map((td) => td.textContent)")
        self.assertEqual(names, ["triton_poi_fused_add_0"])

    def test_timeline_answers_to_mouse_and_keys(self):
        page = self.open(self.big)
        page.evaluate("document.querySelector('#timeline').scrollIntoView()")
        left, top, width, _ = page.box("canvas")
        span = "epilogueTimeline.view.to - epilogueTimeline.view.from"
        whole = page.evaluate(span)
        x, y = left + width / 2, top + 24 + 20 + 9  # on the first row
        page.click(x, y)
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-480)
        self.assertAlmostEqual(page.evaluate(span) / whole, 0.25, places=2)
        for key in "www":
            page.key(key)
        self.assertAlmostEqual(page.evaluate(span) / whole, 0.25 / 1.25**3, places=2)
        before = page.evaluate("epilogueTimeline.view.from")
        page.key("d")
        self.assertGreater(page.evaluate("epilogueTimeline.view.from"), before)
        page.mouse("mousePressed", x, y, button="left", clickCount=1)
        page.mouse("mouseMoved", x + 200, y, button="left")
        page.mouse("mouseReleased", x + 200, y, button="left", clickCount=1)
        page.key("0")
        self.assertAlmostEqual(page.evaluate(span) / whole, 1, places=6)

    def test_a_kernel_leads_to_its_launch_and_op(self):
        page = self.open(self.big)
        page.evaluate("""(() => { const m = epilogueTimeline.model;
            window.kernel = m.columns.category.findIndex((_, i) => m.isWork(i) && m.name(i).startsWith("ampere"));
            epilogueTimeline.select(window.kernel); })()""")
        panel = page.evaluate("document.querySelector('.panel').innerText")
        for text in ("ampere_sgemm_128x64_tn", "launch call", "cudaLaunchKernel", "128x64"):
            self.assertIn(text, panel)
        page.evaluate("[...document.querySelectorAll('.panel .fields button')][0].click()")
        self.assertTrue(page.evaluate("epilogueTimeline.view.related.includes(window.kernel)"))

    def test_search_finds_every_event_of_a_name(self):
        page = self.open(self.big)
        page.evaluate("epilogueTimeline.search('aten::mm')")
        expected = page.evaluate("epilogueTimeline.model.columns.name.filter("
                                 "(id) => epilogueTimeline.model.strings[id] === 'aten::mm').length")
        self.assertGreater(expected, 100)
        self.assertEqual(page.evaluate("epilogueTimeline.found.length"), expected)
        page.evaluate("epilogueTimeline.nextMatch(1)")
        self.assertEqual(page.evaluate("epilogueTimeline.model.name(epilogueTimeline.view.selected)"), "aten::mm")

    def test_perfetto_gets_the_trace_after_its_pong(self):
        page = self.open(self.big)
        page.evaluate("""(() => { window.sent = [];
            window.target = { closed: false, postMessage: (m, origin) => window.sent.push([m, origin]) };
            window.open = (url) => { window.opened = url; return window.target; };
            document.getElementById("open-perfetto").click(); })()""")
        page.wait_for("window.sent.length > 1")
        self.assertEqual(page.evaluate("window.opened"), "https://ui.perfetto.dev")
        answer = """(() => { const e = new MessageEvent("message", { data: "PONG", origin: "%s" });
            Object.defineProperty(e, "source", { value: window.target }); window.dispatchEvent(e);
            return window.sent.filter(([m]) => m.perfetto).length; })()"""
        self.assertEqual(page.evaluate(answer % "https://evil.example"), 0)
        self.assertEqual(page.evaluate(answer % "https://ui.perfetto.dev"), 1)
        message = page.evaluate("""(() => { const [m, origin] = window.sent.at(-1);
            const bytes = new Uint8Array(m.perfetto.buffer);
            return [m.perfetto.fileName, origin, bytes[0], bytes[1]]; })()""")
        self.assertEqual(message, ["synthetic.json.gz", "https://ui.perfetto.dev", 0x1f, 0x8b])

    def test_real_traces_in_both_themes_and_on_a_phone(self):
        qwen = self.report(self.real("tracelens/h100_qwen_0.5b.json.gz"))
        for view in VIEWS:
            page = self.open(qwen, **view)
            self.assertIn("memory-bound", page.evaluate("document.getElementById('verdict').textContent"))
            self.assertGreater(self.pixels(page), 5)
            self.assertEqual(page.evaluate(MISPLACED % view.get("width", 1280)), [], view)
        for section in ("findings", "steps", "idle", "kernels", "gemms", "fusions", "memory", "averages"):
            self.assertTrue(page.evaluate(f"document.getElementById('{section}') !== null"), section)
        self.assertGreater(page.evaluate("document.querySelectorAll('#gemms circle').length"), 3)

    def test_more_real_traces_are_laid_out_well(self):
        for name in ("tracelens/mi300_vllm_graph_decode.json.gz", "tracelens/b200_vllm_gpt_oss.json.gz", "tracelens/h100_vit.json.gz",
                     "hta/a100_triton_example.json.gz", "tracelens/mi210_gpu_only.json.gz", "kineto/h100_format_2026.json"):
            with self.subTest(name):
                self.check_layout(self.report(self.real(name), "--modules"), ({}, PHONE))

    def test_a_long_name_does_not_widen_the_page(self):
        trace = product_trace("gemm_" + "bf16bf16_bf16f32_" * 12)
        page = self.check_layout(self.report(self.write("long.json", trace), "--title", "title_" * 30))
        self.assertIn("bf16bf16_bf16f32_", page.evaluate("document.querySelector('#verdict-more').innerText"))

    def test_axes_of_near_points_have_numbers(self):
        page = self.check_layout(self.report(self.write("near.json", product_trace("ampere_sgemm_128x64_tn"))))
        for numbers in page.evaluate(TICKS % "#gemms"):
            self.assertGreaterEqual(len(numbers), 1)
            self.assertEqual(len(numbers), len(set(numbers)))

    def test_tiny_numbers_of_an_axis_are_powers(self):
        page = self.open(self.big)
        ticks = page.evaluate("logTicks(2e-6, 3e4).map(tickNumber)")
        self.assertEqual(ticks, ["10\u207b\u2075", "10\u207b\u2074", "10\u207b\u00b3", "0.01", "0.1", "1", "10", "100", "1000", "10000"])
        self.assertEqual(page.evaluate("logTicks(2.5e-6, 7e-6).map(tickNumber)"), ["5\u00b710\u207b\u2076"])
        self.assertEqual(page.evaluate("logTicks(0.03, 0.3).map(tickNumber)"), ["0.05", "0.1", "0.2"])

    def test_types_of_one_peak_share_its_line(self):
        page = self.open(self.big)
        labels = page.evaluate("""samePeaks([["f32", 67], ["bf16", 989], ["", 67], ["bf16", 67], ["i32", 67.001],
            ["f32", 67]]).map(peakLabel)""")
        self.assertEqual([label.replace("\u00a0", " ") for label in labels], ["bf16 peak 989 TFLOP/s", "f32, bf16, i32 peak 67.0 TFLOP/s"])

    def test_a_page_without_a_device_has_no_figures_of_one(self):
        trace = os.path.join(HERE, "../../data/torch/mlp_geglu_rich_eager.json.gz")
        page = self.check_layout(self.report(trace))
        figures = "[...document.querySelectorAll('.figures dt')].map((dt) => dt.textContent)"
        self.assertEqual(page.evaluate(figures), ["Span", "Steps", "Ops", "Events"])
        self.assertIn("Device busy", self.open(self.big).evaluate(figures))

    def test_buttons_of_the_timeline_zoom(self):
        page = self.open(self.big)
        span = "epilogueTimeline.view.to - epilogueTimeline.view.from"
        button = "[...document.querySelectorAll('#timeline .table-bar button')].find((b) => b.textContent.trim() === '%s').click()"
        whole = page.evaluate(span)
        page.evaluate(button % "+")
        near = page.evaluate(span)
        self.assertLess(near, whole)
        page.evaluate(button % "\u2212")
        self.assertAlmostEqual(page.evaluate(span) / whole, 1, places=6)
        page.evaluate(button % "+")
        page.evaluate(button % "Fit")
        self.assertAlmostEqual(page.evaluate(span) / whole, 1, places=6)

    def test_every_button_does_something(self):
        folder = os.path.join(self.folder.name, "pressed")
        os.mkdir(folder)
        for rank in range(4):
            with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as f:
                json.dump(rank_trace(rank, 4), f)
        snapshot = os.path.join(self.folder.name, "pressed.html")
        subprocess.run([BINARY, "memory", SNAPSHOT, "--page", snapshot], check=True, stdout=subprocess.DEVNULL)
        for path in (self.report(os.path.join(HERE, "../../data/torch/train_stack_eager.json.gz")), self.report(folder), snapshot, self.big):
            pressed, dead = self.open(path).evaluate(PRESS)
            self.assertGreater(pressed, 10)
            self.assertLessEqual(set(dead), {"Fit"})  # all is shown already

    def test_a_memory_snapshot_has_a_curve_and_a_map(self):
        path = os.path.join(self.folder.name, "snapshot.html")
        subprocess.run([BINARY, "memory", SNAPSHOT, "--page", path], check=True, stdout=subprocess.DEVNULL)
        page = self.check_layout(path)
        self.assertGreater(page.evaluate("document.querySelectorAll('svg.plot path').length"), 4)
        self.assertGreater(self.pixels(page), 5)
        page = self.open(path)
        drawn = page.evaluate("""unpacked("data-report").then((bytes) => {
            const drawing = JSON.parse(new TextDecoder().decode(bytes)).snapshot[0];
            const texts = [];
            const draws = CanvasRenderingContext2D.prototype;
            const fillText = draws.fillText;
            draws.fillText = function (text, ...where) { texts.push(text); fillText.call(this, text, ...where); };
            snapshotMap(drawing);
            draws.fillText = fillText;
            return [texts, drawing.places]; })""")
        texts = [text.replace("\u00a0", " ") for text in drawn[0]]
        self.assertEqual([t for t in texts if t.startswith("event")][::4], ["event 0", f"event {drawn[1] - 1}"])
        self.assertEqual(sum(t.endswith("MiB") for t in texts), 4)
        # A pointer at the middle of the largest rectangle says which allocation it is.
        hover = page.evaluate("""unpacked("data-report").then((bytes) => {
            const drawing = JSON.parse(new TextDecoder().decode(bytes)).snapshot[0];
            const [begin, end, at, size] = drawing.lives.reduce((a, b) => ((a[1] - a[0]) * a[3] >= (b[1] - b[0]) * b[3] ? a : b));
            const canvas = document.querySelector("canvas");
            const box = canvas.getBoundingClientRect();
            const { left, right, top, bottom } = SNAPSHOT_PLOT;
            canvas.dispatchEvent(new MouseEvent("mousemove", {
                clientX: box.left + left + ((begin + end) / 2 / drawing.places) * (box.width - left - right),
                clientY: box.top + box.height - bottom - ((at + size / 2) / drawing.map_bytes) * (box.height - top - bottom) }));
            return [canvas.nextElementSibling.textContent, format.bytes(size), begin, end]; })""")
        self.assertTrue(hover[0].startswith(hover[1]), hover)
        self.assertTrue(hover[0].endswith(f"events {hover[2]} to {hover[3]}"), hover)
        # A narrower window does not cut the map off.
        page.call("Emulation.setDeviceMetricsOverride", width=700, height=900, deviceScaleFactor=1, mobile=False)
        self.assertLessEqual(page.box("canvas")[2], 700 - 28)

    def test_products_of_a_cpu_have_the_share_of_the_named_peak(self):
        trace = os.path.join(HERE, "../../data/torch/mlp_geglu_rich_eager.json.gz")
        cells = """[...document.querySelectorAll("#products tr")].map((row) =>
            [...row.querySelectorAll("th, td")].map((td) => td.textContent))"""
        page = self.open(self.report(trace, "--cpu", "Sapphire Rapids @ 2.0GHz", "--cpu-threads", "2"))
        head, first, *_ = page.evaluate(cells)
        self.assertEqual(first[head.index("Peak")], "9.2\u00a0%")
        self.assertIn("estimated from the CPU's name", page.evaluate("document.getElementById('products').innerText"))
        page = self.open(self.report(trace))
        self.assertNotIn("Peak", page.evaluate(cells)[0])
        for section in ("steps", "fusions", "chains"):
            heads = page.evaluate(f"document.getElementById('{section}').querySelector('thead').innerText")
            self.assertNotRegex(heads, "(?i)kernels|device|launch", section)
        self.assertIn("aten::gelu", page.evaluate("document.getElementById('host').innerText"))

    def test_critical_path_has_a_strip_and_a_table(self):
        page = self.open(self.report(self.real("tracelens/h100_qwen_0.5b.json.gz")))
        self.assertGreater(page.evaluate("document.querySelectorAll('#path rect').length"), 10)
        self.assertGreater(page.evaluate("document.querySelectorAll('#path tbody tr').length"), 5)
        self.assertIn("If it took half", page.evaluate("document.getElementById('path').innerText"))

    def test_the_kernels_table_says_where_a_triton_kernel_comes_from(self):
        trace = os.path.join(self.folder.name, "triton.json")
        with open(trace, "w", encoding="utf-8") as f:
            json.dump(triton_trace(), f)
        page = self.open(self.report(trace))
        rows = page.evaluate("""[...document.querySelectorAll("#kernels tbody tr")].map((row) =>
            [...row.querySelectorAll("td")].map((td) => td.textContent))""")
        cells = {row[0]: row[-2:] for row in rows}
        self.assertEqual(cells["triton_poi_fused_add_0"], ["/tmp/inductor/c1.py", "XBLOCK=16"])
        self.assertNotIn("/tmp/inductor/c1.py", cells["ampere_sgemm_128x64_tn"])
        page = self.open(self.big)
        heads = page.evaluate("document.getElementById('kernels').querySelector('thead').innerText")
        self.assertNotIn("Source", heads)

    def test_queues_rooflines_annotations_and_memory_are_there(self):
        page = self.open(self.report(self.real("tracelens/h100_qwen_0.5b.json.gz"), "--modules"))
        self.assertGreater(page.evaluate("document.querySelectorAll('#queues path.curve').length"), 0)
        self.assertGreater(page.evaluate("document.querySelectorAll('#rooflines circle').length"), 3)
        self.assertGreater(page.evaluate("document.querySelectorAll('#rooflines line.roof').length"), 0)
        self.assertGreater(page.evaluate("document.querySelectorAll('#ranges tbody tr').length"), 0)
        self.assertGreater(page.evaluate("document.querySelectorAll('#memory path.curve').length"), 0)
        self.assertIn("by the code that allocated it", page.evaluate("document.getElementById('memory').innerText"))

    def test_comparison_ends_where_it_should(self):
        page = self.open(self.report(self.real("sam/a100_optimised.json.gz"), "--against",
                                     self.real("sam/a100_eager.json.gz")))
        self.assertEqual(page.evaluate(MISPLACED % 1280), [])
        # Convolutions on matrix units and other ops of bf16 have a roof each, and no point lies above its roof.
        roofs = page.evaluate("[...document.querySelectorAll('#rooflines text')].map((t) => t.textContent).filter((t) => t.includes(' peak '))")
        self.assertEqual([roof.replace("\u00a0", " ").split(" peak ")[1] for roof in roofs], ["312 TFLOP/s", "19.5 TFLOP/s"])
        bars = page.evaluate("""[...document.querySelectorAll(".fall-bar")].map((b) => {
            const box = b.getBoundingClientRect(); return [box.left, box.right]; })""")
        self.assertGreater(len(bars), 5)
        # The last part ends where the bar of the time after does.
        self.assertTrue(min(abs(edge - bars[-1][1]) for edge in bars[-2]) < 3, bars[-2:])

    def test_every_number_of_the_ranks_is_on_their_page(self):
        folder = os.path.join(self.folder.name, "ranks")
        os.mkdir(folder)
        for rank in range(4):
            with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as f:
                json.dump(rank_trace(rank, 4), f)
        with open(os.path.join(folder, "notes.json"), "w", encoding="utf-8") as f:
            f.write("{}")
        path = self.report(folder)
        page = self.check_layout(path, ({}, PHONE))
        # The division's colours are named.
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#device-time .legend li')].map((li) => li.textContent)"),
                         ["Compute", "Memory", "Communication", "Idle"])
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.contents a')].map((a) => a.hash)"),
                         ["#findings", "#ranks", "#device-time", "#collectives", "#stragglers", "#kernels"])
        self.assertEqual(page.evaluate("document.getElementById('verdict').textContent"),
                         "rank 1 arrives last: rank 0 waits 921 us in collectives")
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        page.evaluate("document.querySelectorAll('.more').forEach((b) => b.click())")
        shown = page.evaluate("document.body.innerText").replace("\u00a0", " ")
        self.assertIn("notes.json: ", shown)
        self.assertIn("rank 1 is the last in 3 of 3 steps", shown)
        # Each number of the JSON, as the page writes its kind, is in some cell or finding.
        missing = page.evaluate("""unpacked("data-report").then((bytes) => {
            const ranks = JSON.parse(new TextDecoder().decode(bytes)).ranks;
            const cells = new Set([...document.querySelectorAll("td, dd")].map((cell) => cell.textContent));
            const lines = [...document.querySelectorAll("#findings li")].map((li) => li.textContent).join("\\n");
            const missing = [];
            const look = (value, path) => {
                if (value !== null && typeof value === "object") {
                    for (const [key, inner] of Object.entries(value)) look(inner, Array.isArray(value) ? path : [...path, key]);
                } else if (typeof value === "number" && path[0] !== "schema_version") {
                    const key = path.at(-1);
                    const text = key.endsWith("_us") ? format.us(value) : key.endsWith("_pct") ? format.percent(value)
                        : key.endsWith("_gb_per_s") ? format.bandwidth(value) : key === "bytes" ? format.bytes(value)
                        : format.count(value);
                    if (!cells.has(text) && !(path[0] === "findings" && lines.includes(text))) missing.push(path.join(".") + " " + text);
                }
            };
            look(ranks, []);
            return missing; })""")
        self.assertEqual([m for m in missing if not m.startswith("findings.saving_us")], [])

    def test_pages_of_ranks_link_to_each_other_wherever_they_lie(self):
        folder = os.path.join(self.folder.name, "linked")
        os.mkdir(folder)
        for rank in range(3):
            with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as f:
                json.dump(rank_trace(rank, 3), f)
        written = os.path.join(self.folder.name, "written")
        subprocess.run([BINARY, "report", folder, "--rank-pages", "-o", os.path.join(written, "100% #1?.html")],
                       check=True, stdout=subprocess.DEVNULL)
        moved = os.path.join(self.folder.name, "moved")
        os.rename(written, moved)
        page = self.open(os.path.join(moved, "100% #1?.html"))
        links = page.evaluate("[...document.querySelectorAll('#ranks tbody a')].map((a) => [a.textContent, a.href])")
        self.assertEqual([rank for rank, _ in links], ["0", "1", "2"])
        for rank, href in links:
            path = urllib.parse.unquote(urllib.parse.urlparse(href).path)
            of_rank = self.open(path)
            self.assertIn(f": rank {rank}", of_rank.evaluate("document.title"))
            back = of_rank.evaluate("document.querySelector('#actions a').href")
            self.assertEqual(urllib.parse.unquote(urllib.parse.urlparse(back).path), os.path.join(moved, "100% #1?.html"))

    def test_a_trace_without_events_has_a_page(self):
        trace = os.path.join(self.folder.name, "empty.json")
        with open(trace, "w", encoding="utf-8") as f:
            f.write('{"traceEvents": [], "schemaVersion": 1}')
        page = self.open(self.report(trace))
        self.assertIsNone(page.evaluate("document.querySelector('canvas')"))


if __name__ == "__main__":
    if browser.PROGRAM is None:
        print("skipped: no chromium on this machine")
        sys.exit(SKIPPED)
    unittest.main()
