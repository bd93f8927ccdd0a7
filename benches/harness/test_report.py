"""Tests of the figures: python3 -m unittest discover -s benches/harness -t benches"""

import json
import tempfile
import unittest
from pathlib import Path
from xml.dom import minidom

from . import page, plots, tables
from .pairing import Results


def row(label, number, rps, **more):
    return {"label": label, "mode": "passthrough", "concurrency": 32, "round": number, "rps": rps, "errors": 0, **more}


class Pairing(unittest.TestCase):
    def setUp(self):
        # In the second round a neighbour took half of the machine, from both.
        rates = [("nginx", [100, 50, 110]), ("raincheck", [70, 36, 76])]
        rows = [row(label, number, rate) for label, all in rates for number, rate in enumerate(all, 1)]
        self.results = Results({}, rows)

    def test_ratios_are_taken_inside_each_round(self):
        ratios = self.results.ratios("raincheck", "nginx", 32, "rps")
        self.assertEqual([round(ratio, 2) for ratio in ratios], [0.7, 0.72, 0.69])
        self.assertAlmostEqual(self.results.ratio("raincheck", "nginx", 32, "rps"), 0.7)
        self.assertEqual(self.results.added("raincheck", "nginx", 32, "rps"), -30)

    def test_medians_are_over_the_rounds(self):
        self.assertEqual(self.results.median("raincheck", 32, "rps"), 70)
        self.assertIsNone(self.results.median("raincheck", 64, "rps"))

    def test_a_round_that_lacks_one_side_is_left_out(self):
        rows = [line for line in self.results.rows if (line["label"], line["round"]) != ("nginx", 1)]
        self.assertEqual(len(Results({}, rows).ratios("raincheck", "nginx", 32, "rps")), 2)

    def test_lines_without_rounds_and_headers_are_read_in_their_order(self):
        lines = [{key: value for key, value in line.items() if key != "round"} for line in self.results.rows]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "passthrough.jsonl"
            file.write_text("\n".join(map(json.dumps, lines)))
            self.assertEqual(Results.read(file).ratios("raincheck", "nginx", 32, "rps")[1], 0.72)
            file.write_text('{"plan":"passthrough"}\n' + file.read_text())
            self.assertEqual(Results.read(file).header, {"plan": "passthrough"})


class Page(unittest.TestCase):
    def test_only_what_is_between_the_markers_changes(self):
        begin, end = page.markers("sse")
        text = f"before\n{begin}\nold\n{end}\nafter"
        self.assertEqual(page.replaced(text, "sse", "new"), f"before\n{begin}\nnew\n{end}\nafter")
        self.assertIsNone(page.replaced("no markers", "sse", "new"))

    def test_the_base_of_a_table_says_its_rate(self):
        lines = tables.calls(Results({}, [row("nginx", 1, 5000), row("raincheck", 1, 4000)])).splitlines()
        self.assertIn("| nginx | 1 = 5,000/s |", lines[2])
        self.assertIn("| raincheck | 0.80 |", lines[3])

    def test_a_plot_is_well_formed(self):
        bar = plots.Bar("a < b", 0.5, [0.4, 0.6], "0.50")
        parsed = minidom.parseString(plots.bars("title & more", [("1 connection", [bar])]))
        self.assertEqual(len(parsed.getElementsByTagName("circle")), 2)


if __name__ == "__main__":
    unittest.main()
