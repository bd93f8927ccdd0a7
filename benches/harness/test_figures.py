"""Tests of how counts are judged."""

import tempfile
import unittest
from pathlib import Path

from .figures import Figures, judge


class Judging(unittest.TestCase):
    def setUp(self):
        self.committed = Figures("rustc 1", {"passed-request": 1000, "route": 200})

    def judged(self, surroundings="rustc 1", **counts):
        lines, is_good = judge(Figures(surroundings, counts), self.committed)
        return "\n".join(lines), is_good

    def test_a_few_more_are_good_and_many_more_are_not(self):
        self.assertTrue(self.judged(**{"passed-request": 1030, "route": 200})[1])
        text, is_good = self.judged(**{"passed-request": 1031})
        self.assertFalse(is_good)
        self.assertIn("more than 3 % above the committed 1000", text)

    def test_fewer_are_good_and_worth_a_word(self):
        text, is_good = self.judged(**{"passed-request": 900})
        self.assertTrue(is_good)
        self.assertIn("renew", text)

    def test_a_count_without_a_committed_one_is_not_good(self):
        self.assertFalse(self.judged(view=1)[1])

    def test_a_count_that_scatters_is_shown_only(self):
        text, is_good = self.judged(route=220)
        self.assertTrue(is_good)
        self.assertIn("+10.00 %  shown only", text)

    def test_other_surroundings_are_not_judged_and_say_so(self):
        text, is_good = self.judged("rustc 2", **{"passed-request": 5000})
        self.assertTrue(is_good)
        self.assertIn("NOT JUDGED", text)

    def test_what_is_written_can_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "instructions.txt"
            self.committed.write(file)
            Figures("gcc 12, processor of 2 GHz", {"route": 300}).write(file)
            Figures("rustc 1", {"route": 100}).write(file)
            read = [Figures.read(file, surroundings) for surroundings in ["gcc 12, processor of 2 GHz", "rustc 1", "rustc 2"]]
        self.assertEqual([figures.counts for figures in read], [{"route": 300}, {"route": 100}, {"route": 100}])


if __name__ == "__main__":
    unittest.main()
