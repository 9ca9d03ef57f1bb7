# packages: dogpile.cache redis
"""dogpile.cache: a region with distributed locks."""
import os
from dogpile.cache import make_region

region = make_region().configure("dogpile.cache.redis", expiration_time=60, arguments={"url": os.environ["REDIS_URL"], "distributed_lock": True, "redis_expiration_time": 100, "thread_local_lock": False})
calls = []
@region.cache_on_arguments()
def square(n):
    calls.append(n)
    return n * n
print([square(n) for n in (2, 3, 2, 3)], calls)
square.invalidate(2)
print(square(2), calls, region.get_multi(["none"]))
