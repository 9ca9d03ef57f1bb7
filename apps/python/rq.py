# packages: rq
"""RQ: a queue of jobs, a worker, failures, dependencies."""
import logging, os, operator, redis
from rq import Queue, SimpleWorker
from rq.job import Job

logging.disable(logging.CRITICAL)
r = redis.from_url(os.environ["REDIS_URL"])
q = Queue(connection=r)
jobs = [q.enqueue(operator.add, i, i) for i in range(10)]
bad = q.enqueue(operator.truediv, 1, 0)
after = q.enqueue(operator.mul, 6, 7, depends_on=jobs)
SimpleWorker([q], connection=r).work(burst=True)
print([Job.fetch(j.id, r).return_value() for j in jobs])
print(bad.get_status(), after.return_value(), len(q), len(q.failed_job_registry))
