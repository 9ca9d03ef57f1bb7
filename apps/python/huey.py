# packages: huey redis
"""Huey: tasks, results, delays, priorities."""
import os, time
from huey import RedisHuey, PriorityRedisHuey
from huey.consumer import Consumer

for kind in (RedisHuey, PriorityRedisHuey):
    huey = kind(kind.__name__, url=os.environ["REDIS_URL"])
    @huey.task()
    def add(a, b):
        return a + b
    results = [add(i, 1) for i in range(10)]
    late = add.schedule((40, 2), delay=0.2)
    consumer = huey.create_consumer(workers=2, periodic=False, check_worker_health=False, initial_delay=0.05, scheduler_interval=1)
    consumer.start()
    print([r.get(blocking=True, timeout=10) for r in results], late.get(blocking=True, timeout=15))
    consumer.stop(graceful=True)
    print(len(huey))
