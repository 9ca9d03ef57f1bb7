# packages: dramatiq[redis]
"""Dramatiq: actors, retries, results."""
import os, dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(url=os.environ["REDIS_URL"])
broker.add_middleware(Results(backend=RedisBackend(url=os.environ["REDIS_URL"])))
dramatiq.set_broker(broker)
tries = []

@dramatiq.actor(store_results=True)
def add(a, b):
    return a + b

@dramatiq.actor(store_results=True, max_retries=3, min_backoff=10, max_backoff=20)
def shaky():
    tries.append(1)
    if len(tries) < 2:
        raise RuntimeError
    return "done"

messages = [add.send(i, i) for i in range(20)]
late = add.send_with_options(args=(1, 1), delay=300)
bad = shaky.send()
worker = dramatiq.Worker(broker, worker_threads=2)
worker.start()
print([m.get_result(block=True, timeout=15000) for m in messages])
print(late.get_result(block=True, timeout=15000), bad.get_result(block=True, timeout=15000))
worker.stop()
