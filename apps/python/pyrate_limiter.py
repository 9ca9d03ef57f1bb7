# packages: pyrate-limiter redis
"""pyrate-limiter: a bucket in a sorted set, by scripts."""
import os, redis
from pyrate_limiter import Duration, Rate, Limiter, RedisBucket

r = redis.from_url(os.environ["REDIS_URL"])
bucket = RedisBucket.init([Rate(3, Duration.HOUR)], r, "bucket")
limiter = Limiter(bucket)
print([bool(limiter.try_acquire("u", blocking=False)) for _ in range(5)], bucket.count())
