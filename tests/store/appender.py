"""A process that writes to a store until it is killed: `appender.py URL [COUNT]` prints what was acknowledged."""

import asyncio
import os
import sys
import time

from fedrouter.store.records import Record, SentScore, new_id
from fedrouter.store.store import Store
from fedrouter.store.writer import Writer


def record() -> Record:
    now = time.time()
    return Record(
        id=new_id(now),
        time=now,
        key="key-1",
        bundle="sha256:0",
        version=1,
        family="kmeans",
        tradeoff=1.0,
        chosen="large",
        served="large",
        reason="routed",
        embedding=os.urandom(384 * 4),
        encoder="all-MiniLM-L6-v2",
        cost=0.001,
    )


async def main(url: str, count: int) -> None:
    writer = Writer(Store.open(url))

    async def requests(number: int) -> None:
        for index in range(count):
            made = record()
            await writer.send(made)
            os.write(1, f"put {made.id}\n".encode())
            if index % 3 == number % 3:
                await writer.send(SentScore(made.id, 0.5, "user", 1.0, None))
                os.write(1, f"score {made.id}\n".encode())

    await asyncio.gather(*(requests(number) for number in range(16)))
    await writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize))
