"""opencode in its own settings, with a server that plays the part of the OpenAI API: opencode_client.py URL PROGRAM. It
keeps to a folder of its own, and fetches nothing."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from api import Api
from script import LIMIT, Script

script = Script()

# Its own limit of a call, in milliseconds, in place of 60 s.
TIMEOUT = {"timeout": int(os.environ["OPENCODE_TIMEOUT"])} if "OPENCODE_TIMEOUT" in os.environ else {}

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    # It installs a package for plugins in the background; without it, it runs as well.
    "npm_config_offline": "true",
}


def settings(api):
    model = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": api.url, "apiKey": "none"}, "models": {"script": {}}}
    return {
        "model": "script/script",
        "provider": {"script": model},
        "mcp": {"server": {"type": "remote", "url": sys.argv[1], **TIMEOUT}},
    }


async def run(home):
    """What it prints for its user; what it does meanwhile goes to its standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.argv[2], "run", "Compute.",
        cwd=home, env={**ENVIRONMENT, "HOME": home}, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"opencode ended with {process.returncode}"
    return printed.decode()


async def main():
    api = Api(script)
    with tempfile.TemporaryDirectory() as home:
        Path(home, "opencode.json").write_text(json.dumps(settings(api)))
        answer = await run(home)
    assert not api.failed, api.failed
    script.print(answer)


asyncio.run(asyncio.wait_for(main(), LIMIT))
