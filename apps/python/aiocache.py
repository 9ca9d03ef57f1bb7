# packages: aiocache[redis]
"""aiocache: a cache with a lock."""
import asyncio, os
from urllib.parse import urlparse
from aiocache.backends.redis import RedisCache
from aiocache.lock import RedLock
import redis.asyncio as redis

async def main():
    cache = RedisCache(client=redis.from_url(os.environ["REDIS_URL"]) ) if "client" in RedisCache.__init__.__code__.co_varnames else RedisCache(endpoint="127.0.0.1", port=urlparse(os.environ["REDIS_URL"]).port)
    print(await cache.set("a", 1), await cache.get("a"), await cache.multi_set([("b", 2), ("c", 3)]), await cache.multi_get(["b", "c"]))
    print(await cache.increment("n", 5), await cache.exists("a"), await cache.delete("a"), await cache.expire("b", 10))
    async with RedLock(cache, "l", lease=2):
        print("locked")
    await cache.close()

asyncio.run(main())
