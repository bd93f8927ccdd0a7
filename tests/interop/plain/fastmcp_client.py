"""fastmcp 3, and 4 with fastmcp-tasks, as clients: fastmcp_client.py URL MODE. Prints what they saw as JSON.

MODE is `plain` (fastmcp 3), fastmcp 4's `legacy` or `auto`, or `tasks`: `auto` with fastmcp-tasks, whose client declares
Tasks on every request as soon as it is imported, and sends no `Mcp-Name` with `tasks/*`.
"""

import asyncio
import json
import sys

from fastmcp import Client

url, mode = sys.argv[1:]
if mode == "tasks":
    from fastmcp_tasks.client import call_tool_task

seen = {"asked": [], "progress": []}


async def progress(_done, _total, message):
    seen["progress"].append(message)


async def elicit(message, _type, _params, _context):
    seen["asked"].append(message)
    return {"confirm": True}


async def drive(client):
    seen["tools"] = [tool.name for tool in await client.list_tools()]

    async def call(name, arguments):
        result = await client.call_tool(name, arguments, progress_handler=progress)
        return result.content[0].text

    seen["quick"] = await call("greet", {"name": "Ada"})
    seen["slow"] = await call("slow_compute", {"seconds": 1.5, "label": "plain"})
    seen["answered"] = await call("confirm_delete", {"filename": "a.txt"})


async def cancel(client):
    task = await call_tool_task(client, "slow_compute", {"seconds": 60, "label": "cancel me"})
    while (await task.status()).status_message is None:
        await asyncio.sleep(0.05)
    await task.cancel()
    seen["cancelled"] = (await task.wait(timeout=10)).status


async def main():
    options = {} if mode == "plain" else {"mode": "legacy" if mode == "legacy" else "auto"}
    async with Client(url, elicitation_handler=elicit, **options) as client:
        await drive(client)
        if mode == "tasks":
            await cancel(client)
    print(json.dumps(seen))


asyncio.run(asyncio.wait_for(main(), 60))
