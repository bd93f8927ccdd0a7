"""The bakery for fastmcp 4, which serves both eras: a modern client is asked by an answer, a legacy one as before.

    python bakery_mrtr.py           over standard input and output
    python bakery_mrtr.py PORT      over streamable HTTP, http://127.0.0.1:PORT/mcp
"""

import asyncio
import sys

from fastmcp import Context, FastMCP
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

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
async def order(bread: str, ctx: Context) -> str | InputRequiredResult:
    """Takes an order, and asks how many: the guard that fastmcp 4 tells its users to write."""
    answer = (ctx.input_responses or {}).get("loaves")
    if answer is None:
        return InputRequiredResult(
            input_requests={"loaves": ElicitRequest(params=ElicitRequestFormParams(
                message=f"How many loaves of {bread}?",
                requested_schema={"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]},
            ))},
            request_state=bread,
        )
    if answer.action != "accept":
        return f"no {bread}: {answer.action}"
    return f"{answer.content['value']} loaves of {ctx.request_state} ordered"


@mcp.tool
async def reserve(bread: str, ctx: Context) -> str:
    """Asks a client of the old era in the middle of the tool."""
    answer = await ctx.elicit(f"How many loaves of {bread}?", response_type=int)
    if answer.action != "accept":
        return f"no {bread}: {answer.action}"
    return f"{answer.data} loaves of {bread} reserved"


if len(sys.argv) > 1:
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    mcp.run()
