# packages: walrus
"""walrus: containers, a rate limit, a graph of streams, full-text search."""
import os
from walrus import Database, Model, TextField, IntegerField

db = Database.from_url(os.environ["REDIS_URL"])
h = db.Hash("h"); h.update(a=1, b=2); print(sorted(h.keys()))
z = db.ZSet("z"); z.add({"x": 1, "y": 2, "w": 3}); print(z[:2], z.rank("y"), sorted(z))
l = db.List("l"); l.extend([1, 2, 3]); print(list(l), l.popright())
s = db.Set("s"); s.add(1, 2); t = db.Set("t"); t.add(2, 3); print(s & t, sorted(s | t), s - t)
limit = db.rate_limit("r", limit=3, per=100)
print([limit.limit("u") for _ in range(5)])
class User(Model):
    __database__ = db
    name = TextField(primary_key=True)
    age = IntegerField(index=True)
for i, n in enumerate("abcde"):
    User.create(name=n, age=i)
print([u.name for u in User.query((User.age > 1) & (User.age < 4), order_by=User.age)])
ac = db.autocomplete()
for t in ("rust book", "rust lang", "c book"):
    ac.store(t)
print(list(ac.search("rust")), sorted(ac.search("bo")))
cg = db.consumer_group("cg", ["st"])
cg.create()
for i in range(3):
    cg.st.add({"n": i}, id=f"{i+1}-0")
print(cg.st.read())
with db.lock("lk", ttl=1000) as _:
    print("locked")
