"""An ordinary fastmcp 2 or 3 server, as its users write one: it asks its client in the middle of a tool.

    python bakery_ctx.py            over standard input and output
    python bakery_ctx.py PORT       over streamable HTTP, http://127.0.0.1:PORT/mcp
"""

import asyncio
import sys

from fastmcp import Context, FastMCP

mcp = FastMCP("Bakery")


@mcp.tool
def price(loaves: int) -> str:
    """What so many loaves cost."""
    return f"{loaves} loaves are {loaves * 3} euros"


@mcp.tool
async def bake(loaves: int, ctx: Context) -> str:
    """Bakes one loaf after the other."""
    for loaf in range(loaves):
        await ctx.report_progress(loaf, loaves, f"loaf {loaf + 1} is in the oven")
        await asyncio.sleep(0.5)
    return f"{loaves} loaves baked"


@mcp.tool
async def order(bread: str, ctx: Context) -> str:
    """Takes an order, and asks how many."""
    answer = await ctx.elicit(f"How many loaves of {bread}?", response_type=int)
    if answer.action != "accept":
        return f"no {bread}: {answer.action}"
    return f"{answer.data} loaves of {bread} ordered"


if len(sys.argv) > 1:
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    mcp.run()
