"""Area: clients
Source: anthropics/claude-code#47765
Met: After a user gave up a call, its server still said something of that call, and the host took that for a broken transport and dropped the server.
First try: fail: where calls pass (`companion_tools = false`) in front of a program, `raincheck stdio` answered a cancelled call in about half of the tries with -32603 "The connection to the server broke before it answered", which is not true, and passed its progress on for as long as it ran
Verdict: Mended: a cancelled call of a client on a pipe gets no error.
"""

import queue

from servers import STDIO

TELLS = (
    STDIO.replace("import json, sys, time", "import json, sys, time, threading")
    .replace("def result(message):", "def work(message):\n    time.sleep(2)\n    say({'jsonrpc': '2.0', 'id': message['id'], 'result': result(message)})\ndef result(message):", 1)
    .replace('        say({"jsonrpc": "2.0", "id"', '        if message["method"] == "tools/call": threading.Thread(target=work, args=[message]).start()\n        else: say({"jsonrpc": "2.0", "id"')
)


def test(field):
    program = field.write("server.py", TELLS)
    wrong = []
    for config in (None, "[tasks]\ncompanion_tools = false\n"):
        pipe = field.stdio("--", "python3", program, config=config)
        pipe.hello()
        for id in range(1, 7):
            pipe.say({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow", "arguments": {"n": id}}})
            pipe.say({"jsonrpc": "2.0", "id": id + 100, "method": "ping"})
            pipe.answer(id + 100)
            pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "the user pressed Escape"}})
            pipe.say({"jsonrpc": "2.0", "id": id + 200, "method": "ping"})
            pipe.answer(id + 200)
        try:
            while True:
                pipe.message(1.5)
        except AssertionError as silence:
            assert isinstance(silence.__context__, queue.Empty)
        wrong += [(config, message) for message in pipe.seen if message.get("id") in range(1, 7)]
    assert not wrong, f"{len(wrong)} cancelled calls were answered, as with {wrong[0]}"
