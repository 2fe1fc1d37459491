"""An HTTP service of the standard library: several processes, each with asyncio and one executable.

    ingot compile examples/digits/digits.onnx --save digits.plan
    python examples/serving/server.py digits.plan --port 8000 --processes 2

POST /run takes an array as numpy.save writes it, and gives the first output in the same format.
Every process loads the plan file, so that the packed weights are in memory once for all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import ingot

MAX_BODY_BYTES = 64 << 20
MAX_HEAD_LINES = 64
REQUEST_TIMEOUT_S = 10.0


class Service:
    """Requests of one process: parsing in the event loop, the model in threads."""

    def __init__(self, plan: str, threads: int, callers: int):
        self.exe = ingot.load(plan, threads=threads)
        self.pool = ThreadPoolExecutor(callers)  # a call releases the GIL: others go on
        self.open: set[asyncio.Task] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one response, close."""
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        task.add_done_callback(self.open.discard)
        try:
            status, body = await self.respond(reader)
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n" % (status, len(body)))
            writer.write(b"Connection: close\r\n\r\n" + body)
            await writer.drain()
        except ConnectionError:
            pass  # the client is gone
        finally:
            writer.close()

    async def respond(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        """Status and body."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await read_body(reader)
            array = np.load(io.BytesIO(body), allow_pickle=False)
            result = await asyncio.get_running_loop().run_in_executor(self.pool, self.exe, array)
        except (ingot.IngotError, ValueError, EOFError, MemoryError, TimeoutError) as error:
            return b"400 Bad Request", str(error).encode()
        answer = io.BytesIO()
        np.save(answer, result[0])
        return b"200 OK", answer.getvalue()


async def read_body(reader: asyncio.StreamReader) -> bytes:
    """The body of an HTTP/1.1 POST with a Content-Length."""
    line = await reader.readline()
    if not line.startswith(b"POST /run "):
        raise ValueError("POST /run with an array as numpy.save writes it")
    length = 0
    for _ in range(MAX_HEAD_LINES):
        name, _, value = (await reader.readline()).partition(b":")
        if not name.strip():
            break
        if name.lower() == b"content-length":
            length = int(value)
    if not 0 < length <= MAX_BODY_BYTES:
        raise ValueError(f"Content-Length is {length}, not 1 to {MAX_BODY_BYTES}")
    return await reader.readexactly(length)


async def serve(service: Service, port: int) -> None:
    """Until SIGTERM or SIGINT; requests under way are finished."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for sent in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sent, stop.set)
    server = await asyncio.start_server(service.connected, "127.0.0.1", port, reuse_port=True)
    print(f"process {os.getpid()} is ready", flush=True)
    await stop.wait()
    server.close()
    await asyncio.gather(*service.open)


def run(plan: str, port: int, threads: int, callers: int) -> None:
    asyncio.run(serve(Service(plan, threads, callers), port))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a call")
    parser.add_argument("--callers", type=int, default=2, help="calls at once, of a process")
    given = parser.parse_args()
    arguments = (given.plan, given.port, given.threads, given.callers)
    fresh = multiprocessing.get_context("spawn")
    workers = [fresh.Process(target=run, args=arguments) for _ in range(given.processes)]
    for worker in workers:
        worker.start()
    for sent in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sent, lambda *_: [worker.terminate() for worker in workers])
    for worker in workers:
        worker.join()
    raise SystemExit(any(worker.exitcode for worker in workers))


if __name__ == "__main__":
    main()
