"""Area: security
Source: crewAIInc/crewAI#6715
Met: A list of tools, or the answer to a call with the same id, was kept under the server's address alone and given to another tenant of the same process.
First try: pass
Verdict: Lists, joined calls, keys of calls and pooled sessions belong to the caller that its credentials show, also when thirty calls with the same id and the same arguments run at the same moment; no answer says that shared caches may keep it.
"""

import concurrent.futures
import re

from servers import LegacyServer


class Server(LegacyServer):
    """It shows each tenant its own tools and data, by Authorization on each request."""

    def result(self, message, connection, headers):
        if message["method"] == "tools/list":
            who = headers.get("authorization", "nobody")
            return {"tools": [{"name": "slow", "description": f"for {who}", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
        return super().result(message, connection, headers)

    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        return {"content": [{"type": "text", "text": f"for {headers.get('authorization', 'nobody')}"}]}


def test(field):
    server = Server()
    settings = '[tasks]\ngrace_window = "50ms"\n[[tools]]\nname = "slow"\nattach = true\n'
    raincheck = field.raincheck("--upstream", server.url, config=settings)
    foreign = []

    def one(who, seconds, key):
        head = {"authorization": f"Bearer {who}"} | ({"idempotency-key": "same"} if key else {})
        listed = raincheck.modern("tools/list", headers=head)
        answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": seconds}}, headers=head)
        result = answer.answer(7)["result"]
        if "taskId" in result:
            result = raincheck.finished(result["taskId"], headers=head)["result"]
        session = raincheck.session(headers=head)
        texts = [listed.text, str(result), str(session.call("slow", {"s": seconds})), session.ask("tools/list").text]
        names = {name for text in texts for name in re.findall(r"for (\w+ ?\w*)", text)}
        assert '"public"' not in listed.text, listed.text
        return who, names, [text for text in texts if "for " not in text]

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        rounds = [pool.submit(one, who, seconds, key) for seconds, key in ((0, False), (0.4, False), (0.4, True)) for who in ("a", "b", "c", "d", "e") * 2]
        for done in rounds:
            who, names, missing = done.result()
            assert not missing, missing
            foreign += [(who, names)] * (names != {f"Bearer {who}"})
    assert not foreign, foreign
