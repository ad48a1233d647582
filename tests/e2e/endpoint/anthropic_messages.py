"""The Messages API: POST /v1/messages."""

import json

from tools import Call, Conversation, text_of


def speaks(path):
    return path.endswith(("/messages", "/messages/count_tokens"))


def small(path, request):
    if path.endswith("/count_tokens"):
        return {"input_tokens": 100}
    return None


def read(path, request):
    declared = {t["name"]: t["input_schema"] for t in request.get("tools") or [] if "input_schema" in t}
    results = []
    for message in request.get("messages", []):
        content = message.get("content")
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "tool_result":
                results.append(text_of(block.get("content", "")))
    form = (request.get("output_config") or {}).get("format") or request.get("output_format") or {}
    return Conversation(
        model=request.get("model", ""),
        tools=declared,
        results=results,
        stream=bool(request.get("stream")),
        schema=form.get("schema"),
    )


def block(answer):
    if isinstance(answer, Call):
        return {"type": "tool_use", "id": "toolu_" + answer.id, "name": answer.tool, "input": answer.arguments}
    return {"type": "text", "text": answer.text}


def whole(answer, conversation):
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": [block(answer)],
        "stop_reason": "tool_use" if isinstance(answer, Call) else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 10},
    }


def events(answer, conversation):
    message = whole(answer, conversation)
    full, stop = message["content"][0], message["stop_reason"]
    yield "message_start", {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    if isinstance(answer, Call):
        empty = full | {"input": {}}
        text = json.dumps(answer.arguments)
        # In two parts: a client has to put them together.
        parts = [{"type": "input_json_delta", "partial_json": p} for p in (text[:7], text[7:])]
    else:
        empty = full | {"text": ""}
        parts = [{"type": "text_delta", "text": answer.text}]
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": empty}
    for part in parts:
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": part}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    yield "message_delta", {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": 10},
    }
    yield "message_stop", {"type": "message_stop"}
