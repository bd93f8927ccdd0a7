"""Clients of PyPI: client.py CLIENT URL prints which tools each lists and what it makes of a slow call and of one that fails."""

import asyncio
import json
import sys

SLOW = {"seconds": 3, "label": "stranger"}


async def mcp_use(url):
    from mcp_use import MCPClient

    client = MCPClient({"mcpServers": {"stranger": {"url": url}}})
    session = await client.create_session("stranger")
    tools = [tool.name for tool in await session.list_tools()]
    slow = (await session.call_tool("slow_compute", SLOW)).model_dump(mode="json")
    failed = (await session.call_tool("failing_job", {})).model_dump(mode="json")
    await client.close_all_sessions()
    return {"tools": tools, "slow": slow, "failed": failed}


def smolagents(url):
    from smolagents import MCPClient

    with MCPClient({"url": url, "transport": "streamable-http"}) as tools:
        named = {tool.name: tool for tool in tools}
        return {"tools": list(named), "slow": named["slow_compute"](**SLOW), "failed": named["failing_job"]()}


name, url = sys.argv[1:]
seen = asyncio.run(mcp_use(url)) if name == "mcp-use" else smolagents(url)
print(json.dumps(seen))
