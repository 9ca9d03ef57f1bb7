# packages: rq-scheduler rq<2
"""rq-scheduler: jobs at a time."""
import logging, os, operator, datetime, redis
from rq import Queue, SimpleWorker
from rq_scheduler import Scheduler

logging.disable(logging.CRITICAL)
r = redis.from_url(os.environ["REDIS_URL"])
s = Scheduler(connection=r, interval=1)
job = s.enqueue_in(datetime.timedelta(seconds=0), operator.add, 1, 2)
s.enqueue_in(datetime.timedelta(hours=1), operator.add, 5, 5)
print(s.count(), job in s)
s.acquire_lock() and s.enqueue_jobs()
SimpleWorker([Queue("default", connection=r)], connection=r).work(burst=True)
print(job.return_value(), s.count())
