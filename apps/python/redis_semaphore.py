# packages: redis-semaphore redis
"""redis-semaphore: tokens of a list, taken by blocking pops."""
import os, redis
from urllib.parse import urlparse
from redis_semaphore import Semaphore

s = Semaphore(redis.from_url(os.environ["REDIS_URL"]), count=2, namespace="s")
a, b = s.acquire(timeout=1), s.acquire(timeout=1)
print(a is not None, b is not None, s.available_count)
try:
    print(s.acquire(timeout=1))
except Exception as e:
    print(type(e).__name__)
s.signal(a)
print(s.available_count)
