"""Area: security
Source: 1mcp-app/agent#517
Met: Files with sessions, keys and results were created with the mode that the umask gave, so every user of the machine could read them, and nothing looked at their mode later.
First try: pass
Verdict: Every file and directory that raincheck makes is its owner's alone, whatever the umask; a store that others may open, or whose name leads to such a file, is refused, and its content stays.
"""

import os
import stat

from house import until
from servers import STDIO, LegacyServer


def test(field):
    server = LegacyServer()
    program = field.write("program.py", STDIO)
    old = os.umask(0)
    try:
        (field.dir / "own").mkdir(0o700)
        places = [field.dir / "state", field.dir / "piped", field.dir / "own"]
        settings = '[tasks]\ngrace_window = "50ms"\n'
        rainchecks = [field.raincheck("--upstream", server.url, store=None, config=settings, env={"XDG_STATE_HOME": str(places[0])})]
        rainchecks.append(field.raincheck("--upstream", server.url, store=f"redb:{places[2]}/tasks.redb", config=settings))
        pipe = field.stdio("--", "python3", program, store=None, env={"XDG_STATE_HOME": str(places[1])})
    finally:
        os.umask(old)
    pipe.hello()
    for raincheck in rainchecks:
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]["taskId"]
        raincheck.finished(task)
    made = [path for place in places for path in (place, *place.rglob("*"))]
    assert len([path for path in made if path.is_file()]) >= 6
    open_ones = [(str(path), oct(path.lstat().st_mode)) for path in made if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    assert not open_ones, open_ones
    # Somebody else's file under the name of the store, of its key and of the process id.
    for suffix in ("", ".key", ".pid"):
        place = field.dir / f"linked{suffix}"
        place.mkdir(0o700)
        victim = field.dir / f"victim{suffix}"
        victim.write_text("precious")
        victim.chmod(0o644)
        (place / f"tasks.redb{suffix}").symlink_to(victim)
        raincheck = field.raincheck("--upstream", server.url, store=f"redb:{place}/tasks.redb", ready=False)
        until("it refuses or serves", lambda raincheck=raincheck: raincheck.child.poll() is not None or "serving" in raincheck.log())
        assert suffix == ".pid" or raincheck.child.poll() == 1, raincheck.log()
        assert victim.read_text() == "precious", suffix
    # A state directory in which every user may replace files.
    shared = field.dir / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (field.dir / "home").mkdir()
    (field.dir / "home" / "raincheck").symlink_to(shared)
    raincheck = field.raincheck("--upstream", server.url, store=None, env={"XDG_STATE_HOME": str(field.dir / "home")}, ready=False)
    until("it refuses", lambda: raincheck.child.poll() is not None)
    assert not list(shared.iterdir()), list(shared.iterdir())
