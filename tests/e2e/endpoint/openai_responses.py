"""The Responses API: POST /v1/responses."""

import json

from tools import Call, Conversation, text_of


def speaks(path):
    return path.endswith("/responses")


def small(path, request):
    return None


def read(path, request):
    items = request.get("input")
    items = items if isinstance(items, list) else []
    declared = {}
    declare(request.get("tools") or [], declared)
    for item in items:
        if item.get("type") == "additional_tools":
            declare(item.get("tools") or [], declared)
    outputs = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
    results = [text_of(item.get("output", "")) for item in items if item.get("type") in outputs]
    form = (request.get("text") or {}).get("format") or {}
    return Conversation(
        model=request.get("model", ""),
        tools=declared,
        results=results,
        stream=bool(request.get("stream")),
        schema=form.get("schema"),
    )


def declare(tools, declared):
    for tool in tools:
        match tool.get("type"):
            case "function":
                declared[tool["name"]] = tool.get("parameters") or {}
            case "custom":
                # Takes text; what it says about itself is all there is to go by.
                declared[tool["name"]] = tool.get("description", "")
            case "namespace":
                declare(tool.get("tools") or [], declared)


def item(answer):
    if not isinstance(answer, Call):
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        return {"type": "message", "id": "msg_scripted", "role": "assistant", "status": "completed", "content": content}
    common = {"id": "fc_" + answer.id, "call_id": answer.id, "name": answer.tool, "status": "completed"}
    if answer.raw is not None:
        return common | {"type": "custom_tool_call", "input": answer.raw}
    return common | {"type": "function_call", "arguments": json.dumps(answer.arguments)}


def whole(answer, conversation):
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 110,
    }
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": conversation.model,
        "output": [item(answer)],
        "usage": usage,
    }


def events(answer, conversation):
    done = whole(answer, conversation)
    full = done["output"][0]
    number = iter(range(100))

    def event(name, **more):
        return name, {"type": name, "sequence_number": next(number)} | more

    yield event("response.created", response=done | {"status": "in_progress", "output": [], "usage": None})
    begun = full | {"status": "in_progress"}
    if full["type"] == "message":
        yield event("response.output_item.added", output_index=0, item=begun | {"content": []})
        where = {"item_id": full["id"], "output_index": 0, "content_index": 0}
        part = full["content"][0]
        yield event("response.content_part.added", **where, part=part | {"text": ""})
        yield event("response.output_text.delta", **where, delta=part["text"])
        yield event("response.output_text.done", **where, text=part["text"])
        yield event("response.content_part.done", **where, part=part)
    else:
        name = "input" if answer.raw is not None else "arguments"
        kind = "custom_tool_call_input" if answer.raw is not None else "function_call_arguments"
        yield event("response.output_item.added", output_index=0, item=begun | {name: ""})
        where = {"item_id": full["id"], "output_index": 0}
        for part in (full[name][:7], full[name][7:]):
            yield event(f"response.{kind}.delta", **where, delta=part)
        yield event(f"response.{kind}.done", **where, **{name: full[name]})
    yield event("response.output_item.done", output_index=0, item=full)
    yield event("response.completed", response=done)
