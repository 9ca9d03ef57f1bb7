# packages: limits[redis]
"""limits: fixed, moving and sliding windows."""
import os
from limits import parse, storage, strategies

s = storage.storage_from_string(os.environ["REDIS_URL"])
for kind in (strategies.FixedWindowRateLimiter, strategies.MovingWindowRateLimiter, strategies.SlidingWindowCounterRateLimiter):
    limiter = kind(s)
    item = parse("5/hour")
    print(kind.__name__, [limiter.hit(item, kind.__name__, "u") for _ in range(7)], limiter.get_window_stats(item, kind.__name__, "u").remaining)
    limiter.clear(item, kind.__name__, "u")
    print(limiter.test(item, kind.__name__, "u"))
s.reset()
