"""The committed counts, and how counts are judged by them."""

# A count may be larger by this much: what a change of the surroundings may cost by a different inlining.
MORE_PERCENT = 3
# Counts that can fail. The others are shown only: one commit's counts of the pieces are exact, but the compiler divides raincheck
# into 16 units, and a change anywhere else may move a function into another unit and inline other calls (route -17 %,
# record-encode +5 % by changes of neither). Ids of tasks are random, and with them the ways through the maps of the memory store:
# created-task scatters by 2 %.
JUDGED = {"passed-request"}
# A count that is smaller by this much is worth committing, so that it stays.
LESS_PERCENT = 3


class Figures:
    """Counts by name, and the compiler, the C library and the processor that they are of. The file has the counts of several, because
    a change is judged on whatever machine it is tested."""

    def __init__(self, surroundings, counts):
        self.surroundings = surroundings
        self.counts = counts

    @classmethod
    def read(cls, path, surroundings):
        """The counts of these surroundings, or of the first that the file has."""
        written = cls.read_all(path)
        return next((figures for figures in written if figures.surroundings == surroundings), written[0])

    @classmethod
    def read_all(cls, path):
        written = []
        for part in path.read_text().split("\n\n"):
            surroundings, *lines = [line for line in part.splitlines() if line and not line.startswith("#")]
            written.append(cls(surroundings, {name: int(count) for name, count in map(str.split, lines)}))
        return written

    def write(self, path):
        """Writes these counts in place of those of the same surroundings. Those of others stay."""
        written = self.read_all(path) if path.exists() else []
        others = [figures for figures in written if figures.surroundings != self.surroundings]
        head = "# Instructions of one piece of work each, counted by valgrind. Renew with benches/instructions --renew.\n"
        path.write_text(head + "\n".join(figures.text() for figures in [self, *others]))

    def text(self):
        return "\n".join([self.surroundings, *(f"{name:<20} {count:>9}" for name, count in self.counts.items())]) + "\n"


def judge(found, committed):
    """What there is to say, and whether the counts are good."""
    lines, is_good = [], True
    is_judged = found.surroundings == committed.surroundings
    if not is_judged:
        # Another compiler makes other instructions: nothing is wrong, and nothing is known.
        lines.append(f"!!! INSTRUCTIONS ARE NOT JUDGED: the committed ones are of {committed.surroundings}, these of {found.surroundings}")
    for name, count in found.counts.items():
        before = committed.counts.get(name)
        if before is None:
            lines.append(f"{name:<20} {count:>9}  not committed yet: benches/instructions --renew")
            is_good = is_good and not is_judged
            continue
        change = (count / before - 1) * 100
        word = ""
        if name not in JUDGED:
            word = "  shown only"
        elif count * 100 > before * (100 + MORE_PERCENT):
            word = f"  more than {MORE_PERCENT} % above the committed {before}"
            is_good = is_good and not is_judged
        elif count * 100 < before * (100 - LESS_PERCENT):
            word = f"  better than the committed {before}: renew, so that it stays"
        lines.append(f"{name:<20} {count:>9}  {change:+6.2f} %{word}")
    return lines, is_good
