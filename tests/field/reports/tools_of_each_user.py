"""Area: servers
Source: mark3labs/mcp-go#160
Met: A server shows each user, and each session, other tools; something between keeps the first list and shows it to all (Cloudgeni-ai/opengeni#59).
First try: pass
Verdict: Lists are read from the server for each request, with the user's own credentials, in every era, and a tool that a call unlocked is in the next list.
"""

from servers import LegacyServer


class Server(LegacyServer):
    capabilities = {"tools": {"listChanged": True}}

    def __init__(self):
        self.unlocked = set()
        super().__init__()

    def result(self, message, connection, headers):
        user = headers.get("authorization", "nobody")[-5:]
        match message["method"]:
            case "tools/list":
                names = ["slow", f"of_{user}", *(["unlocked"] if user in self.unlocked else [])]
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            case "tools/call":
                self.unlocked.add(user)
        return super().result(message, connection, headers)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config="[tasks]\ncompanion_tools = true\n")

    def listed(user, era):
        head = {"authorization": f"Bearer token-of-{user}"}
        answer = raincheck.modern("tools/list", headers=head).answer(7) if era == "modern" else raincheck.session(headers=head).ask("tools/list").answer(1)
        return [tool["name"] for tool in answer["result"]["tools"] if not tool["name"].startswith("task_")]

    for _ in range(2):
        for era in ("modern", "legacy"):
            for user in ("alice", "bobby"):
                assert listed(user, era) == ["slow", f"of_{user}"], (user, era)
    raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, headers={"authorization": "Bearer token-of-alice"})
    for era in ("modern", "legacy"):
        assert listed("alice", era) == ["slow", "of_alice", "unlocked"], era
        assert listed("bobby", era) == ["slow", "of_bobby"], era
