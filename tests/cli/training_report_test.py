"""Makes pages of training runs with `shunt report` and looks at them in Chromium. Usage: training_report_test.py PATH_TO_SHUNT [unittest arguments]"""
import base64
import copy
import hashlib
import html
import json
import os
import re

from report_pages import WIDTHS, PageCase, ReportCase, main

STEPS = 12
OPTIONAL = ["shuffle", "placement", "prune", "exposed_comm_ms", "products_ms", "other_compute_ms", "cross_node_bytes", "predicted_step_ms", "losses",
            "held_out", "timeline", "traffic"]
CHARTS = {"loss-by-step": ["losses", "held_out"], "loss-by-time": ["held_out"], "timeline": ["timeline"], "traffic-0": ["traffic"]}
MARKUP = "</script><script>document.title=1</script><!--<img src=x:y onerror=alert(1)>&amp;\"'"


def lanes(delay):
    """Six spans: two layers that compute 1 ms, communicate for `delay` and compute 0.5 ms."""
    spans, now = [], 100.0
    for layer in range(2):
        for lane, op, length in [("compute", "attention", 1.0), ("comm", "dispatch", delay), ("compute", "experts", 0.5)]:
            spans.append({"lane": lane, "op": op, "layer": layer, "phase": ["forward", "backward"][layer], "begin_ms": now, "end_ms": now + length})
            now += length
    return spans


def run(schedule, step_ms, delay, **changes):
    return {"schedule": schedule, "shuffle": "fused", "placement": "contiguous", "prune": 2, "step_ms": step_ms, "exposed_comm_ms": 2 * delay,
            "products_ms": 2.0, "other_compute_ms": 1.0, "cross_node_bytes": 4_000_000, "predicted_step_ms": step_ms - 0.25,
            "losses": [8 - 0.5 * step for step in range(STEPS)],
            "held_out": [{"step": step, "bits_per_byte": 8 - 0.5 * step, "seconds": step * step_ms / 1e3} for step in [0, 6, STEPS]],
            "timeline": {"measured": lanes(delay), "predicted": lanes(delay / 2)}, "traffic": {"rows": [[9, 0], [8, 9]]}, "of a later release": {}, **changes}


def training(**changes):
    return {"config": {"model": "bytes", "ranks": 2, "batch": 16, "sequence": 64, "steps": STEPS, "seed": 7, "corpus": "notes.txt", "warm": True},
            "runs": [run("plain", 8.0, 2.0), run("shunt", 4.0, 0.5)], **changes}


def without(*keys):
    report = training()
    for each in report["runs"]:
        for key in keys:
            del each[key]
    return report


def long_timeline(spans):
    """Compute and communication at the same time, half of the spans each."""
    return [{"lane": ["compute", "comm"][i % 2], "op": f"op {i % 40}", "layer": i % 24, "phase": "forward", "begin_ms": (i // 2) * 0.25,
             "end_ms": (i // 2) * 0.25 + 0.2} for i in range(spans)]


def chart_ids(page):
    return set(re.findall(r'<(?:svg|figure) class="[^"]*"[^>]* id="([^"]+)"', page))


class Training(ReportCase):
    def test_a_page_has_the_charts_that_the_file_has_data_for(self):
        everything = {"step-time", *CHARTS, "traffic-1"}
        self.assertEqual(chart_ids(self.page_of(training())), everything)
        for keys in [["losses"], ["held_out"], ["losses", "held_out"], ["timeline"], ["traffic"], OPTIONAL]:
            with self.subTest(without=keys):
                absent = {chart for chart, needed in CHARTS.items() if set(needed) <= set(keys)}
                page = self.page_of(without(*keys))
                self.assertEqual(chart_ids(page), everything - absent - ({"traffic-1"} if "traffic" in keys else set()))
                self.assertEqual("<script" in page, "timeline" not in keys)

    def test_needs_nothing_but_schedules_and_step_times(self):
        page = self.page_of({"runs": [{"schedule": "plain", "step_ms": 3.5}]})
        self.assertEqual(chart_ids(page), {"step-time"})
        self.assertIn("1 training run", page)
        self.assertNotIn("ratio</th>", page)

    def test_a_null_figure_is_left_out(self):
        report = training()
        for each in report["runs"]:
            each["predicted_step_ms"] = None
        self.assertNotIn("predicted step", self.page_of(report))

    def test_runs_are_compared_with_the_first(self):
        page = html.unescape(self.page_of(training()))
        self.assertIn("Of 2 runs, shunt is the fastest: its step time is 4.000 ms, 50.0 % lower than that of plain.", page)
        cells = re.findall(r"<td>(.*?)</td>", page[page.index('<tr class="marked"'):].split("</tr>")[0])
        self.assertEqual(cells, ["4.000", "0.500", "1.000", "0.250", "2.000", "1.000", "1.000", "1.000", "4.000", "1.000", "3.750", "2.0000", "0.04800"])

    def test_several_files_share_a_page_and_name_their_runs(self):
        files = [self.write(training(), "a.json"), self.write(training(config={"model": "larger"}), "b.json")]
        done = self.run_report(*files)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.html", "a.json", "b.json"])
        with open(self.path("a.html")) as file:
            page = file.read()
        for name in ["a.json: plain", "a.json: shunt", "b.json: plain", "b.json: shunt"]:
            self.assertIn(f'<th scope="row">{name}</th>', page)
        self.assertIn("<td>bytes</td><td>larger</td>", page)
        os.mkdir(self.path("folder"))
        same = self.write(training(), "folder/a.json")
        self.assertEqual(self.run_report(files[0], same, "-o", self.path("page.html")).returncode, 0)
        with open(self.path("page.html")) as file:
            self.assertIn(html.escape(f"{same}: plain"), file.read())

    def test_runs_are_named_by_what_they_differ_in(self):
        runs = [run("shunt", 3, 1), run("shunt", 3, 1, placement="topics.map"), run("shunt", 3, 1, shuffle="unfused", prune=1), run("shunt", 3, 1)]
        names = re.findall(r'<th scope="row">(shunt[^<]*)</th>', self.page_of(training(runs=runs)))
        self.assertEqual(names, ["shunt, fused, contiguous, prune 2", "shunt, fused, topics.map, prune 2", "shunt, unfused, contiguous, prune 1",
                                 "shunt, fused, contiguous, prune 2 (2)"])

    def test_a_page_loads_nothing_and_allows_one_script(self):
        page = self.page_of(training())
        self.assertNotRegex(page, "https?://|@import|url\\(|<link|<iframe|eval\\(|innerHTML")
        scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        self.assertEqual((len(scripts), page.count("<script")), (1, 2))
        digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
        self.assertIn(f"content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'\"", page)

    def test_losses_of_a_resumed_run_end_at_its_last_evaluation(self):
        runs = [run("plain", 8, 2, losses=[8, 7, 6, 5, 4, 3], held_out=[{"step": 12, "bits_per_byte": 3}])]
        chart = re.search('id="loss-by-step".*?</figure>', self.page_of(training(runs=runs)), re.DOTALL)[0]
        self.assertEqual(re.findall(r'text-anchor="middle">(\d+)<', chart), ["7", "8", "9", "10", "11", "12"])

    def test_names_are_escaped(self):
        report = training(config={"model": MARKUP, MARKUP: MARKUP}, runs=[run(MARKUP, 3, 1, placement=MARKUP), run("plain", 3, 1, placement="x")])
        report["runs"][0]["timeline"]["measured"][0]["op"] = MARKUP
        page = self.page_of(report)
        self.assertEqual((page.count("<script"), page.count("</script"), page.count("<img")), (2, 2, 0))
        data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])
        self.assertIn(MARKUP, data["ops"])

    def test_pages_of_long_timelines_and_runs_stay_small(self):
        losses = [8 - step / 1e5 for step in range(100_000)]
        runs = [run("plain", 5, 1, losses=losses, timeline={"measured": long_timeline(20_000)})]
        self.assertLess(len(self.page_of(training(runs=runs))), 1_000_000)

    def test_spans_that_overlap_get_rows_of_their_own(self):
        spans = [{"lane": "comm", "begin_ms": begin, "end_ms": begin + 2} for begin in [3, 0, 1, 2]]
        page = self.page_of(training(runs=[run("plain", 5, 1, timeline={"measured": spans})]))
        data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])
        rows = data["groups"][0]["lanes"][0]["rows"]
        self.assertEqual([row["begin"] for row in rows], [[0, 2_000_000], [1_000_000, 3_000_000]])

    def test_help_explains_training_runs(self):
        text = self.run_report("--help").stdout
        for word in ["shunt train", "loss curves", "timeline", "several files"]:
            self.assertIn(word, text)


class WrongTraining(ReportCase):
    def expect_refused(self, content, expected):
        path = self.write(content, "train.json")
        done = self.run_report(path)
        self.assertEqual(done.returncode, 1, expected)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(expected, done.stderr.replace(path, "FILE"))
        self.assertEqual(os.listdir(self.folder), ["train.json"])

    def test_each_value_of_a_wrong_type_is_named(self):
        def walk(value, path):
            """Paths of all values; of lists the last entry only."""
            if path:
                yield path
            steps = value if isinstance(value, dict) else [len(value) - 1] if isinstance(value, list) else []
            for step in steps:
                yield from walk(value[step], [*path, step])

        report = training()
        del report["config"]["corpus"], report["config"]["warm"]
        for each in report["runs"]:
            del each["of a later release"]
        for path in walk(report, []):
            broken = copy.deepcopy(report)
            parent = broken
            for step in path[:-1]:
                parent = parent[step]
            parent[path[-1]] = 7 if isinstance(parent[path[-1]], (dict, list, str)) else "seven"
            name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
            with self.subTest(path=name):
                self.expect_refused(broken, f"FILE: {name}: expected")

    def test_required_keys_are_named(self):
        for key in ["schedule", "step_ms"]:
            self.expect_refused(without(key), f"FILE: runs[0].{key}: is missing")
        for key in ["lane", "begin_ms", "end_ms"]:
            report = training()
            del report["runs"][1]["timeline"]["predicted"][3][key]
            self.expect_refused(report, f"FILE: runs[1].timeline.predicted[3].{key}: is missing")
        for key in ["step", "bits_per_byte"]:
            report = training()
            del report["runs"][1]["held_out"][2][key]
            self.expect_refused(report, f"FILE: runs[1].held_out[2].{key}: is missing")

    def test_values_that_make_no_sense_are_refused(self):
        for change, expected in [
                (lambda r: r["runs"].clear(), "runs: 0 of them, expected 1 to 64"),
                (lambda r: r.update(runs=[run("plain", 3, 1)] * 65), "runs: 65 of them, expected 1 to 64"),
                (lambda r: r["runs"][1].update(step_ms=-1), "runs[1].step_ms: expected a number from 0"),
                (lambda r: r["runs"][1].update(schedule="x" * 201), "runs[1].schedule: a name of 201 bytes, expected at most 200"),
                (lambda r: r["runs"][1].update(cross_node_bytes=1.5), "runs[1].cross_node_bytes: expected a whole number"),
                (lambda r: r["runs"][1]["losses"].__setitem__(3, -1), "runs[1].losses[3]: expected a number from 0"),
                (lambda r: r["runs"][1]["timeline"]["measured"][2].update(end_ms=1), "runs[1].timeline.measured[2].end_ms: 1, but the span begins at"),
                (lambda r: r["runs"][1]["timeline"]["measured"][2].update(lane="disk"), 'runs[1].timeline.measured[2].lane: "disk", expected compute, comm'),
                (lambda r: r["runs"][1]["timeline"]["measured"][2].update(phase="up"), 'runs[1].timeline.measured[2].phase: "up", expected forward'),
                (lambda r: r["runs"][1]["traffic"].update(rows=[[1, 2], [3]]), "runs[1].traffic.rows[1]: 1 numbers, expected 2"),
                (lambda r: r["runs"][1]["traffic"].update(rows=[[1, 2, 3], [3, 4, 5]]), "runs[1].traffic.rows[0]: 3 numbers, expected 2"),
                (lambda r: r["runs"][1]["traffic"].update(rows=[[1, 2], [3, -4]]), "runs[1].traffic.rows[1][1]: expected a whole number"),
                (lambda r: r["config"].update(ranks=2.5), "config.ranks: expected a whole number")]:
            report = training()
            change(report)
            with self.subTest(expected=expected):
                self.expect_refused(report, "FILE: " + expected)

    def test_other_reports_do_not_share_a_page(self):
        files = [self.write(training(), "train.json"), self.write({"shunt_report": 1, "verb": "place"}, "place.json")]
        done = self.run_report(*files)
        self.assertEqual(done.returncode, 1)
        self.assertIn("place.json: runs is missing; only reports of training runs share a page", done.stderr)
        done = self.run_report(files[0], files[0], "-o", files[0])
        self.assertIn("the page would replace the report", done.stderr)


# Every drawing happens at once, so that a script sees what its events cause.
AT_ONCE = "<script>window.requestAnimationFrame = draw => draw();</script>"

# Sends events to the timeline, and says what it and the other charts show.
LOOK = """<script>
const canvas = document.querySelector("canvas"), tip = document.querySelector(".tip"), context = canvas.getContext("2d");
const place = canvas.getBoundingClientRect();
canvas.setPointerCapture = () => {};
const view = () => [Number(canvas.dataset.from), Number(canvas.dataset.to), Number(canvas.dataset.drawn)];
const send = (type, name, x, y, more) => canvas.dispatchEvent(new type(name, {
  clientX: place.left + x, clientY: place.top + y, button: 0, pointerId: 1, pointerType: "mouse", cancelable: true, ...more }));
const drag = (from, to, more) => { send(PointerEvent, "pointerdown", from, 40, more); send(PointerEvent, "pointermove", to, 40, more); send(PointerEvent, "pointerup", to, 40, more); return view(); };
const press = action => { document.querySelector(`[data-action=${action}]`).click(); return view(); };
const key = name => { canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, cancelable: true })); return view(); };
const wheel = (x, deltaY, more) => { const isPageScrolled = send(WheelEvent, "wheel", x, 40, { deltaY, ...more }); return [...view(), isPageScrolled]; };
const tipAt = (x, y) => { send(PointerEvent, "pointermove", x, y); return tip.hidden ? null : tip.textContent; };
const pixel = (x, y) => [...context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data];
const measured = { width: canvas.clientWidth, data: { ...canvas.dataset }, seen: (STEPS) };
const out = document.createElement("pre");
out.id = "measured";
out.textContent = JSON.stringify(measured);
parent.document.body.append(out);
</script>"""

# Left of the plot, and right of it; the middle of the first two rows.
GUTTER, EDGE, COMPUTE, COMM = 74, 8, 34, 58


class TrainingPage(PageCase):
    def look(self, page, steps, width=1400):
        """Evaluates a JavaScript expression in the page."""
        return self.measure(page, width, first=AT_ONCE, last=LOOK.replace("STEPS", steps))

    def test_the_page_as_it_is_draws_all_charts(self):
        page = self.page_of(training())
        dom = self.chromium(1400, 1000, False, "--dump-dom", "file://" + self.path("page.html"))
        canvas = re.search(r"<canvas[^>]*>", dom)[0]
        for name, value in {"groups": 4, "rows": 8, "spans": 24, "drawn": 24, "from": 0}.items():
            self.assertIn(f'data-{name}="{value}"', canvas)
        self.assertAlmostEqual(float(re.search(r'data-to="([^"]*)"', canvas)[1]), 7)
        by_step, by_time, bars = (re.search(f'<svg[^>]* id="{name}".*?</figure>', dom, re.DOTALL)[0] for name in ["loss-by-step", "loss-by-time", "step-time"])
        for svg, points in [(by_step, STEPS), (by_time, 3)]:
            self.assertEqual([len(line.split()) for line in re.findall(r'<polyline points="([^"]*)"', svg)], [points] * 2)
            self.assertEqual(len(re.findall(r'<use href="#m[01]"', svg)), 6)
        self.assertEqual((bars.count("<rect"), bars.count('href="#tick"')), (4 + 3, 2))
        self.assertEqual(page.count('class="heat"'), 2)
        self.assertEqual(dom.count("data:image/png"), 2)

    def test_bars_have_the_lengths_of_the_causes(self):
        seen = self.measure(self.page_of(training()), 1400)
        widths = {name: width for name, _, _, width, _ in seen["bars"]}
        unit = widths["plain: 8.000 ms, products: 2.000"] / 2
        self.assertGreater(unit, 50)
        for run_name, lengths in {"plain: 8.000 ms": [2, 1, 4, 1], "shunt: 4.000 ms": [2, 1, 1, None]}.items():
            for part, length in zip(["products", "other compute", "exposed communication", "rest"], lengths):
                if length:
                    self.assertAlmostEqual(widths[f"{run_name}, {part}: {length:.3f}"], length * unit, delta=1)
        self.assertEqual(len({round(bar[2]) for bar in seen["bars"]}), 2)

    def test_the_curve_is_the_mean_of_losses_around_each_step(self):
        runs = [run("plain", 8, 2, losses=[4 + step % 2 for step in range(400)], held_out=[])]
        page = self.page_of(training(runs=runs))
        self.assertIn("means of 11 steps", page)
        self.assertEqual(len(re.search(r'<polyline points="([^"]*)"', page)[1].split()), 400)
        axis = [float(number) for number in re.findall(r'text-anchor="end">([^<]*)<', page)]
        self.assertGreater(min(axis), 4.3)
        self.assertLess(max(axis), 4.7)

    def test_spans_are_drawn_where_they_were_executed(self):
        xs = {"attention": 0.5, "dispatch": 2.1, "experts": 3.25, "backward": 4.0}
        at = {name: f"{GUTTER} + {time} / 7 * (canvas.clientWidth - {GUTTER + EDGE})" for name, time in xs.items()}
        seen = self.look(self.page_of(training()), f"""{{
            forward: pixel({at["attention"]}, {COMPUTE} - 8), idle: pixel({at["dispatch"]}, {COMPUTE}), comm: pixel({at["dispatch"]}, {COMM} - 8),
            backward: pixel({at["backward"]}, {COMPUTE} - 8), none: pixel({at["experts"]}, {COMM}),
            tips: [tipAt({at["attention"]}, {COMPUTE}), tipAt({at["dispatch"]}, {COMM}), tipAt({at["dispatch"]}, {COMPUTE})] }}""")["seen"]
        self.assertEqual((seen["forward"], seen["comm"]), ([0x1d, 0x6f, 0xd1, 255],) * 2)
        self.assertEqual(seen["backward"], [0x65, 0x34, 0xc9, 255])
        self.assertEqual((seen["idle"][3], seen["none"][3]), (0, 0))
        self.assertEqual(seen["tips"], ["attention, layer 0, forward\n0.0000 to 1.0000 ms (1.0000 ms)\nplain, measured, compute",
                                        "dispatch, layer 0, forward\n1.0000 to 3.0000 ms (2.0000 ms)\nplain, measured, comm", None])

    def test_the_timeline_zooms_and_moves(self):
        half = f"{GUTTER} + (canvas.clientWidth - {GUTTER + EDGE}) / 2"
        seen = self.look(self.page_of(training()), f"""{{
            start: view(), out: wheel({half}, 100), closer: press("in"), later: press("right"), end: press("right"), whole: press("all"),
            selected: drag({GUTTER}, {half}), moved: drag({half}, {GUTTER}, {{ shiftKey: true }}), twice: (send(MouseEvent, "dblclick", 200, 40), view()),
            wheeled: wheel({half}, -100), sideways: wheel({half}, 0, {{ deltaX: 100 }}), plus: key("+"), minus: key("-"), home: key("Home"), none: key("x"),
            deepest: Array.from({{ length: 60 }}, () => press("in")).pop() }}""")["seen"]

        def expect(name, begin, end):
            self.assertAlmostEqual(seen[name][0], begin, 2, name)
            self.assertAlmostEqual(seen[name][1], end, 2, name)

        for name, begin, end in [("start", 0, 7), ("out", 0, 7), ("closer", 1.75, 5.25), ("later", 3.15, 6.65), ("end", 3.5, 7), ("whole", 0, 7),
                                 ("selected", 0, 3.5), ("moved", 1.75, 5.25), ("twice", 0, 7), ("home", 0, 7), ("none", 0, 7)]:
            expect(name, begin, end)
        self.assertTrue(seen["out"][3])
        self.assertFalse(seen["wheeled"][3])
        width = seen["wheeled"][1] - seen["wheeled"][0]
        self.assertLess(width, 6)
        self.assertAlmostEqual(seen["wheeled"][0] + seen["wheeled"][1], 7, 2)
        self.assertGreater(seen["sideways"][0], seen["wheeled"][0])
        self.assertAlmostEqual(seen["plus"][1] - seen["plus"][0], width / 2, 2)
        self.assertAlmostEqual(seen["minus"][1] - seen["minus"][0], width, 2)
        self.assertLess(seen["closer"][2], 24)
        self.assertGreater(seen["deepest"][1], seen["deepest"][0])

    def test_long_timelines_are_drawn_in_proportion_to_pixels(self):
        runs = [run("plain", 5, 1, timeline={"measured": long_timeline(20_000)})]
        seen = self.look(self.page_of(training(runs=runs)), """{ whole: view(), close: Array.from({ length: 8 }, () => press("in")).pop() }""")
        self.assertEqual(seen["data"]["spans"], "20000")
        self.assertGreater(seen["seen"]["whole"][2], seen["width"])
        self.assertLess(seen["seen"]["whole"][2], 2 * 2 * seen["width"])
        begin, end, drawn = seen["seen"]["close"]
        self.assertAlmostEqual(drawn, 2 * (end - begin) / 0.25, delta=4)

    def test_fits_narrow_and_wide_windows_in_both_schemes(self):
        many = [run("x" * 200, 3, 1), *(run("shunt", 3, 1, placement=f"{i}.map") for i in range(11))]
        for report in [training(), training(runs=many, config={"model": "y" * 200})]:
            page = self.page_of(report)
            for width in WIDTHS:
                for dark in [False, True]:
                    with self.subTest(width=width, dark=dark, runs=len(report["runs"])):
                        seen = self.measure(page, width, dark)
                        self.assertEqual((seen["width"], seen["needed"], seen["dark"]), (width, width, dark))
                        self.assertEqual(seen["faint"], [])
                        self.assertGreater(min(seen["series"]), 3)
                        self.assertGreaterEqual(seen["font"], 11)
                        self.assertEqual((len(seen["charts"]), len(seen["canvases"])), (3, 1))
                        for _, _, *size in seen["charts"] + seen["heat"] + seen["canvases"]:
                            self.assertGreater(min(size), 150)
                        for title, description in seen["names"]:
                            self.assertTrue(title and description)

    def test_shows_names_literally_and_runs_none_of_them(self):
        report = training(runs=[run(MARKUP, 3, 1)], config={"model": MARKUP, "corpus": MARKUP})
        report["runs"][0]["timeline"]["measured"][0]["op"] = MARKUP
        page = self.page_of(report)
        seen = self.measure(page, 1400)
        self.assertGreater(seen["text"].count(MARKUP), 2)
        self.assertNotIn("img", seen["elements"])
        x = f"{GUTTER} + 0.5 / 4 * (canvas.clientWidth - {GUTTER + EDGE})"
        tip = self.look(page, f"tipAt({x}, {COMPUTE})")["seen"]
        self.assertTrue(tip.startswith(MARKUP + ", layer 0"), tip)


if __name__ == "__main__":
    main()
