"""langchain-mcp-adapters, which opens a session for each call and ends it with the answer: langchain_client.py URL."""

import sys
from datetime import timedelta

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.prebuilt import ToolNode, create_react_agent

from script import CALLS, CLOCK, HEADERS, Script

script = Script()


class Model(BaseChatModel):
    names: list[str] = []

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **_):
        return Model(names=[tool.name for tool in tools])

    def _generate(self, messages, stop=None, run_manager=None, **_):
        last = messages[-1]
        said = text(last.content) if isinstance(last, ToolMessage) else None
        call = script.next(self.names, said)
        if call is None:
            message = AIMessage(said)
        else:
            name, arguments = call
            message = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": str(len(messages))}])
        return ChatResult(generations=[ChatGeneration(message=message)])


def text(content):
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


async def main():
    server = {"url": sys.argv[1], "transport": "streamable_http"}
    if CLOCK is not None:
        server["session_kwargs"] = {"read_timeout_seconds": timedelta(seconds=CLOCK)}
    if HEADERS:
        server["headers"] = HEADERS
    client = MultiServerMCPClient({"server": server})
    tools = await client.get_tools()
    # Without this, the agent ends where a call fails with an error of JSON-RPC.
    agent = create_react_agent(Model(), ToolNode(tools, handle_tool_errors=True) if CALLS else tools)
    ended = await agent.ainvoke({"messages": [("user", "Compute.")]})
    script.print(ended["messages"][-1].content)


script.run(main)
