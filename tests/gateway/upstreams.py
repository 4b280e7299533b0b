"""An upstream that behaves as told: a raw server on loopback whose models are named after what they do."""

import asyncio
import json
import threading
import zlib
from collections import Counter

from fedrouter.gateway.upstream.deployments import FAILURES

CHUNKS = 5
ANY_ORIGIN = "access-control-allow-origin: *\r\n"  # as vLLM and Ollama can be told to send


def completion(model="m", text="Four.", usage=(10, 5), **more) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    found = {"id": "c-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    if usage:
        found["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(found | more, indent=1).encode()  # laid out as no gateway would: bytes must pass untouched


def chunk(model, delta, finish=None, **more) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}] if delta is not None else []
    found = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices}
    return b"data: " + json.dumps(found | more).encode() + b"\n\n"


def chunks(model, with_usage) -> list[bytes]:
    found = [chunk(model, {"role": "assistant", "content": ""})]
    found += [chunk(model, {"content": f"word{place} "}) for place in range(CHUNKS)]
    found.append(chunk(model, {}, "stop"))
    if with_usage:
        found.append(chunk(model, None, usage={"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 15}))
    return [*found, b"data: [DONE]\n\n"]


def other_answer(request, streamed) -> bytes:
    """What the other APIs answer, laid out as no gateway would."""
    model, path = request["model"], request["path"].rpartition("/")[2]
    usage = {"input_tokens": 10, "output_tokens": 5}
    if path == "messages":
        found = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn"}
        found |= {"stop_sequence": None, "content": [{"type": "text", "text": "Four."}]}
        begun = usage | {"cache_read_input_tokens": 90, "output_tokens": 1}
        events = [
            {"type": "message_start", "message": found | {"content": [], "stop_reason": None, "usage": begun}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Four."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
        found["usage"] = usage | {"cache_read_input_tokens": 90}
    elif path == "responses":
        part = {"type": "output_text", "text": "Four.", "annotations": []}
        item = {"id": "i_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        found = {"id": f"resp_{model}", "object": "response", "created_at": 1, "model": model, "status": "completed"}
        found |= {"output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        found["usage"] = usage | {"total_tokens": 15, "input_tokens_details": {"cached_tokens": 4}}
        delta = {"item_id": "i_1", "output_index": 0, "content_index": 0, "delta": "Four.", "logprobs": []}
        events = [
            {"type": "response.created", "sequence_number": 0, "response": found | {"output": [], "usage": None}},
            {"type": "response.output_text.delta", "sequence_number": 1, **delta},
            {"type": "response.completed", "sequence_number": 2, "response": found},
        ]
    elif path == "embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}
        found = {"object": "list", "model": model, "data": [vector]}
        found["usage"] = {"prompt_tokens": 10, "total_tokens": 10}
        events = []
    else:
        choice = {"index": 0, "text": "Four.", "finish_reason": "stop", "logprobs": None}
        found = {"id": "c", "object": "text_completion", "created": 1, "model": model, "choices": [choice]}
        events = [found, found | {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}]
        found = found | {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
    if not streamed:
        return json.dumps(found, indent=1).encode()
    parts = []
    for event in events:
        parts.append(f"event: {event['type']}\n" if "type" in event else "")
        parts.append(f"data:  {json.dumps(event)}\n\n")
    return "".join(parts).encode() + (b"data: [DONE]\n\n" if path == "completions" else b"")


TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}


class ControlledUpstream:
    """Runs on its own thread; keeps every request body and header it got, and how often each model was asked."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.asked: Counter[str] = Counter()
        self.closed_early = threading.Event()
        self.released = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/v1"

    def forget(self) -> None:
        self.bodies.clear()
        self.headers.clear()
        self.asked.clear()
        self.closed_early.clear()
        self.released.clear()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def start():
            server = await asyncio.start_server(self._connection, self._host, 0, limit=1 << 26)
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            return server

        server = self._loop.run_until_complete(start())
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _connection(self, reader, writer) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.bodies.append(body)
                self.headers.append(headers | {"path": lines[0]})
                request = json.loads(body) | {"path": lines[0].split()[1].split("?")[0]}
                self.asked[request["model"]] += 1
                if not await self._answer(request, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, request, writer) -> bool:
        model, streamed = request["model"], bool(request.get("stream"))
        behavior = model.split("/")[0]
        if behavior == "slow":
            await asyncio.sleep(0.3)
        elif behavior == "recovers":  # fails until a circuit breaker opens, then answers once it is released
            if self.asked[model] <= FAILURES:
                return self._plain(writer, b"oops", 500)
            while not self.released.is_set():
                await asyncio.sleep(0.01)
        elif behavior == "waits":  # until it is released
            while not self.released.is_set():
                await asyncio.sleep(0.25)
        elif behavior == "hang":
            await asyncio.sleep(60)
        elif behavior == "reset":
            writer.transport.abort()
            return False
        elif behavior == "busy" or (behavior == "busy-once" and self.asked[model] == 1):
            after = model.split("/")[1] if "/" in model else "0"
            return self._plain(writer, b'{"error": {"message": "slow down"}}', 429, f"retry-after: {after}\r\n")
        elif behavior == "broken":
            return self._plain(writer, b"oops, a prompt may be quoted here", 500)
        elif behavior == "broken-once" and self.asked[model] == 1:
            return self._plain(writer, b"oops", 503)
        elif behavior == "unauthorised":
            return self._plain(writer, b'{"error": {"message": "bad upstream key"}}', 401)
        elif behavior == "redirect":
            return self._plain(writer, b"", 302, f"location: http://127.0.0.1:{self.port}/elsewhere\r\n")
        elif behavior == "status":  # an answer with another status than 200
            return self._plain(writer, completion(model), int(model.split("/")[1]))
        elif behavior == "refuses":
            return self._plain(writer, b'{"error": {"message": "temperature too high", "code": "bad"}}', 400)
        elif behavior == "too-long":
            error = {"message": "This model's maximum context length is 10 tokens.", "code": "context_length_exceeded"}
            return self._plain(writer, json.dumps({"error": error}).encode(), 400)
        elif behavior == "lacks-it":
            return self._plain(writer, b'{"error": {"message": "Unsupported parameter: \'seed\'", "code": null}}', 400)
        elif behavior == "rubbish":
            return self._plain(writer, b"<html>it works!</html>", 200, kind="text/html")
        elif behavior == "rubbish-json":
            return self._plain(writer, b'{"hello": 1', 200)
        elif behavior == "grades":
            return self._plain(writer, completion(model, '{"score": 7}'), 200)
        elif behavior == "spends":  # all that it may
            await asyncio.sleep(0.1)
            return self._plain(writer, completion(model, usage=(10, request["max_tokens"] * request["n"])), 200)
        elif behavior == "no-usage" and request["path"].endswith("/chat/completions"):
            return self._plain(writer, completion(model, "x" * 40, usage=None), 200)
        elif behavior == "packed":  # although it was asked not to; packed/ENCODING/SIZE, broken off if SIZE is cut
            return self._packed(request, writer, *model.split("/")[1:])
        elif behavior == "never-ends":  # all of an answer of Anthropic's API except for its end
            begun, _, _ = other_answer(request, True).partition(b"event: message_delta")
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(begun) + 99}\r\n\r\n"
            writer.write(head.encode() + begun)
            await asyncio.sleep(60)
        if not request["path"].endswith("/chat/completions"):
            whole = other_answer(request, streamed)
            if streamed and behavior in ("split", "drip", "lingers"):
                events = [part + b"\n\n" for part in whole.split(b"\n\n")[:-1]]
                return await self._stream(request, writer, behavior, events)
            kind = "text/event-stream" if streamed else "application/json"
            return self._plain(writer, whole, 200, "x-request-id: up-1\r\n", kind)
        if streamed:
            with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
            return await self._stream(request, writer, behavior, chunks(request["model"], with_usage))
        more = {"system_fingerprint": "fp_1", "unknown": {"kept": [1.0, 1e3]}}
        if behavior == "numbered":  # each answer has an identifier of its own, as real ones have
            more["id"] = f"{model}-{self.asked[model]}"
        if request.get("tools"):
            message = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
            more["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
        elif (request.get("response_format") or {}).get("type") == "json_schema":
            message = {"role": "assistant", "content": '{"answer": 4}'}
            more["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return self._plain(
            writer, completion(model, **more), 200, "x-request-id: up-1\r\nset-cookie: a=b\r\n" + ANY_ORIGIN
        )

    def _plain(self, writer, body, status, more="", kind="application/json") -> bool:
        writer.write(
            f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body
        )
        return True

    def _packed(self, request, writer, encoding, size="") -> bool:
        """Answer compressed, each event as soon as it is there."""
        streamed, text = bool(request.get("stream")), "x" * int(size) if size.isdigit() else "Four."
        parts = chunks(request["model"], True) if streamed else [completion(request["model"], text)]
        pack = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if encoding == "gzip" else 0))
        packed = b"".join(pack.compress(part) + pack.flush(zlib.Z_SYNC_FLUSH) for part in parts) + pack.flush()
        kind = "text/event-stream" if streamed else "application/json"
        body = packed[:-40] if size == "cut" else packed
        return self._plain(writer, body, 200, f"content-encoding: {encoding}\r\n", kind)

    async def _stream(self, request, writer, behavior, pieces) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if behavior == "error-first":
            pieces = [b": waking up\n\n", b'data: {"error": {"message": "overloaded", "code": 529}}\n\n']
        elif behavior == "dies":
            pieces = [*pieces[:3], pieces[3][:20]]
        elif behavior == "stalls":
            pieces = pieces[:3]
        elif behavior == "endless":
            pieces = pieces[:2] + pieces[2:3] * 1000
        elif behavior == "flood":  # more than any buffer holds
            pieces = pieces[:1] + [chunk(request["model"], {"content": "x" * 60_000})] * 10_000
        elif behavior == "split":  # events cut anywhere
            whole = b"".join(pieces)
            pieces = [whole[start : start + 7] for start in range(0, len(whole), 7)]
        for piece in pieces:
            try:
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
            except ConnectionError:
                self.closed_early.set()
                raise
            if behavior in ("drip", "endless"):
                await asyncio.sleep(0.02)
        if behavior == "dies":
            writer.transport.abort()
            return False
        if behavior in ("stalls", "lingers"):
            await asyncio.sleep(60)
        writer.write(b"0\r\n\r\n")
        return True
