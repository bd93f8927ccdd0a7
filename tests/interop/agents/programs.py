"""Agents that are programs, each in a folder of its own and in its default settings for MCP, with a server that plays the part of
its model's API: programs.py SERVER HOST PROGRAM... SERVER is an address, or a command as a JSON list. No agent asks its user about a
tool, because there is nobody, and none fetches anything."""

import asyncio
import fcntl
import json
import os
import struct
import sys
import tempfile
import termios
from pathlib import Path

from api import Api
from script import CLOCK, HEADERS, Script

script = Script()

SERVER = json.loads(sys.argv[1]) if sys.argv[1].startswith("[") else sys.argv[1]
PROMPT = "Compute."


def clock(key, unit):
    """The setting of that name for the agent's limit of a call, if it has not its default; `unit`: so many are a second."""
    return {} if CLOCK is None else {key: round(CLOCK * unit)}


def headers():
    return {"headers": HEADERS} if HEADERS else {}


def server(url_key, **around):
    """The server as most agents write it: an address, or a command and its arguments."""
    if isinstance(SERVER, str):
        return {url_key: SERVER, **around}
    return {"command": SERVER[0], "args": SERVER[1:]}


def opencode(home, api):
    model = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": api.url, "apiKey": "none"}, "models": {"script": {}}}
    mcp = {"type": "remote", "url": SERVER} if isinstance(SERVER, str) else {"type": "local", "command": SERVER}
    settings = {"model": "script/script", "provider": {"script": model}, "mcp": {"server": mcp | clock("timeout", 1000)}}
    Path(home, "opencode.json").write_text(json.dumps(settings))
    return ["run", PROMPT], {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        # It installs a package for plugins in the background; without it, it runs as well.
        "npm_config_offline": "true",
    }


def codex(home, api, *wait):
    settings = [
        'model = "script"',
        'model_provider = "script"',
        "[model_providers.script]",
        f'name = "script"\nbase_url = "{api.url}"\nwire_api = "responses"\nenv_key = "SCRIPT_KEY"',
        "[analytics]\nenabled = false",
        "[mcp_servers.server]",
        *(f"{key} = {json.dumps(value)}" for key, value in {**server("url"), **clock("tool_timeout_sec", 1)}.items()),
        *wait,
    ]
    Path(home, ".codex").mkdir()
    Path(home, ".codex", "config.toml").write_text("\n".join(settings))
    return ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT], {"SCRIPT_KEY": "none"}


def codex_required(home, api):
    """With the setting that lets it wait for the tools of its server."""
    return codex(home, api, "required = true")


def claude_code(home, api):
    mcp = {"mcpServers": {"server": server("url", type="http")}}
    Path(home, "servers.json").write_text(json.dumps(mcp))
    arguments = ["-p", PROMPT, "--mcp-config", "servers.json", "--allowedTools", "mcp__server"]
    return arguments, {
        "ANTHROPIC_BASE_URL": api.root,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        **{key: str(value) for key, value in clock("MCP_TOOL_TIMEOUT", 1000).items()},
    }


def claude_code_terminal(home, api):
    """Its terminal mode, with the questions of its first start answered: the look, the key of the API, this folder."""
    (_, *arguments), environment = claude_code(home, api)
    answered = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [environment["ANTHROPIC_API_KEY"]], "rejected": []},
        "projects": {home: {"hasTrustDialogAccepted": True}},
    }
    Path(home, ".claude.json").write_text(json.dumps(answered))
    return arguments, {**environment, "TERM": "xterm-256color"}


def gemini(home, api):
    # Usage statistics and updates off; the rest names the model's API and the server.
    settings = {
        "mcpServers": {"server": server("httpUrl") | clock("timeout", 1000) | headers()},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    Path(home, ".gemini").mkdir()
    Path(home, ".gemini", "settings.json").write_text(json.dumps(settings))
    return ["-m", "gemini-2.5-flash", "--yolo", "--skip-trust", "-p", PROMPT], {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": api.root,
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def qwen(home, api):
    settings = {
        "mcpServers": {"server": server("httpUrl") | clock("timeout", 1000) | headers()},
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    }
    Path(home, ".qwen").mkdir()
    Path(home, ".qwen", "settings.json").write_text(json.dumps(settings))
    return ["--yolo", "-p", PROMPT], {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": api.url,
        "OPENAI_MODEL": "script",
        "QWEN_CODE_NO_RELAUNCH": "true",
    }


HOSTS = {
    "opencode": opencode,
    "codex": codex,
    "codex-required": codex_required,
    "claude-code": claude_code,
    "claude-code-terminal": claude_code_terminal,
    "gemini-cli": gemini,
    "qwen-code": qwen,
}
# They have no end of their own.
IN_TERMINAL = ["claude-code-terminal"]


async def run(home, command, environment):
    """What it prints for its user; what it does meanwhile goes to its standard error."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home,
        env={"PATH": os.environ["PATH"], **environment, "HOME": home},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{command[0]} ended with {process.returncode}: {printed.decode()}"
    return printed.decode()


async def run_in_terminal(home, command, environment):
    """Until its model has heard how the call ended, which it gives back; nobody reads the screen."""
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    asyncio.get_running_loop().add_reader(master, lambda: os.read(master, 65536))
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home,
        env={"PATH": os.environ["PATH"], **environment, "HOME": home},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    try:
        while not script.is_over:
            assert process.returncode is None, f"{command[0]} ended with {process.returncode}"
            await asyncio.sleep(0.1)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return script.heard[-1]


async def main():
    api = Api(script)
    name, *program = sys.argv[2:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        arguments, environment = HOSTS[name](home, api)
        start = run_in_terminal if name in IN_TERMINAL else run
        answer = await start(home, [*program, *arguments], environment)
    assert not api.failed, api.failed
    script.print(answer)


script.run(main)
