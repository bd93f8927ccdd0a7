"""A server made with FastMCP that says who it takes its client for. uvicorn believes X-Forwarded-For from its own machine."""

import sys

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_request

server = FastMCP("peer")


@server.tool
def peer() -> str:
    """Who asks."""
    return get_http_request().client.host


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
