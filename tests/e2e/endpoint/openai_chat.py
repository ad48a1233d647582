"""The Chat Completions API: POST /v1/chat/completions."""

import json

from tools import Call, Conversation, text_of


def speaks(path):
    return path.endswith("/chat/completions")


def small(path, request):
    return None


def read(path, request):
    functions = [t["function"] for t in request.get("tools") or [] if t.get("type") == "function"]
    messages = request.get("messages", [])
    form = request.get("response_format") or {}
    return Conversation(
        model=request.get("model", ""),
        tools={f["name"]: f.get("parameters") or {} for f in functions},
        results=[text_of(m.get("content") or "") for m in messages if m.get("role") == "tool"],
        stream=bool(request.get("stream")),
        schema=(form.get("json_schema") or {}).get("schema"),
    )


def calls(answer):
    function = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
    return [{"id": answer.id, "type": "function", "function": function}]


USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def whole(answer, conversation):
    call = isinstance(answer, Call)
    message = {"role": "assistant", "content": None if call else answer.text}
    if call:
        message["tool_calls"] = calls(answer)
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": conversation.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
        "usage": USAGE,
    }


def events(answer, conversation):
    def chunk(delta, finish=None, **more):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        common = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0}
        return None, common | {"model": conversation.model, "choices": [choice]} | more

    yield chunk({"role": "assistant", "content": ""})
    if isinstance(answer, Call):
        call = calls(answer)[0] | {"index": 0}
        text = call["function"]["arguments"]
        yield chunk({"tool_calls": [call | {"function": {"name": answer.tool, "arguments": text[:7]}}]})
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": text[7:]}}]})
        yield chunk({}, "tool_calls")
    else:
        yield chunk({"content": answer.text})
        yield chunk({}, "stop")
    yield chunk({}, choices=[], usage=USAGE)
    yield None, "[DONE]"
