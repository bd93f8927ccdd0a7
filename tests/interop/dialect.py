"""The Python SDK mcp 1.30 and its experimental tasks (2025-11-25) through raincheck. Prints TAP."""

import asyncio
import os
import sys
import traceback

import httpx
import mcp.types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamablehttp_client

URL = os.environ["RAINCHECK_URL"]
STATS = os.environ["UPSTREAM_URL"].removesuffix("/mcp") + "/_stats"
RELATED = "io.modelcontextprotocol/related-task"
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content)


class House:
    """One client, and what its user was asked."""

    session: ClientSession

    def __init__(self):
        self.asked = []

    @property
    def tasks(self):
        return self.session.experimental

    async def answer(self, _context, params):
        self.asked.append(params)
        return types.ElicitResult(action="accept", content={"confirm": True})

    async def call(self, name, arguments, ttl=60_000):
        return (await self.tasks.call_tool_as_task(name, arguments, ttl=ttl)).task

    async def result(self, task):
        return await self.tasks.get_task_result(task.taskId, types.CallToolResult)


@test
async def a_task_is_polled_to_its_end_and_its_result_fetched(house):
    task = await house.call("slow_compute", {"seconds": 1.5, "label": "python"})
    assert task.status == "working", task
    assert task.ttl is not None and task.pollInterval is not None, task
    seen = [state.status async for state in house.tasks.poll_task(task.taskId)]
    assert seen[-1] == "completed", seen
    result = await house.result(task)
    assert text(result) == "slow_compute(python) done after 1.5s", result
    assert result.meta[RELATED]["taskId"] == task.taskId, result.meta


@test
async def a_result_is_waited_for(house):
    task = await house.call("slow_compute", {"seconds": 1, "label": "wait"})
    assert text(await house.result(task)) == "slow_compute(wait) done after 1s"


@test
async def a_question_is_answered_while_the_result_is_waited_for(house):
    task = await house.call("confirm_delete", {"filename": "a.txt"})
    result = await house.result(task)
    assert "action=accept confirmed=True" in text(result), result
    assert len(house.asked) == 1, house.asked


@test
async def a_cancel_reaches_the_server(house):
    before = await stats()
    task = await house.call("slow_compute", {"seconds": 60, "label": "cancel me"})
    await until("started", before["started"] + 1)
    cancelled = await house.tasks.cancel_task(task.taskId)
    assert cancelled.status == "cancelled", cancelled
    await until("cancelled", before["cancelled"] + 1)
    try:
        await house.tasks.cancel_task(task.taskId)
    except Exception as error:  # noqa: BLE001
        assert error.error.code == -32602, error
    else:
        raise AssertionError("a task is cancelled once")


@test
async def a_plain_call_stays_plain(house):
    assert text(await house.session.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"


async def stats():
    async with httpx.AsyncClient() as client:
        counts = (await client.get(STATS)).json()
    return counts.get("slow_compute", {"started": 0, "cancelled": 0})


async def until(what, wanted):
    for _ in range(60):
        if (await stats())[what] >= wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{wanted} {what} at the server")


async def run(function):
    async with streamablehttp_client(URL) as (read, write, _):
        house = House()
        async with ClientSession(read, write, elicitation_callback=house.answer) as session:
            house.session = session
            await session.initialize()
            await session.list_tools()
            await asyncio.wait_for(function(house), 60)


def main():
    failed = 0
    for number, function in enumerate(TESTS, 1):
        name = function.__name__.replace("_", " ")
        try:
            asyncio.run(run(function))
            print(f"ok {number} - {name}", flush=True)
        except BaseException:  # noqa: BLE001
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            traceback.print_exc(file=sys.stdout)
    print(f"# pass {len(TESTS) - failed}\n# fail {failed}\n# cancelled 0\n# skipped 0")
    sys.exit(failed > 0)


main()
