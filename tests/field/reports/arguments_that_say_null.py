"""Area: clients
Source: anthropics/claude-code#95239
Met: A host made its model fill in every optional argument, and sent what the model wrote for nothing as the text "null", so calls that need an argument left out failed.
First try: fail: `task_status` with the ticket "null", as a model writes that it has none, was answered with "There is no such ticket" in place of the list of calls; a ticket in quotes, as models copy them, was not found either
Verdict: Mended: the companion tools take "null" and "None" for no ticket, a ticket in quotes for the ticket, and numbers written as texts.
"""

from servers import LegacyServer, ModernServer

CONFIG = '[tasks]\ncompanion_tools = true\nfallback_after = "6s"\n'


class Legacy(LegacyServer):
    version = "2025-11-25"

    def write(self, connection, out, message, headers):
        # An id that nobody guesses, so that the session can list its calls.
        if "mcp-session-id" in headers:
            headers["mcp-session-id"] = f"session-{'0123456789abcdef' * 2}-{headers['mcp-session-id']}"
        super().write(connection, out, message, headers)


def test(field):
    wrong = []
    for server in (Legacy(), ModernServer()):
        session = field.raincheck("--upstream", server.url, config=CONFIG).session()
        ticket = session.call("slow", {"s": 7})["result"]["structuredContent"]["ticket"]

        def said(tool, arguments, session=session):
            result = session.call(tool, arguments)["result"]
            return " ".join(part["text"] for part in result["content"])

        # No ticket.
        for none in (None, {}, {"ticket": None}, {"ticket": ""}, {"ticket": "null"}):
            if ticket not in (text := said("task_status", none)):
                wrong.append(f"{type(server).__name__}, task_status {none}: {text}")
        # The ticket, as models copy it.
        for copied in (ticket, f" {ticket}\n", f'"{ticket}"'):
            for more in ({}, {"round": "null"}, {"round": None, "wait_seconds": ""}, {"round": "1", "wait_seconds": "0"}):
                if ticket not in (text := said("task_status", {"ticket": copied, "wait_seconds": 0, **more})):
                    wrong.append(f"{type(server).__name__}, task_status {copied!r} {more}: {text}")
        # What hosts add of their own (n8n).
        assert "run 1" in said("task_result", {"ticket": ticket, "toolCallId": "call_1", "sessionId": "s", "action": "sendMessage", "chatInput": "hi"})
    assert not wrong, "\n".join(wrong)
