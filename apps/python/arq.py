# packages: arq
"""ARQ: jobs, deferred jobs, unique jobs."""
import asyncio, os
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

async def add(ctx, a, b):
    return a + b

async def main():
    pool = await create_pool(RedisSettings.from_dsn(os.environ["REDIS_URL"]))
    jobs = [await pool.enqueue_job("add", i, i) for i in range(10)]
    late = await pool.enqueue_job("add", 1, 1, _defer_by=0.2)
    one = await pool.enqueue_job("add", 2, 2, _job_id="same")
    two = await pool.enqueue_job("add", 2, 2, _job_id="same")
    worker = Worker([add], redis_pool=pool, burst=True, poll_delay=0.05, handle_signals=False)
    await worker.async_run()
    print([await j.result(timeout=5) for j in jobs], await late.result(timeout=5))
    print(await one.result(timeout=5), two)

asyncio.run(main())
