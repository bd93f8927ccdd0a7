"""Area: security
Source: sandialabs/atlas-ui-3#561
Met: A server took an id that a client named for proof enough, so that who learned or guessed another user's id had that user's conversation.
First try: pass
Verdict: The id of a task is random and no proof: for another caller, with or without credentials, in either revision, by a poll, a cancel, an answer, a listener or a companion tool, the answer is the one for a task that never was, to the byte.
"""

import json
import re
import uuid

from servers import LegacyServer


def test(field):
    server = LegacyServer()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "50ms"\ncompanion_tools = true\n')
    mine, others = {"authorization": "Bearer mine"}, [{"authorization": "Bearer other"}, {"authorization": "bearer mine"}, {"authorization": "Bearer mine2"}, {}]
    call = {"name": "slow", "arguments": {"s": 8}}
    ids = [raincheck.modern("tools/call", call, headers=mine).answer(7)["result"]["taskId"] for _ in range(4)]
    # Random, of version 4, and nothing in them counts.
    assert all(uuid.UUID(task).version == 4 for task in ids)
    assert len({task[:8] for task in ids}) == len({task[-12:] for task in ids}) == 4
    unknown = str(uuid.uuid4())

    def told(answer, task):
        heads = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
        return answer.status, json.dumps(heads), re.sub(task, "ID", answer.text)

    for other in others:
        session = raincheck.session(headers=other, name="old-client")
        session.ask("tools/list")
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            params = {"inputResponses": {"q": {"action": "accept", "content": {}}}} if method == "tasks/update" else {}
            theirs, none = (raincheck.modern(method, {"taskId": task, **params}, headers=other) for task in (ids[0], unknown))
            assert told(theirs, ids[0]) == told(none, unknown), (method, other, theirs.text, none.text)
            assert "error" in theirs.answer(7)
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            theirs, none = (session.ask(method, {"taskId": task}) for task in (ids[0], unknown))
            assert told(theirs, ids[0]) == told(none, unknown), (method, other, theirs.text, none.text)
            assert "error" in theirs.answer(1)
        for tool in ("task_status", "task_result", "task_cancel"):
            theirs, none = (session.ask("tools/call", {"name": tool, "arguments": {"ticket": task}}) for task in (ids[0], unknown))
            assert told(theirs, ids[0]) == told(none, unknown), (tool, other, theirs.text, none.text)
        listed = session.ask("tasks/list").text
        assert not [task for task in ids if task in listed], listed
    for spelt in (ids[0].upper(), f"{{{ids[0]}}}", ids[0].replace("-", ""), f"urn:uuid:{ids[0]}", ids[0][:8]):
        assert "error" in raincheck.modern("tasks/get", {"taskId": spelt}, headers=others[0]).answer(7), spelt
    for task in ids:
        assert raincheck.modern("tasks/get", {"taskId": task}, headers=mine).answer(7)["result"]["status"] in ("working", "completed")
