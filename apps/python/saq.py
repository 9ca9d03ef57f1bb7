# packages: saq[redis] typing_extensions
"""SAQ: jobs, results, scheduled jobs."""
import asyncio, os
from saq import Queue, Worker

async def add(ctx, *, a, b):
    return a + b

async def main():
    q = Queue.from_url(os.environ["REDIS_URL"])
    await q.connect()
    worker = Worker(q, functions=[add], concurrency=2)
    task = asyncio.create_task(worker.start())
    print([await q.apply("add", a=i, b=1, timeout=10) for i in range(10)])
    print(await q.map("add", [{"a": i, "b": 2} for i in range(5)]))
    print(await q.count("queued"), await q.count("active"))
    await worker.stop()
    task.cancel()
    await q.disconnect()

asyncio.run(main())
