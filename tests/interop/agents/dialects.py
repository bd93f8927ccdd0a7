"""How models are asked and how they answer, one class for each API: `heard` reads the names of the tools and what the last call
answered, `answer` writes a call or a text, `events` writes the same as a stream."""

import json
from urllib.parse import urlsplit


def dialect_of(path):
    """The dialect of a path; `None`: nothing that a script answers."""
    path = urlsplit(path).path
    return next((dialect for end, dialect in PATHS.items() if path.endswith(end)), None)


def text(content):
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def event(data, name=None):
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


class Chat:
    """OpenAI's chat completions."""

    @staticmethod
    def heard(asked):
        tools = [tool["function"]["name"] for tool in asked.get("tools", [])]
        last = asked["messages"][-1]
        return tools, text(last["content"]) if last["role"] == "tool" else None

    @staticmethod
    def answer(asked, turn):
        message, why = {"role": "assistant", "content": turn}, "stop"
        if not isinstance(turn, str):
            name, arguments = turn
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": f"c{len(asked['messages'])}", "type": "function", "function": function}
            message, why = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": why}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "script", "choices": [choice]}

    @staticmethod
    def streams(_path, asked):
        return asked.get("stream", False)

    @staticmethod
    def events(said):
        """All that it says, then why it ends."""
        choice = said["choices"][0]
        chunk = {**said, "object": "chat.completion.chunk"}
        first = {"index": 0, "delta": choice["message"], "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks = "".join(event({**chunk, "choices": [choice]}) for choice in (first, last))
        return f"{chunks}data: [DONE]\n\n"


class Responses:
    """OpenAI's responses, always as a stream. The tools of an MCP server may stand in a namespace, and a call then names it."""

    @staticmethod
    def heard(asked):
        names = []
        for tool in asked.get("tools", []):
            inside = tool["tools"] if tool["type"] == "namespace" else [tool]
            space = f"{tool['name']}{SPACE}" if tool["type"] == "namespace" else ""
            names += [f"{space}{one['name']}" for one in inside if "name" in one]
        last = asked["input"][-1]
        is_output = last.get("type") == "function_call_output"
        return names, text(last["output"]) if is_output else None

    @staticmethod
    def answer(asked, turn):
        if isinstance(turn, str):
            content = [{"type": "output_text", "text": turn, "annotations": []}]
            item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
        else:
            name, arguments = turn
            *space, name = name.split(SPACE)
            item = {"type": "function_call", "id": "f", "call_id": f"c{len(asked['input'])}", "name": name}
            item |= {"arguments": json.dumps(arguments)} | ({"namespace": space[0]} if space else {})
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage}

    @staticmethod
    def streams(_path, _asked):
        return True

    @staticmethod
    def events(said):
        created = {"type": "response.created", "response": {"id": said["id"]}}
        done = {"type": "response.output_item.done", "output_index": 0, "item": said["output"][0]}
        completed = {"type": "response.completed", "response": said}
        return "".join(event(it, it["type"]) for it in (created, done, completed))


class Messages:
    """Anthropic's messages."""

    @staticmethod
    def heard(asked):
        tools = [tool["name"] for tool in asked.get("tools", [])]
        # Claude Code's reminders come after what its user or a tool said.
        last = next(said["content"] for said in reversed(asked["messages"]) if said["role"] != "system")
        parts = [{"type": "text", "text": last}] if isinstance(last, str) else last
        results = [part.get("content", "") for part in parts if part["type"] == "tool_result"]
        # What ran in the background is told like a word of the user.
        told = [part["text"] for part in parts if "<task-notification>" in part.get("text", "")]
        return tools, text([*results, *told][-1]) if told or results else None

    @staticmethod
    def answer(asked, turn):
        content, why = {"type": "text", "text": turn}, "end_turn"
        if not isinstance(turn, str):
            name, arguments = turn
            content = {"type": "tool_use", "id": f"toolu_{len(asked['messages'])}", "name": name, "input": arguments}
            why = "tool_use"
        message = {"id": f"msg_{len(asked['messages'])}", "type": "message", "role": "assistant", "model": asked["model"], "content": [content]}
        return message | {"stop_reason": why, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}

    @staticmethod
    def streams(_path, asked):
        return asked.get("stream", False)

    @staticmethod
    def events(said):
        content = said["content"][0]
        if content["type"] == "text":
            empty, delta = {**content, "text": ""}, {"type": "text_delta", "text": content["text"]}
        else:
            empty, delta = {**content, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(content["input"])}
        ended = {"stop_reason": said["stop_reason"], "stop_sequence": None}
        events = [
            {"type": "message_start", "message": {**said, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        return "".join(event(it, it["type"]) for it in events)


class Gemini:
    """Google's generateContent."""

    @staticmethod
    def heard(asked):
        tools = [it["name"] for tool in asked.get("tools", []) for it in tool.get("functionDeclarations", [])]
        parts = asked["contents"][-1]["parts"]
        results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return tools, json.dumps(results[-1]) if results else None

    @staticmethod
    def answer(_asked, turn):
        part = {"text": turn}
        if not isinstance(turn, str):
            name, arguments = turn
            part = {"functionCall": {"name": name, "args": arguments}}
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [candidate], "usageMetadata": usage}

    @staticmethod
    def streams(path, _asked):
        return ":stream" in path

    @staticmethod
    def events(said):
        return event(said)


# Between a namespace and a name.
SPACE = "\t"

PATHS = {
    "/chat/completions": Chat,
    "/responses": Responses,
    "/messages": Messages,
    ":generateContent": Gemini,
    ":streamGenerateContent": Gemini,
}
