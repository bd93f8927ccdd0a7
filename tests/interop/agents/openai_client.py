"""openai-agents, with a server that plays the part of the OpenAI API: openai_client.py URL."""

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

from script import Script

script = Script()
failed = []


class Api(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            message, why = self.message(asked)
        except AssertionError as error:
            failed.append(error)
            message, why = {"role": "assistant", "content": str(error)}, "stop"
        answer = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "script",
            "choices": [{"index": 0, "message": message, "finish_reason": why}],
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def message(self, asked):
        last = asked["messages"][-1]
        said = text(last["content"]) if last["role"] == "tool" else None
        call = script.next([tool["function"]["name"] for tool in asked["tools"]], said)
        if call is None:
            return {"role": "assistant", "content": said}, "stop"
        name, arguments = call
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": f"c{len(asked['messages'])}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"

    def log_message(self, *_):
        pass


def text(content):
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


async def main():
    set_tracing_disabled(True)
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    openai = AsyncOpenAI(base_url=f"http://127.0.0.1:{api.server_port}/v1", api_key="none")
    model = OpenAIChatCompletionsModel("script", openai)
    # Its own limit of 5 s is too short for any long call.
    server = MCPServerStreamableHttp({"url": sys.argv[1]}, client_session_timeout_seconds=30)
    async with server:
        agent = Agent("agent", model=model, mcp_servers=[server])
        ended = await Runner.run(agent, "Compute.")
    assert not failed, failed
    script.print(ended.final_output)


asyncio.run(asyncio.wait_for(main(), 50))
