# packages: pottery
"""pottery: containers over Redis, a lock of several, a bloom filter, HyperLogLogs."""
import os, redis
from pottery import RedisDict, RedisList, RedisSet, RedisDeque, RedisCounter, Redlock, NextID, BloomFilter, HyperLogLog, RedisSimpleQueue

r = redis.from_url(os.environ["REDIS_URL"])
d = RedisDict({"a": 1}, redis=r, key="d"); d["b"] = [2]; print(dict(d))
l = RedisList([3, 1, 2], redis=r, key="l"); l.sort(); print(list(l), l[1:])
s = RedisSet({1, 2}, redis=r, key="s"); s |= {3}; print(sorted(s), 2 in s)
q = RedisDeque([1, 2], redis=r, key="q", maxlen=3); q.rotate(1); print(list(q))
c = RedisCounter("aab", redis=r, key="c"); print(c.most_common(1))
lock = Redlock(key="x", masters={r}, auto_release_time=5)
with lock:
    print(bool(lock.locked()))
ids = NextID(key="ids", masters={r}); print([next(ids) for _ in range(3)])
b = BloomFilter(num_elements=100, false_positives=0.01, redis=r, key="b"); b.update({"x", "y"}); print("x" in b, "z" in b)
h = HyperLogLog(range(1000), redis=r, key="h"); print(len(h))
sq = RedisSimpleQueue(redis=r, key="sq"); sq.put("one"); print(sq.get())
