# packages: taskiq-redis
"""Taskiq: a list queue and a stream, results."""
import asyncio, os
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker
from taskiq.api import run_receiver_task

async def main():
    for kind in (ListQueueBroker, RedisStreamBroker):
        broker = kind(os.environ["REDIS_URL"], queue_name=kind.__name__).with_result_backend(RedisAsyncResultBackend(os.environ["REDIS_URL"]))
        @broker.task(task_name="add")
        async def add(a: int, b: int) -> int:
            return a + b
        await broker.startup()
        worker = asyncio.create_task(run_receiver_task(broker))
        await asyncio.sleep(0.3)
        tasks = [await add.kiq(i, 1) for i in range(10)]
        print([(await t.wait_result(timeout=10)).return_value for t in tasks])
        worker.cancel()
        await broker.shutdown()

asyncio.run(main())
