"""Area: security
Source: modelcontextprotocol/typescript-sdk#965
Met: A name or an address that a client chose was matched with a pattern that backtracks, and one request kept a processor busy for minutes.
First try: pass
Verdict: The globs of rules take a time that grows with the name's length alone; a name of nearly a megabyte is judged within a second, and it is no line of the log in its whole length.
"""

import time

from servers import LegacyServer


def test(field):
    server = LegacyServer()
    stars = "*a" * 30
    settings = f'[[tools]]\nname = ["{stars}b", "*?*?*?*?*?*?q", "*x*y*z"]\nmode = "never"\n[[tools]]\nname = "*"\nmode = "auto"\n'
    raincheck = field.raincheck("--upstream", server.url, config=settings)
    session = raincheck.session()
    took = []
    for name in ("a" * 60_000, "ab" * 30_000, "a" * 900_000):
        begun = time.monotonic()
        assert session.ask("tools/call", {"name": name, "arguments": {}}).status == 200
        if len(name) < 100_000:
            # Longer headers are refused before anything is judged.
            assert raincheck.modern("tools/call", {"name": name, "arguments": {}}).status == 200
        took.append(time.monotonic() - begun)
        # Others do not wait for it.
        begun = time.monotonic()
        raincheck.modern("tools/list")
        assert time.monotonic() - begun < 2
    assert max(took) < 5, took
    assert max(len(line) for line in raincheck.log().splitlines()) < 2_000
