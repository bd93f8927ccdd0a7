"""A legacy server whose tool takes its time and says much: large.py over standard input and output, large.py PORT over
Streamable HTTP, with JSON bodies for answers."""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import CallToolResult, TextContent

port = int(sys.argv[1]) if len(sys.argv) > 1 else None
mcp = FastMCP("large", host="127.0.0.1", port=port or 8000, json_response=True, log_level="WARNING")


@mcp.tool()
async def large(seconds: float, characters: int) -> CallToolResult:
    """Sleeps, and says so many characters."""
    await asyncio.sleep(seconds)
    return CallToolResult(content=[TextContent(type="text", text="x" * characters)])


mcp.run("streamable-http" if port else "stdio")
