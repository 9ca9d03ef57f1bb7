# packages: redis
"""redis.asyncio: blocking pops, streams, a lock, messages."""
import asyncio, os, redis.asyncio as redis

async def main():
    r = redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
    taken = asyncio.create_task(r.blpop(["q1", "q2"], timeout=5))
    await asyncio.sleep(0.1)
    await r.rpush("q2", "x")
    print(await taken)
    await r.xgroup_create("s", "g", mkstream=True)
    ids = [await r.xadd("s", {"n": i}, id=f"{i+1}-0") for i in range(3)]
    print(ids, await r.xreadgroup("g", "c", {"s": ">"}, count=2))
    print(await r.xpending("s", "g"), await r.xack("s", "g", "1-0"))
    async with r.lock("l", timeout=3):
        print(await r.exists("l"))
    async with r.pubsub() as sub:
        await sub.psubscribe("a.*")
        await sub.get_message(timeout=1)
        await r.publish("a.b", "hi")
        print(await sub.get_message(timeout=1))
    await r.aclose()

asyncio.run(main())
