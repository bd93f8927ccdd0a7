"""Area: security
Source: google/tsunami-security-scanner-plugins#677
Met: A tool for developers listened on loopback without asking who calls, and any web page that its user opened could command it.
First try: pass
Verdict: The operators' listener answers no page of another origin, no foreign name, and no request whose origin it cannot see to be its own; what is in a path or a query comes back in JSON that no browser takes for a page.
"""

from house import free_port, http
from servers import LegacyServer

EVIL = "%3Cscript%3Ealert(1)%3C/script%3E"


def test(field):
    server, port = LegacyServer(), free_port()
    settings = f'[admin]\nlisten = "127.0.0.1:{port}"\n[tasks]\ngrace_window = "50ms"\n'
    raincheck = field.raincheck("--upstream", server.url, config=settings)
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 8}}).answer(7)["result"]["taskId"]
    pages = [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}]
    pages += [{"host": "127.0.0.1.evil.example"}, {"host": "localhost.evil.example"}, {"host": None}, {"origin": f"http://localhost:{server.port}"}]
    for page in pages:
        # What a form can send without asking first.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
            for path in (f"/tasks/{task}/cancel", "/drain", "/reload", "/level"):
                answer = http(port, "POST", b'{"level":"trace"}', {"content-type": kind, **page}, path=path)
                assert answer.status == 403, f"{page} {path}: {answer.status} {answer.text}"
        for path in ("/tasks", "/config", f"/tasks/{task}", "/events", "/metrics"):
            answer = http(port, "GET", None, page, path=path, seconds=3)
            assert answer.status == 403 and "access-control-allow-origin" not in answer.headers, f"{page} {path}: {answer.status}"
    asks = {"origin": "http://evil.example", "access-control-request-method": "POST", "access-control-request-private-network": "true"}
    preflight = http(port, "OPTIONS", None, asks, path="/drain")
    assert not [name for name in preflight.headers if name.startswith("access-control-allow")], preflight.headers
    for path in (f"/{EVIL}", f"/tasks/{EVIL}", f"/tasks?tool={EVIL}", f"/tasks?sort={EVIL}", f"/board/{EVIL}", "/board/../../etc/passwd", "/board/%2e%2e/%2e%2e/etc/passwd"):
        answer = http(port, "GET", path=path)
        assert "html" not in answer.headers.get("content-type", "") and "root:" not in answer.text, f"{path}: {answer.headers}"
    board = http(port, "GET", path="/")
    assert "script-src 'self'" in board.headers["content-security-policy"] and "unsafe" not in board.headers["content-security-policy"]
    assert raincheck.modern("tasks/get", {"taskId": task}).answer(7)["result"]["status"] in ("working", "completed")
    assert raincheck.child.poll() is None
