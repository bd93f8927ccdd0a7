"""A Python client in its default settings calls a tool that says nothing: defaults.py URL [MODE], the call in the environment as
for the agents. MODE is one of mcp 2.x or fastmcp 4, or `tasks`: with fastmcp-tasks. Prints what it heard as JSON."""

import asyncio
import json
import os
import sys
import time
from importlib.util import find_spec

url, *mode = sys.argv[1:]
tool, arguments = os.environ["AGENT_TOOL"], json.loads(os.environ["AGENT_ARGUMENTS"])


def calling():
    print("calling", file=sys.stderr, flush=True)
    return time.monotonic()


async def fast():
    from fastmcp import Client

    if mode == ["tasks"]:
        # Its client declares Tasks as soon as this is imported.
        import fastmcp_tasks  # noqa: F401
    options = {"mode": "auto"} if mode else {}
    async with Client(url, **options) as client:
        began = calling()
        return began, (await client.call_tool(tool, arguments)).content[0].text


async def official():
    from official import connect

    async with connect(url, None, *mode) as client:
        began = calling()
        return began, await client.call(tool, arguments)


began, heard = asyncio.run(fast() if find_spec("fastmcp") else official())
print(json.dumps({"heard": [heard], "took": time.monotonic() - began}))
