# packages: kombu[redis]
"""Kombu: direct, fanout and topic exchanges, acknowledgements."""
import os
from kombu import Connection, Exchange, Queue

with Connection(os.environ["REDIS_URL"]) as c:
    direct = Queue("d", Exchange("dx"), "k")
    topic = Queue("t", Exchange("tx", "topic"), "a.#")
    got = []
    p = c.Producer()
    def on(body, message):
        got.append(body)
        message.ack()
    with c.Consumer([direct, topic], callbacks=[on]):
        for i in range(5):
            p.publish({"n": i}, exchange=direct.exchange, routing_key="k", declare=[direct])
            p.publish({"t": i}, exchange=topic.exchange, routing_key="a.b.c", declare=[topic])
        while len(got) < 10:
            c.drain_events(timeout=5)
    print(sorted(map(str, got)))
    q = c.SimpleQueue("simple")
    q.put("one")
    m = q.get(timeout=3)
    print(m.payload)
    m.ack()
    q.close()
