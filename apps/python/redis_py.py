# packages: redis
"""redis-py: its lock, pipelines with a script, a pub/sub thread."""
import os, time, redis

r = redis.from_url(os.environ["REDIS_URL"])
with r.lock("lock", timeout=5) as lock:
    print("owned", lock.owned(), r.lock("lock", blocking=False).acquire())
    lock.extend(5)
    lock.reacquire()
print("released", r.exists("lock"))
script = r.register_script("redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])")
print("script", script(keys=["a"], args=["b"]))
pipe = r.pipeline()
script(keys=["c"], args=["d"], client=pipe)
print("pipeline", pipe.incr("n").execute())
got = []
sub = r.pubsub(ignore_subscribe_messages=True)
sub.subscribe(news=lambda m: got.append(m["data"]))
thread = sub.run_in_thread(sleep_time=0.01)
time.sleep(0.2)
r.publish("news", "hello")
time.sleep(0.3)
thread.stop()
print("messages", got)
