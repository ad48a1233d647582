"""The Gemini API: POST .../models/MODEL:generateContent and :streamGenerateContent."""

from tools import Call, Conversation, text_of


def speaks(path):
    return path.endswith((":generateContent", ":streamGenerateContent", ":countTokens"))


def small(path, request):
    if path.endswith(":countTokens"):
        return {"totalTokens": 100}
    return None


def read(path, request):
    declared = {}
    for tool in request.get("tools") or []:
        for function in tool.get("functionDeclarations") or []:
            schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
            declared[function["name"]] = schema
    results = []
    for content in request.get("contents", []):
        for part in content.get("parts", []):
            if "functionResponse" in part:
                results.append(text_of(part["functionResponse"].get("response", {})))
    form = request.get("generationConfig") or {}
    return Conversation(
        model=path.rsplit("/", 1)[-1].split(":")[0],
        tools=declared,
        results=results,
        stream=path.endswith(":streamGenerateContent"),
        schema=form.get("responseJsonSchema") or form.get("responseSchema"),
    )


def whole(answer, conversation):
    if isinstance(answer, Call):
        part = {"functionCall": {"name": answer.tool, "args": answer.arguments}}
    else:
        part = {"text": answer.text}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    return {
        "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
        "usageMetadata": usage,
        "modelVersion": conversation.model,
    }


def events(answer, conversation):
    full = whole(answer, conversation)
    if not isinstance(answer, Call):
        # A text arrives in parts, a call in one.
        for part in (answer.text[:3], answer.text[3:]):
            content = {"role": "model", "parts": [{"text": part}]}
            yield None, full | {"candidates": [{"index": 0, "content": content}]}
        full = full | {"candidates": [full["candidates"][0] | {"content": {"role": "model", "parts": [{"text": ""}]}}]}
    yield None, full
