# packages: python-redis-lock
"""python-redis-lock: waiting, renewal, expiry, reset."""
import os, threading, time, redis, redis_lock

r = redis.from_url(os.environ["REDIS_URL"])
order = []
def work(name, hold):
    with redis_lock.Lock(r, "l", expire=5):
        order.append(name)
        time.sleep(hold)
first = threading.Thread(target=work, args=("a", 0.4))
first.start()
time.sleep(0.1)
second = threading.Thread(target=work, args=("b", 0))
second.start()
first.join(); second.join()
print(order)
lock = redis_lock.Lock(r, "m", expire=1, auto_renewal=True)
print(lock.acquire(), lock.locked())
time.sleep(1.5)
print(redis_lock.Lock(r, "m").acquire(blocking=False), lock.locked())
lock.release()
try:
    lock.release()
except redis_lock.NotAcquired as e:
    print("not acquired")
redis_lock.reset_all(r)
