"""A server of the OpenAI protocol with known delays and known faults, for
tests of clients. /predictions/ answers "cat"; else the model's name says how:

    steady          first token after 60 ms, 10 more every 15 ms
    spread          no stream: request i takes 20 + (i % 100) ms
    vectors         an embedding
    stall           stands still for the first second, then answers at once
    cut             half a stream, then the connection closes
    no-done         a whole stream without [DONE]
    bad-json        an event that is no JSON
    stream-error    an error event after two tokens
    mixed           in turn: an answer after 20 ms; half a stream after a second;
                    429 with Retry-After: 0; an event that is no JSON
    limited         429 with Retry-After: 1
    busy            503
    hang            never answers
    reset           closes the connection without a reply
    garbage         bytes that are no HTTP
    close           answers and closes the connection each time

`waits` holds the seconds that each request really took here.
"""
import asyncio
import json
import threading
import time


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(payload):
    return chunk(b"data: " + payload.encode() + b"\n\n")


def token(text):
    return event(json.dumps({"object": "chat.completion.chunk",
                             "choices": [{"delta": {"content": text}}]}))


STREAM = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
          b"Transfer-Encoding: chunked\r\n\r\n")
USAGE = json.dumps({"object": "chat.completion.chunk", "choices": [],
                    "usage": {"prompt_tokens": 5,
                              "completion_tokens": 11}})
ANSWER = json.dumps({
    "object": "chat.completion",
    "choices": [{"message": {"content": "yes"}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3}}).encode()


def reply(body, status="200 OK", headers=""):
    return (f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            f"{headers}Content-Length: {len(body)}\r\n\r\n").encode() + body


class FakeLlm:
    def __init__(self):
        self.waits = []
        self.num_requests = 0
        self.bodies = []
        self._begun = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()
        self.url = f"http://127.0.0.1:{self.port}"

    def _run(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    def stop(self):
        async def end():
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._loop.stop()
        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(5)

    async def _serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1)
                               for line in lines[1:] if ": " in line)
                body = await reader.readexactly(
                    int(headers.get("content-length", 0)))
                begun = time.monotonic()
                path = lines[0].split(" ")[1]
                if not await self._answer(path, body, writer):
                    break
                await writer.drain()
                self.waits.append(time.monotonic() - begun)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def _answer(self, path, body, writer):
        if path == "/tokenize":
            text = json.loads(body)["prompt"]
            writer.write(reply(b'{"count": %d}' % len(text.split())))
            return True
        if not body:
            writer.write(reply(b"{}", "404 Not Found"))
            return True
        if path.startswith("/predictions/"):
            self.bodies.append(body)
            writer.write(reply(b"cat"))
            return True
        request = json.loads(body)
        self.bodies.append(request)
        index = self.num_requests
        self.num_requests += 1
        self._begun = self._begun or time.monotonic()
        behaviour = getattr(self, "_" + request["model"].replace("-", "_"))
        return await behaviour(index, writer)

    async def _steady(self, index, writer):
        await asyncio.sleep(0.060)
        writer.write(STREAM + token("one"))
        for _ in range(10):
            await asyncio.sleep(0.015)
            writer.write(token(" more"))
        writer.write(event(USAGE) + event("[DONE]") + b"0\r\n\r\n")
        return True

    async def _spread(self, index, writer):
        await asyncio.sleep((20 + index % 100) / 1000)
        writer.write(reply(ANSWER))
        return True

    async def _vectors(self, index, writer):
        writer.write(reply(b'{"data": [{"embedding": [0.5]}], '
                           b'"usage": {"prompt_tokens": 9}}'))
        return True

    async def _stall(self, index, writer):
        await asyncio.sleep(self._begun + 1 - time.monotonic())
        writer.write(reply(ANSWER))
        return True

    async def _cut(self, index, writer):
        writer.write(STREAM + token("one") + b'20\r\ndata: {"cho')
        await writer.drain()
        return False

    async def _no_done(self, index, writer):
        writer.write(STREAM + token("one") + b"0\r\n\r\n")
        return True

    async def _bad_json(self, index, writer):
        writer.write(STREAM + event('{"choices": [') + event("[DONE]") +
                     b"0\r\n\r\n")
        return True

    async def _stream_error(self, index, writer):
        writer.write(STREAM + token("one") + token("two") +
                     event('{"error": {"message": "out of pages"}}') +
                     event("[DONE]") + b"0\r\n\r\n")
        return True

    async def _mixed(self, index, writer):
        kind = index % 4
        if kind == 0:
            await asyncio.sleep(0.020)
            writer.write(STREAM + token("one") + event(USAGE) +
                         event("[DONE]") + b"0\r\n\r\n")
            return True
        if kind == 1:
            await asyncio.sleep(1)
            return await self._cut(index, writer)
        if kind == 2:
            writer.write(reply(b"{}", "429 Too Many Requests",
                               "Retry-After: 0\r\n"))
            return True
        return await self._bad_json(index, writer)

    async def _limited(self, index, writer):
        writer.write(reply(b"{}", "429 Too Many Requests",
                           "Retry-After: 1\r\n"))
        return True

    async def _busy(self, index, writer):
        writer.write(reply(b'{"error": "warming up"}',
                           "503 Service Unavailable"))
        return True

    async def _hang(self, index, writer):
        await asyncio.sleep(3600)

    async def _reset(self, index, writer):
        return False

    async def _garbage(self, index, writer):
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        return False

    async def _close(self, index, writer):
        writer.write(reply(ANSWER, headers="Connection: close\r\n"))
        await writer.drain()
        return False
