"""Smoke program of redis-py and valkey-py: `smoke.py redis|valkey PORT`."""

import importlib
import os
import sys
import time

library = importlib.import_module(sys.argv[1])
client_class = library.Redis if sys.argv[1] == "redis" else library.Valkey
client = client_class(port=int(sys.argv[2]), decode_responses=True)


def same(got, wanted):
    if got != wanted:
        raise SystemExit(f"got {got!r}, not {wanted!r}")


client.flushall()
same(client.set("greeting", "hello"), True)
same(client.get("greeting"), "hello")
same(client.incrby("counter", 5), 5)
same(client.mget("greeting", "absent"), ["hello", None])

same(client.hset("hash", mapping={"a": "1", "b": "2"}), 2)
same(client.hgetall("hash"), {"a": "1", "b": "2"})

same(client.zadd("board", {"ada": 3, "bob": 1.5, "cy": 2}), 3)
same(client.zrange("board", 0, -1, withscores=True)[0][0], "bob")
same(client.zscore("board", "bob"), 1.5)
same(client.zrank("board", "ada"), 2)

same(client.rpush("list", "x", "y", "z"), 3)
same(client.lrange("list", 0, -1), ["x", "y", "z"])
same(client.lpop("list"), "x")

same(client.sadd("set", "p", "q"), 2)
same(set(client.smembers("set")), {"p", "q"})

with client.pipeline(transaction=True) as transaction:
    transaction.set("t", 1).incr("t").get("t")
    same(transaction.execute(), [True, 2, "2"])
with client.pipeline(transaction=False) as pipeline:
    for number in range(100):
        pipeline.set(f"page:{number:03}", number)
    same(len(pipeline.execute()), 100)

same(len(set(client.scan_iter(match="page:*", count=7))), 100)

# redis-py writes a whole pipeline before it reads the first reply. CONTRIBUTING.md names the long
# form, RHUMB_PIPELINE=1000000.
commands = int(os.environ.get("RHUMB_PIPELINE", "10000"))
with client.pipeline(transaction=False) as pipeline:
    for number in range(commands // 2):
        pipeline.incr("pipeline").echo(f"{number:0200}")
    replies = pipeline.execute()
same(replies[0::2], list(range(1, commands // 2 + 1)))
same(replies[1::2], [f"{number:0200}" for number in range(commands // 2)])

same(client.set("short", "life", px=30), True)
same(client.pttl("short") <= 30, True)
time.sleep(0.05)
same(client.get("short"), None)

pages = client.execute_command("RANGE", "[page:010", "(page:012")
same([part for item in pages for part in (item if isinstance(item, list) else [item])],
     ["page:010", "10", "page:011", "11"])
same(client.execute_command("NEXT", "page:010")[0], "page:011")
same(client.execute_command("PREV", "page:010")[0], "page:009")

try:
    client.lpush("greeting", "no list")
except library.exceptions.ResponseError as error:
    same(str(error).startswith("WRONGTYPE"), True)
else:
    raise SystemExit("a list was made of a string")
print(f"{sys.argv[1]}-py {library.__version__}: ok")
