# packages: django-redis
"""django-redis: the cache, patterns, locks, counters; django's own backend."""
import os, django
from django.conf import settings

url = os.environ["REDIS_URL"]
settings.configure(CACHES={
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
    "own": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url, "KEY_PREFIX": "own"},
}, SESSION_ENGINE="django.contrib.sessions.backends.cache")
django.setup()
from django.core.cache import caches
for name in ("default", "own"):
    c = caches[name]
    c.set_many({f"k{i}": i for i in range(10)}, timeout=60)
    print(c.get_many(["k1", "k2", "none"]), c.incr("k3", 5), c.add("k1", 0), c.touch("k1", 9), c.delete_many(["k1", "k2"]))
    print(c.get_or_set("n", lambda: [1, 2], 50), c.has_key("n"))
c = caches["default"]
print(sorted(c.keys("k*")), c.ttl("k5") > 50, c.delete_pattern("k*"), list(c.iter_keys("n*")))
with c.lock("l", timeout=3):
    print(c.lock("l", blocking_timeout=0.1).acquire(blocking=False))
from django.contrib.sessions.backends.cache import SessionStore
s = SessionStore(); s["a"] = 1; s.save()
print(SessionStore(s.session_key)["a"])
c.clear()
