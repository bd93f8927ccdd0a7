"""A client with Tasks, on the official Python package (mcp 2.3): calls one tool, follows its task, answers its questions and
prints its result.

    python tasks.py URL TOOL [ARGUMENTS]

The package itself knows no Tasks, but has a place for extensions: `Tasks` below is all that an application needs. It declares
the extension, and `call_tool` returns the result of the tool as if there were no task.
"""

import asyncio
import json
import sys
from typing import Any, Literal

import mcp
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import Field


class Task(Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")


class TaskState(Result):
    """The answer to tasks/get."""

    status: str
    status_message: str | None = Field(default=None, alias="statusMessage")
    poll_interval_ms: int = Field(default=2000, alias="pollIntervalMs")
    requests: dict[str, Any] | None = Field(default=None, alias="inputRequests")
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Of(RequestParams):
    task_id: str = Field(serialization_alias="taskId")


class Answers(Of):
    input_responses: dict[str, Any] = Field(serialization_alias="inputResponses")


class Get(Request[Of, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"


class Update(Request[Answers, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"


class Cancel(Request[Of, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"


class Tasks(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, answer):
        self.answer = answer

    def claims(self):
        return [ResultClaim(result_type="task", model=Task, resolve=self.follow)]

    async def follow(self, task, context):
        """Polls until the task has ended. If the application cancels the call, the task is cancelled."""
        print("task", task.task_id)
        send = context.session.send_request
        try:
            while True:
                state = await send(Get(params=Of(task_id=task.task_id)), TaskState)
                if state.status == "completed":
                    return CallToolResult.model_validate(state.result)
                if state.status in ("failed", "cancelled"):
                    raise RuntimeError(f"{state.status}: {state.error}")
                if state.status == "input_required":
                    answers = {key: self.answer(request) for key, request in state.requests.items()}
                    await send(Update(params=Answers(task_id=task.task_id, input_responses=answers)), Result)
                    continue
                print(state.status_message or state.status)
                await asyncio.sleep(state.poll_interval_ms / 1000)
        except asyncio.CancelledError:
            await asyncio.shield(send(Cancel(params=Of(task_id=task.task_id)), Result))
            raise


def answer(request):
    """A real client asks its user. This one says "Ada" to each question for a name."""
    print("asked:", request["params"]["message"])
    return {"action": "accept", "content": {"name": "Ada"}}


async def elicit(_context, _params):
    """Declares that this client can be asked. Questions of a task go to `answer`."""
    raise RuntimeError("asked outside of a task")


async def main(url, tool, arguments="{}"):
    async with mcp.Client(url, extensions=[Tasks(answer)], elicitation_callback=elicit) as client:
        result = await client.call_tool(tool, json.loads(arguments))
        print(result.content[0].text)


asyncio.run(main(*sys.argv[1:]))
