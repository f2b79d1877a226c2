"""An S3 store that takes its time: a proxy in front of SeaweedFS that hands on what a client sends only after a while.

    python slow_store.py PORT UPSTREAM_PORT MILLISECONDS

Answers are not delayed, so each request takes MILLISECONDS longer, whatever its size; requests of different connections
wait side by side.
"""
import asyncio
import contextlib
import signal
import sys
import time

CHUNK_BYTES = 1 << 16


async def serve(port, upstream_port, delay_s):
    async def handle(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", upstream_port)
        await asyncio.gather(hand_on(reader, up_writer, delay_s), hand_on(up_reader, writer, 0))

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


async def hand_on(reader, writer, delay_s):
    """Writes what comes, each piece `delay_s` after it came."""
    pieces = asyncio.Queue(maxsize=1024)

    async def take():
        data = b"more"
        while data:
            data = b""
            with contextlib.suppress(ConnectionError):
                data = await reader.read(CHUNK_BYTES)
            await pieces.put((time.monotonic() + delay_s, data))

    async def give():
        data = b"more"
        while data:
            due, data = await pieces.get()
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
        writer.close()

    await asyncio.gather(take(), give())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
