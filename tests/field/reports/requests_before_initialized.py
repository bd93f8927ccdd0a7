"""Area: clients
Source: modelcontextprotocol/rust-sdk#788
Met: Over HTTP, a request overtook `notifications/initialized`, or a client never sent that, and the server ended the session with an error.
First try: pass
Verdict: A session is served from the answer to `initialize` on, whether the notification comes late, twice or never.
"""

import concurrent.futures

from servers import STDIO, LegacyServer, ModernServer


def test(field):
    program = field.write("server.py", STDIO)
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", ModernServer().url], ["--", "python3", program]):
        raincheck = field.raincheck(*upstream)

        def begin(raincheck=raincheck):
            return {"mcp-session-id": raincheck.http("POST", hello).headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}

        never = begin()
        for _ in range(3):
            assert raincheck.http("POST", call, never).answer(1)["result"]["content"]
        late = begin()
        assert raincheck.http("POST", call, late).answer(1)["result"]["content"]
        for _ in range(2):
            assert raincheck.http("POST", ready, late).status == 202
        assert raincheck.http("POST", call, late).answer(1)["result"]["content"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for head in [begin() for _ in range(6)]:
                both = pool.submit(raincheck.http, "POST", ready, head), pool.submit(raincheck.http, "POST", call, head)
                assert both[1].result().answer(1)["result"]["content"] and both[0].result().status == 202
        pipe = field.stdio(*upstream)
        pipe.say(hello)
        pipe.say(call)
        assert pipe.answer(0)["result"] and pipe.answer(1)["result"]["content"]
