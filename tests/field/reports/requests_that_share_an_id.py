"""Area: clients
Source: anthropics/claude-ai-mcp#539
Met: A hosted client sends every request with the id 1, on one session for all chats of a user, so calls that overlapped got each other's answers or none.
First try: fail: of calls at the same time under one id, raincheck refused all but the first ("this id is in use") in front of programs and modern servers, and with companion tools in front of any server, though over HTTP each answer has a stream of its own; a call that only passes is served. No answer was crossed
Verdict: Mended: over HTTP, requests at the same time may have one id, and each gets its own answer. Only the same call, sent twice under one id, is refused, and a cancel whose id names several calls cancels none of them.
"""

import concurrent.futures
import json
import time

from servers import STDIO, LegacyServer, ModernServer, content

THREADS = STDIO.replace("import json, sys, time", "import json, sys, time, threading").replace(
    '        say({"jsonrpc": "2.0", "id": message["id"], "result": result(message)})',
    '        threading.Thread(target=lambda m=message: say({"jsonrpc": "2.0", "id": m["id"], "result": result(m)})).start()',
).replace('"text": "done"', '"text": json.dumps(message["params"]["arguments"])')


class Legacy(LegacyServer):
    """Answers each request where it came, as the official servers do not for ids that collide."""

    def tool(self, message, connection, headers):
        arguments = message["params"]["arguments"]
        time.sleep(arguments["s"])
        return content(json.dumps(arguments))


class Modern(ModernServer):
    tool = Legacy.tool


def test(field):
    program = field.write("server.py", THREADS)
    wrong = []
    for upstream in (["--upstream", Legacy().url], ["--", "python3", program], ["--upstream", Modern().url]):
        for config in (None, "[tasks]\ncompanion_tools = true\n"):
            session = field.raincheck(*upstream, config=config).session()
            sent = [{"s": 3.5, "chat": 1}, {"s": 0.5, "chat": 2}, {"s": 1.5, "chat": 3}]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                calls = []
                for arguments in sent:
                    calls.append(pool.submit(session.call, "slow", arguments, 1))
                    time.sleep(0.1)
                beside = pool.submit(session.ask, "tools/list", {}, 1)
            assert beside.result().answer(1)["result"]["tools"]
            for arguments, call in zip(sent, calls):
                answer = call.result()
                got = answer.get("result", {}).get("content", [{}])[0].get("text")
                assert got in (None, json.dumps(arguments)), f"an answer of another call: {answer} for {arguments}"
                if got is None:
                    wrong.append(f"{upstream[:2]}, {config}, {arguments}: {answer['error']['message']}")
            # One after the other, each is a new request.
            for _ in range(2):
                assert "result" in session.call("slow", {"s": 0}, 1)
    assert not wrong, "\n".join(wrong)
