"""From the script's steps to calls of the tools that a client itself declares.

A step is one of
    {"read": PATH}
    {"edit": PATH, "old": TEXT, "new": TEXT}     an existing file, by the client's own editing tool
    {"write": PATH, "text": TEXT}                a new file, by the same
    {"shell": COMMAND}
"""

import dataclasses
import json


@dataclasses.dataclass
class Text:
    text: str


@dataclasses.dataclass
class Call:
    step: int  # index in the script
    tool: str
    arguments: dict
    raw: str | None = None  # for tools that take text and not JSON
    id: str = ""


@dataclasses.dataclass
class Conversation:
    model: str
    tools: dict  # name -> JSON schema of the arguments, or the description of a tool that takes text
    results: list  # texts of the tool results so far, in order
    stream: bool
    key: str = ""  # tells conversations of one endpoint apart
    schema: dict | None = None  # of the answer, where one is asked for


SHELLS = ["Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell", "local_shell"]
EDITS = ["Edit", "edit", "replace"]
WRITES = ["Write", "write", "write_file"]
READS = ["Read", "read", "read_file"]
PATCH = "apply_patch"
PROGRAM = "exec"  # takes a program that calls the other tools


def plan(steps, declared):
    """One call a step, or None when this is not a conversation that has the tools."""
    programmed = "tools.exec_command" in str(declared.get(PROGRAM))
    if not programmed and not any(name in declared for name in SHELLS):
        return None
    make = program if programmed else call
    calls = [make(index, step, declared) for index, step in enumerate(steps)]
    for number, made in enumerate(calls):
        made.id = f"call_{number:04}"
    return calls


def call(index, step, declared):
    def first(names):
        return next((name for name in names if name in declared), None)

    def made(tool, **values):
        return Call(index, tool, arguments(declared[tool], values))

    if "shell" in step:
        return made(first(SHELLS), command=step["shell"])
    if "read" in step:
        tool = first(READS)
        return made(tool, path=step["read"]) if tool else made(first(SHELLS), command=f"cat '{step['read']}'")
    if "edit" in step:
        if tool := first(EDITS):
            return made(tool, path=step["edit"], old=step["old"], new=step["new"])
        return patch(index, declared, hunk(step["edit"], step["old"], step["new"]))
    if "write" in step:
        if tool := first(WRITES):
            return made(tool, path=step["write"], text=step["text"])
        return patch(index, declared, added(step["write"], step["text"]))
    raise ValueError(f"no such step: {step}")


def program(index, step, _):
    """The same as a program, for a client whose one tool takes JavaScript that calls the others."""
    if "edit" in step:
        called = f"apply_patch({json.dumps(patch_text(hunk(step['edit'], step['old'], step['new'])))})"
    elif "write" in step:
        called = f"apply_patch({json.dumps(patch_text(added(step['write'], step['text'])))})"
    else:
        command = step["shell"] if "shell" in step else f"cat '{step['read']}'"
        called = f"exec_command({json.dumps({'cmd': command})})"
    return Call(index, PROGRAM, {}, raw=f"text(await tools.{called});\n")


# What clients call the same thing.
NAMES = {
    "command": ["command", "cmd"],
    "path": ["file_path", "filePath", "absolute_path", "path"],
    "old": ["old_string", "oldString"],
    "new": ["new_string", "newString"],
    "text": ["content", "contents", "file_text"],
}


def arguments(schema, values):
    """Arguments by the names that the schema has, and something for whatever else it requires."""
    properties = schema.get("properties", {})
    result = {}
    for what, value in values.items():
        name = next((n for n in NAMES[what] if n in properties), None)
        if name is None:
            raise ValueError(f"no '{what}' among {list(properties)}")
        if kind(properties[name]) == "array":
            value = ["bash", "-c", value]
        result[name] = value
    for name in schema.get("required", []):
        if name not in result:
            result[name] = value_of(properties.get(name, {}), name)
    return result


def kind(schema):
    kind = schema.get("type", "string")
    return str(kind[0] if isinstance(kind, list) else kind).lower()


def value_of(schema, name="text"):
    """The least that a schema allows."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    match kind(schema):
        case "object":
            properties = schema.get("properties", {})
            return {n: value_of(properties.get(n, {}), n) for n in schema.get("required", properties)}
        case "array":
            return []
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case _:
            return f"a {name.replace('_', ' ')}"


def example(schema):
    return json.dumps(value_of(schema))


def patch_text(body):
    return f"*** Begin Patch\n{body}*** End Patch\n"


def patch(index, declared, body):
    text = patch_text(body)
    if isinstance(declared.get(PATCH), str):
        return Call(index, PATCH, {"input": text}, raw=text)
    if PATCH in declared:
        return Call(index, PATCH, {"input": text})
    shell = next(name for name in SHELLS if name in declared)
    return Call(index, shell, arguments(declared[shell], {"command": f"apply_patch <<'EOF'\n{text}EOF\n"}))


def hunk(path, old, new):
    removed = "".join(f"-{line}\n" for line in old.splitlines())
    added = "".join(f"+{line}\n" for line in new.splitlines())
    return f"*** Update File: {path}\n@@\n{removed}{added}"


def added(path, text):
    return f"*** Add File: {path}\n" + "".join(f"+{line}\n" for line in text.splitlines())


def text_of(content):
    """The text in a result, whatever a client wraps it in."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content, dict):
        for name in ("text", "output", "error", "content"):
            if name in content:
                return text_of(content[name])
    return json.dumps(content)


