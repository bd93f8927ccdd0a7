"""The part of a model's API that agents need, on a port of its own, with a script for its model. It speaks as OpenAI does (chat
completions, responses), as Anthropic does (messages) and as Google does (generateContent): dialects.py."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dialects import dialect_of


class Api:
    def __init__(self, script):
        self.script = script
        self.failed = []
        self.lock = threading.Lock()
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.root = f"http://127.0.0.1:{server.server_port}"
        self.url = f"{self.root}/v1"

    def turn(self, tools, said):
        """What the model says: a call, as name and arguments, or a text. `tools` are the names of those that there are, `said` is
        what the last call answered."""
        # Agents also ask for titles and summaries.
        if not self.script.knows(tools):
            return "Title"
        with self.lock:
            try:
                return self.script.next(tools, said) or said
            except AssertionError as error:
                self.failed.append(error)
                return str(error)


def handler(api):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
            dialect = dialect_of(self.path)
            if dialect is None:
                return self.say(404, "application/json", "{}")
            said = dialect.answer(asked, api.turn(*dialect.heard(asked)))
            if dialect.streams(self.path, asked):
                self.say(200, "text/event-stream", dialect.events(said))
            else:
                self.say(200, "application/json", json.dumps(said))

        def do_GET(self):
            self.say(404, "application/json", "{}")

        def say(self, status, content_type, body):
            body = body.encode()
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
