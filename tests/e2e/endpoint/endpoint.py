#!/usr/bin/env python3
"""A model endpoint that follows a script instead of thinking. Python's standard library and nothing else.

    endpoint.py SCRIPT LOG

SCRIPT is a JSON list of steps, one tool call each (tools.py has their kinds). The endpoint listens on a free port
of 127.0.0.1 and prints it. To each request of a client's main conversation it answers with the first step that
has no result yet, and when all have one, with a sentence that ends the turn. It keeps no state: how far a
conversation is stands in what the client sends back. Other requests (titles, summaries, "who speaks next?") get
a short answer of the shape that was asked for.

LOG gets one JSON object a line: requests, calls, results and ends. The endpoint ends when its standard input does.
"""

import http.server
import json
import os
import sys
import threading
import time
import zlib

import anthropic_messages
import gemini_content
import openai_chat
import openai_responses
import tools

PROTOCOLS = [anthropic_messages, openai_responses, openai_chat, gemini_content]
END = "The work is done."


class Script:
    """The steps, and the log of what became of them."""

    def __init__(self, steps, log):
        self.steps = steps
        self.log = log
        self.lock = threading.Lock()
        self.seen = set()

    def note(self, **what):
        with self.lock:
            self.log.write(json.dumps({"at": round(time.monotonic(), 1)} | what) + "\n")
            self.log.flush()

    def answer(self, conversation):
        """What the model says now: a call, or a text."""
        plan = tools.plan(self.steps, conversation.tools) if conversation.tools else None
        if plan is None:
            self.note(aside=conversation.model)
            return tools.Text(tools.example(conversation.schema) if conversation.schema else "Fine.")
        for at, result in enumerate(conversation.results):
            if (conversation.key, at) not in self.seen and at < len(plan):
                self.seen.add((conversation.key, at))
                self.note(result=plan[at].step, tool=plan[at].tool, text=result)
        at = len(conversation.results)
        if at < len(plan):
            self.note(call=plan[at].step, tool=plan[at].tool, arguments=plan[at].arguments)
            return plan[at]
        self.note(end=conversation.model, steps=at)
        return tools.Text(END)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.script.note(request=self.path, method="GET")
        if self.headers.get("Upgrade"):
            # Codex would rather have a web socket, and takes this for "use requests".
            return self.say({"error": {"message": "no web sockets here"}}, 426)
        for protocol in PROTOCOLS:
            said = getattr(protocol, "get", lambda _: None)(self.path)
            if said is not None:
                return self.say(said)
        self.refuse()

    do_HEAD = do_GET

    def do_POST(self):
        script = self.server.script
        request = self.body()
        path = self.path.split("?")[0]
        protocol = next((p for p in PROTOCOLS if p.speaks(path)), None)
        script.note(request=self.path, understood=protocol is not None)
        if protocol is None or request is None:
            return self.refuse()
        small = protocol.small(path, request)
        if small is not None:
            return self.say(small)
        conversation = protocol.read(path, request)
        if os.environ.get("ENDPOINT_DUMP"):
            script.note(body=request)
        answer = script.answer(conversation)
        if conversation.stream:
            self.stream(protocol.events(answer, conversation))
        else:
            self.say(protocol.whole(answer, conversation))

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.headers.get("Content-Encoding") in ("gzip", "deflate"):
                data = zlib.decompress(data, 47)
            return json.loads(data or b"{}")
        except (ValueError, zlib.error):
            return None

    def say(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self):
        self.say({"error": {"type": "not_found_error", "message": f"no such thing: {self.path}"}}, 404)

    def stream(self, events):
        """Server-sent events, one chunk each, so that the client really reads a stream."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, value in events:
            text = value if isinstance(value, str) else json.dumps(value)
            event = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        # A client that ends with a connection open is none.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)


def main():
    steps, log = sys.argv[1:3]
    with open(steps, encoding="utf-8") as file:
        steps = json.load(file)
    server = Server(("127.0.0.1", 0), Handler)
    server.script = Script(steps, open(log, "a", encoding="utf-8"))
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()
