# packages: celery[redis]
"""Celery: tasks, results, a chord, a retried task, priorities."""
import os
from celery import Celery, chord
from celery.contrib.testing.worker import start_worker

url = os.environ["REDIS_URL"]
app = Celery("app", broker=url, backend=url)
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
tries = []

@app.task
def add(a, b):
    return a + b

@app.task
def total(numbers):
    return sum(numbers)

@app.task(bind=True, max_retries=3)
def shaky(self):
    tries.append(1)
    if len(tries) < 3:
        raise self.retry(countdown=0)
    return len(tries)

with start_worker(app, perform_ping_check=False, pool="threads", concurrency=2, loglevel="ERROR"):
    print([add.delay(i, i).get(timeout=20) for i in range(20)])
    print(chord([add.s(i, i) for i in range(10)])(total.s()).get(timeout=20))
    print(shaky.delay().get(timeout=20))
