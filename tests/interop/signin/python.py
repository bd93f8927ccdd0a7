"""The Python SDK with its OAuth client: it finds out where to sign in, signs in, makes a task, and renews its token meanwhile.

`python python.py URL NAME SECONDS NODE`: a task of so many seconds. Prints what it has seen.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import mcp.types as types
from mcp.client.auth import OAuthClientProvider
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.auth import OAuthClientMetadata

URL, NAME, SECONDS, NODE = sys.argv[1:]
CALLBACK = "http://127.0.0.1:1/callback"


class Storage:
    def __init__(self):
        self.tokens = None
        self.information = None
        self.seen = []

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens
        self.seen.append(tokens.access_token)

    async def get_client_info(self):
        return self.information

    async def set_client_info(self, information):
        self.information = information


class User:
    """Whose browser is user.mjs."""

    async def visit(self, address):
        self.asked = parse_qs(urlsplit(address).query)
        browser = [NODE, str(Path(__file__).with_name("user.mjs")), address]
        done = await asyncio.to_thread(subprocess.run, browser, capture_output=True, text=True, check=True)
        self.answer = parse_qs(urlsplit(done.stdout.strip()).query)

    async def come_back(self):
        return self.answer["code"][0], self.answer["state"][0]


async def main():
    storage, user = Storage(), User()
    provider = OAuthClientProvider(
        server_url=URL,
        client_metadata=OAuthClientMetadata(
            client_name=NAME,
            redirect_uris=[CALLBACK],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        ),
        storage=storage,
        redirect_handler=user.visit,
        callback_handler=user.come_back,
    )
    async with streamablehttp_client(URL, auth=provider) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            await session.list_tools()
            tasks = session.experimental
            arguments = {"seconds": float(SECONDS), "label": NAME}
            task = (await tasks.call_tool_as_task("slow_compute", arguments, ttl=120_000)).task
            made = task.status
            async for _state in tasks.poll_task(task.taskId):
                pass
            result = await tasks.get_task_result(task.taskId, types.CallToolResult)
    seen = {
        "made": made,
        "result": result.content[0].text,
        "tokens": storage.seen,
        "resource": user.asked["resource"][0],
        "scope": user.asked["scope"][0],
    }
    print(json.dumps(seen))


asyncio.run(main())
