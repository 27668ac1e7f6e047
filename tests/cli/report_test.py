"""Makes pages with `shunt report` and looks at them in Chromium. Usage: report_test.py PATH_TO_SHUNT [unittest arguments]"""
import json
import os
import re

from report_pages import WIDTHS, PageCase, ReportCase, main

EXPERTS, RANKS, LAYERS = 16, 4, 3


def figures(c_t, load, ms):
    return {"c_t": c_t, "c_t_node": c_t / 2, "load": load, "estimated_ms": ms}


def method(name, c_t, load, ms, rank_load, **layer_fields):
    """A method whose later layers are slightly better and whose held-out figures are slightly worse."""
    layers = [{"layer": layer, **figures(c_t - 0.1 * layer, load, ms), "rank_load": rank_load, **layer_fields,
               "held_out": figures(c_t - 0.1 * layer + 0.05, load, ms)} for layer in range(LAYERS)]
    return {"method": name, **figures(c_t, load, ms), "held_out": figures(c_t + 0.05, load + 0.01, ms + 0.1), "layers": layers}


def clustered(experts, clusters):
    """Co-activation of experts in the same cluster (equal numbers modulo `clusters`) only."""
    return [[0.8 if a % clusters == b % clusters else 0 for b in range(experts)] for a in range(experts)]


def place_report(**changes):
    by_rank = sorted(range(EXPERTS), key=lambda expert: (expert % RANKS, expert))
    report = {"shunt_report": 1, "verb": "place", "trace": "day.trace", "objective": "c_t", "experts": EXPERTS, "topk": 4, "layers": LAYERS,
              "nodes": 2, "ranks_per_node": 2, "cluster": "h100", "hidden": 7168, "dtype": "bf16", "replicas": 12.5, "load_limit": None, "holdout": 0.5,
              "methods": [method("contiguous", 3.0, 1.6, 2.0, [1.6, 0.8, 0.8, 0.8]),
                          method("shunt", 2.4, 1.1, 1.4, [1.1, 1.0, 1.0, 0.9], load_limit=1.15),
                          method("occult-greedy", 2.2, 1.4, 1.5, [1.4, 0.6, 1.0, 1.0])],
              "heat": [{"layer": 2, "co_activation": clustered(EXPERTS, RANKS), "before": list(range(EXPERTS)), "after": by_rank,
                        "rank_begin": [0, 4, 8, 12, 16]}],
              "a field of a later release": {"is": "ignored"}}
    return {**report, **changes}


def larger_report(experts, nodes, ranks_per_node, layers, copies):
    """A report of the largest size, with copies of experts on every rank."""
    ranks = nodes * ranks_per_node
    held = [sorted([*range(rank * experts // ranks, (rank + 1) * experts // ranks), *((rank * 7 + i) % experts for i in range(copies))])
            for rank in range(ranks)]
    begin = [sum(len(experts_of) for experts_of in held[:rank]) for rank in range(ranks + 1)]
    report = place_report(experts=experts, nodes=nodes, ranks_per_node=ranks_per_node, layers=layers)
    for each in report["methods"]:
        each["layers"] = [{**each["layers"][0], "layer": layer, "rank_load": [1 + (rank + layer) % 5 / 10 for rank in range(ranks)]} for layer in range(layers)]
    co_activation = [[round((a * b % 97) / 97, 4) for b in range(experts)] for a in range(experts)]
    report["heat"] = [{"layer": layer, "co_activation": co_activation, "before": list(range(experts)), "after": sum(held, []), "rank_begin": begin}
                      for layer in range(min(5, layers))]
    return report


class Report(ReportCase):
    def test_writes_beside_the_file_by_default(self):
        done = self.run_report(self.write(place_report()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"written to {self.path('place.html')}", done.stdout)
        self.assertEqual(self.run_report(self.path("place.json"), "-o", self.path("other.page")).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.folder)), ["other.page", "place.html", "place.json"])
        with open(self.path("place.html")) as page, open(self.path("other.page")) as other:
            self.assertEqual(page.read(), other.read())

    def test_page_is_self_contained(self):
        page = self.page_of(place_report())
        self.assertNotRegex(page, "https?://|@import|url\\(|<script|<link|<iframe")
        for target in re.findall(r'(?:href|src)="([^"]*)"', page):
            self.assertRegex(target, "^(#[a-z0-9]+|data:image/png;base64,[A-Za-z0-9+/]+=*)$")

    def test_works_without_contiguous_held_out_tokens_and_heat_maps(self):
        report = place_report(heat=[], holdout=None, load_limit=1.2)
        report["methods"] = report["methods"][1:]
        for each in report["methods"]:
            for row in [each, *each["layers"]]:
                del row["held_out"]
        page = self.page_of(report)
        self.assertIn("placed by shunt.", page)
        for absent in ["contiguous", "held-out", "no map was made", "data:image"]:
            self.assertNotIn(absent, page)

    def test_of_the_largest_models_stays_small(self):
        for shape in [(256, 8, 8, 61, 4), (700, 16, 16, 5, 1)]:
            with self.subTest(shape=shape):
                self.assertLess(len(self.page_of(larger_report(*shape))), 3_000_000)

    def test_help_explains_the_page(self):
        text = self.run_report("--help").stdout
        for word in ["FILE", "-o", "shunt place", "--json", "offline"]:
            self.assertIn(word, text)


class WrongReport(ReportCase):
    def expect_refused(self, content, expected):
        path = self.write(content)
        done = self.run_report(path)
        self.assertEqual(done.returncode, 1, expected)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(expected, done.stderr.replace(path, "FILE"))
        self.assertEqual(os.listdir(self.folder), ["place.json"])

    def test_file_that_is_no_report_is_refused(self):
        whole = json.dumps(place_report())
        for content, expected in [("", "FILE:1: no JSON"), (whole[:-20], "FILE:1: no JSON"), (whole.replace("0.8", "NaN", 1), "FILE:1: no JSON"),
                                  ("[1, 2]", "FILE: expected an object"), ('{"shunt_map": 1}', "FILE: no report of a shunt verb: shunt_report is missing"),
                                  (place_report(shunt_report=2), "FILE: shunt_report: version 2 of the format; this release reads 1"),
                                  (place_report(shunt_report="1"), "FILE: shunt_report: expected a whole number"),
                                  (place_report(verb="dance"), 'FILE: verb: "dance", expected place')]:
            with self.subTest(expected=expected):
                self.expect_refused(content, expected)

    def test_is_refused_for_each_key_that_is_missing_or_no_number(self):
        def walk(value, path):
            """Paths of all fields. For lists, only of the last entry: held-out figures are optional if the first method has none."""
            if isinstance(value, dict):
                for key, inner in value.items():
                    yield from walk(inner, [*path, key])
            elif isinstance(value, list) and value:
                yield from walk(value[-1], [*path, len(value) - 1])
            if path:
                yield path

        def name(path):
            return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]

        report = place_report()
        del report["a field of a later release"]
        optional = {"load_limit", "holdout"}
        for path in walk(report, []):
            if optional & set(map(str, path)) or len(path) == 1 and path[0] in ["shunt_report", "verb"]:
                continue
            for remove in [True, False]:
                broken = json.loads(json.dumps(report))
                parent = broken
                for step in path[:-1]:
                    parent = parent[step]
                if not remove:
                    parent[path[-1]] = None
                elif isinstance(path[-1], int):
                    continue  # another test covers lists that are too short
                else:
                    del parent[path[-1]]
                with self.subTest(path=name(path), remove=remove):
                    self.expect_refused(broken, f"FILE: {name(path)}: ")

    def test_that_contradicts_itself_is_refused(self):
        def broken(change):
            report = place_report()
            change(report)
            return report

        for change, expected in [
                (lambda r: r["methods"].clear(), "methods: 0 of them, expected 1 to 16"),
                (lambda r: r["methods"][1]["layers"].pop(), "methods[1].layers: 2 of them, but the report is about 3"),
                (lambda r: r["methods"][1]["layers"][2].update(layer=7), "methods[1].layers[2].layer: 7, but methods[0] has layer 2 there"),
                (lambda r: r["methods"][2]["layers"][0].update(rank_load=[1, 1]), "methods[2].layers[0].rank_load: 2 numbers, expected 4"),
                (lambda r: r["methods"][2]["layers"][0].update(load=-1), "methods[2].layers[0].load: expected a number from 0"),
                (lambda r: r["methods"][0].update(method=""), "methods[0].method: a name of 0 bytes"),
                (lambda r: r["heat"][0].update(layer=9), "heat[0].layer: 9, which no method has"),
                (lambda r: r["heat"][0]["co_activation"].pop(), "heat[0].co_activation: 15 rows, expected 16 (experts)"),
                (lambda r: r["heat"][0]["co_activation"][3].pop(), "heat[0].co_activation[3]: 15 numbers, expected 16"),
                (lambda r: r["heat"][0]["co_activation"][3].__setitem__(4, 1.5), "heat[0].co_activation[3][4]: expected a number from 0 to 1"),
                (lambda r: r["heat"][0]["after"].__setitem__(4, 16), "heat[0].after[4]: expected a whole number from 0 to 15"),
                (lambda r: r["heat"][0].update(rank_begin=[0, 8, 4, 12, 16]), "heat[0].rank_begin: expected positions that ascend from 0 to 16"),
                (lambda r: r["heat"][0].update(rank_begin=[0, 4, 8, 12, 15]), "heat[0].rank_begin: expected positions that ascend from 0 to 16"),
                (lambda r: r.update(nodes=4096, ranks_per_node=2), "nodes: 4096 nodes of 2 ranks, expected at most 4096"),
                (lambda r: r.update(objective="fun"), 'objective: "fun", expected c_t, time'),
                (lambda r: r.update(load_limit="low"), "load_limit: expected a number")]:
            with self.subTest(expected=expected):
                self.expect_refused(broken(change), "FILE: " + expected)

    def test_unusable_files_and_targets_are_refused(self):
        report = self.write(place_report())
        huge = self.path("huge.json")
        with open(huge, "w") as file:
            file.truncate((64 << 20) + 1)
        for arguments, expected in [([self.path("missing.json")], "missing.json: can't be opened: No such file"), ([self.folder], "no regular file"),
                                    ([huge], "huge.json: 67108865 bytes, expected at most 67108864"),
                                    ([report, "-o", self.path("no/folder.html")], "can't write"), ([report, "-o", self.folder], "can't write"),
                                    ([report, "-o", report], "the page would replace the report")]:
            with self.subTest(arguments=arguments):
                done = self.run_report(*arguments)
                self.assertEqual(done.returncode, 1)
                self.assertIn(expected, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["huge.json", "place.json"])
        self.assertNotEqual(self.run_report().returncode, 0)


class Page(PageCase):
    def test_shows_the_figures(self):
        seen = self.measure(self.page_of(place_report()), 1400)
        for text in ["16 experts on 2 nodes × 2 ranks", "CT is 19.7 % lower and the estimated time 28.6 % lower", "3.050 → 2.450", "2.100 → 1.500",
                     "1.610 → 1.110", "occult-greedy", "0 of 3", "3 of 3", "limit 1.150", "day.trace", "hidden 7168, bf16", "12.5 % more expert copies",
                     "50 % of the tokens", "0.0 % of co-activation is between experts of one rank",
                     "100.0 % of co-activation is between experts of one rank"]:
            self.assertIn(text, seen["text"])
        self.assertEqual(len(seen["names"]), 5)
        for title, description in seen["names"]:
            self.assertTrue(title and description)

    def test_fits_narrow_and_wide_windows_in_both_schemes(self):
        for report in [place_report(), larger_report(256, 8, 8, 61, 4), place_report(trace="x" * 300)]:
            page = self.page_of(report)
            for width in WIDTHS:
                for dark in [False, True]:
                    with self.subTest(width=width, dark=dark):
                        seen = self.measure(page, width, dark)
                        self.assertEqual(seen["width"], width)
                        self.assertEqual(seen["needed"], width)
                        self.assertEqual(seen["dark"], dark)
                        self.assertEqual(seen["faint"], [])
                        self.assertGreater(min(seen["series"]), 3)
                        self.assertGreaterEqual(seen["font"], 11)
                        self.assertTrue(seen["charts"] and seen["heat"])
                        for _, _, *size in seen["charts"] + seen["heat"]:
                            self.assertGreater(min(size), 200)

    def test_heat_maps_show_the_matrix_in_both_orders(self):
        page = self.page_of(place_report())
        orders = [place_report()["heat"][0][key] for key in ["before", "after"]]
        for width in WIDTHS:
            seen = self.measure(page, width)
            picture = self.screenshot(width, seen["height"])
            for order, (left, top, across, down) in zip(orders, seen["heat"], strict=True):
                self.assertAlmostEqual(across, down, delta=1)
                for row, a in enumerate(order):
                    for column, b in enumerate(order):
                        # Lines run only between cells, so sample inside a cell.
                        colour = picture.getpixel((int(left + (column + 0.4) * across / EXPERTS), int(top + (row + 0.4) * down / EXPERTS)))
                        self.assertEqual(colour, (252, 253, 191) if a != b and a % RANKS == b % RANKS else (6, 5, 18), (width, a, b))

    def test_bars_and_limit_have_the_right_height(self):
        seen = self.measure(self.page_of(place_report()), 1400)
        self.assertEqual(len(seen["bars"]), 2 * RANKS)
        loads = {f"{each['method']}, rank {rank}: {load:.3f}": load for each in place_report()["methods"] for rank, load in enumerate(each["layers"][2]["rank_load"])}
        _, top, _, height = max((bar[1:] for bar in seen["bars"]), key=lambda bar: bar[3])
        for name, left, bar_top, width, bar_height in seen["bars"]:
            self.assertGreater(width, 10)
            self.assertAlmostEqual(bar_height / height, loads[name] / 1.6, delta=0.01)
            self.assertAlmostEqual(bar_top + bar_height, top + height, delta=1)
            self.assertEqual(bar_top < seen["limit"][1], loads[name] > 1.15)
        self.assertEqual(len({round(bar[1]) for bar in seen["bars"]}), 2 * RANKS)  # beside each other

    def test_points_and_lines_have_the_right_height(self):
        seen = self.measure(self.page_of(place_report()), 1400)
        self.assertEqual(len(seen["marks"]), 3 * LAYERS)
        self.assertEqual(len(seen["lines"]), 3)
        self.assertTrue(all(width > 100 and height > 10 for _, _, width, height in seen["lines"]))
        heights = {round(top + height / 2): float(name.rsplit(": ", 1)[1]) for name, _, top, _, height in seen["marks"]}
        values = [heights[at] for at in sorted(heights)]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertIn("contiguous, layer 1: 2.950", [mark[0] for mark in seen["marks"]])

    def test_follows_the_preferred_colour_scheme(self):
        self.page_of(place_report())
        for dark in [False, True]:
            corner = self.screenshot(360, 400, dark).getpixel((2, 2))
            self.assertEqual(max(corner) < 60, dark, corner)

    def test_shows_names_literally_and_runs_none_of_them(self):
        name = "<script>document.title=1</script><img src=x:y onerror=alert(1)>&amp;\"'\n\u2713"
        report = place_report(trace=name, cluster=name, dtype=name)
        report["methods"][1]["method"] = name
        report["methods"][2]["method"] = "shunt"
        seen = self.measure(self.page_of(report), 1400)
        self.assertIn(name.replace("\n", "?"), seen["text"])
        self.assertNotIn("img", seen["elements"])
        self.assertEqual(self.page_of(report).count("<script"), 0)


if __name__ == "__main__":
    main()
