"""A FastMCP server whose tools run as background tasks on Docket, with Redis: docket_server.py PORT REDIS [CONCURRENCY]"""

import asyncio
import sys

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

port, redis = int(sys.argv[1]), sys.argv[2]
concurrency = int(sys.argv[3]) if len(sys.argv) > 3 else 10
server = FastMCP("peer")
server.add_extension(TasksExtension(url=redis, concurrency=concurrency))


@server.tool(task=True)
async def fast(nonce: str = "") -> str:
    return nonce


@server.tool(task=True)
async def slow(nonce: str = "", ms: int = 0) -> str:
    await asyncio.sleep(ms / 1000)
    return nonce


server.run(
    transport="http",
    host="127.0.0.1",
    port=port,
    path="/mcp",
    stateless_http=True,
    log_level="error",
    show_banner=False,
)
