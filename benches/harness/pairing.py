"""From raw lines to medians and paired ratios.

A ratio is taken inside each round, between two measurements that are seconds apart, and the median is taken of the ratios:
a noisy neighbour disturbs both sides of a ratio, and a round that is disturbed in the middle does not decide."""

import json
from statistics import median


class Results:
    """The raw lines of one plan."""

    def __init__(self, header, rows):
        self.header = header
        self.rows = rows

    @classmethod
    def read(cls, path):
        """Reads a file. The files of early versions have no header."""
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        if lines and "label" not in lines[0]:
            return cls(lines[0], lines[1:])
        return cls({}, lines)

    def part(self, name):
        """The lines of one part of the plan."""
        return Results(self.header, [row for row in self.rows if row.get("part", "") == name])

    def mode(self, mode):
        return Results(self.header, [row for row in self.rows if row["mode"] == mode])

    def labels(self):
        """The targets, in the order in which they were measured."""
        return list(dict.fromkeys(row["label"] for row in self.rows))

    def loads(self):
        """What the targets were loaded with: open calls, or connections."""
        return sorted({load(row) for row in self.rows})

    def values(self, label, at, key):
        """The value of each round, by round."""
        chosen = [row for row in self.rows if row["label"] == label and load(row) == at]
        # Lines of early versions do not name their round, but are in its order.
        return {row.get("round", place): row[key] for place, row in enumerate(chosen, 1) if key in row}

    def median(self, label, at, key):
        """The median over the rounds, or None if nothing was measured."""
        values = self.values(label, at, key).values()
        return median(values) if values else None

    def ratios(self, label, base, at, key):
        """The ratio to the base in each round that has both."""
        return [own / other for own, other in self._pairs(label, base, at, key) if other]

    def ratio(self, label, base, at, key):
        """The median of the ratios."""
        ratios = self.ratios(label, base, at, key)
        return median(ratios) if ratios else None

    def added(self, label, base, at, key):
        """The median of what each round adds to the base."""
        pairs = self._pairs(label, base, at, key)
        return median([own - other for own, other in pairs]) if pairs else None

    def errors(self):
        return sum(row["errors"] for row in self.rows)

    def _pairs(self, label, base, at, key):
        own, other = self.values(label, at, key), self.values(base, at, key)
        return [(own[number], other[number]) for number in own if number in other]


def load(row):
    """How many calls were open, or how many connections called."""
    return row["opened"] if "opened" in row else row["concurrency"]
