"""The part of the OpenAI API that agents need (chat completions), on a port of its own, with a script for its model."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Api:
    def __init__(self, script):
        self.script = script
        self.failed = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/v1"

    def message(self, asked):
        """What the model says to the messages in `asked`, and why it stops there."""
        tools = [tool["function"]["name"] for tool in asked.get("tools", [])]
        # opencode also asks for a title, without tools.
        if not tools:
            return {"role": "assistant", "content": "Title"}, "stop"
        last = asked["messages"][-1]
        said = text(last["content"]) if last["role"] == "tool" else None
        try:
            call = self.script.next(tools, said)
        except AssertionError as error:
            self.failed.append(error)
            return {"role": "assistant", "content": str(error)}, "stop"
        if call is None:
            return {"role": "assistant", "content": said}, "stop"
        name, arguments = call
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"index": 0, "id": f"c{len(asked['messages'])}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"


def text(content):
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def handler(api):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message, why = api.message(asked)
            if asked.get("stream"):
                body, content_type = events(message, why), "text/event-stream"
            else:
                body, content_type = json.dumps(answer("", message=message, finish_reason=why)), "application/json"
            body = body.encode()
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def events(message, why):
    """The same message as a stream: all that it says, then why it ends."""
    said = answer(".chunk", delta=message, finish_reason=None)
    ended = answer(".chunk", delta={}, finish_reason=why)
    return "".join(f"data: {data}\n\n" for data in (json.dumps(said), json.dumps(ended), "[DONE]"))


def answer(kind, **choice):
    return {
        "id": "x",
        "object": f"chat.completion{kind}",
        "created": 0,
        "model": "script",
        "choices": [{"index": 0, **choice}],
    }
