"""mcp 1.x and fastmcp 3, which is made with it, as clients without Tasks: mcp1.py URL. Prints what they saw as JSON."""

import asyncio
import json
import sys

import mcp.types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

seen = {"asked": [], "progress": []}


async def progress(_done, _total, message):
    seen["progress"].append(message)


async def elicit(_context, params):
    seen["asked"].append(params.message)
    return types.ElicitResult(action="accept", content={"confirm": True})


async def drive(session):
    seen["tools"] = [tool.name for tool in (await session.list_tools()).tools]

    async def call(name, arguments, on_progress=None):
        result = await session.call_tool(name, arguments, progress_callback=on_progress)
        return result.content[0].text

    seen["quick"] = await call("greet", {"name": "Ada"})
    seen["slow"] = await call("slow_compute", {"seconds": 1.5, "label": "plain"}, progress)
    seen["answered"] = await call("confirm_delete", {"filename": "a.txt"})

    running = asyncio.Event()

    async def started(*_):
        running.set()

    # This client cancels nothing by itself: an application says so, and names the request.
    id = session._request_id
    endless = asyncio.create_task(call("slow_compute", {"seconds": 60, "label": "cancel me"}, started))
    await running.wait()
    params = types.CancelledNotificationParams(requestId=id, reason="enough")
    cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(cancelled))
    try:
        await asyncio.wait_for(endless, 10)
    except Exception as error:
        seen["cancelled"] = type(error).__name__


async def main():
    url = sys.argv[1]
    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, elicitation_callback=elicit) as session:
            seen["version"] = (await session.initialize()).protocolVersion
            await drive(session)
    print(json.dumps(seen))


asyncio.run(asyncio.wait_for(main(), 60))
