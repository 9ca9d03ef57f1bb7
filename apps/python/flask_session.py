# packages: flask-session[redis] msgspec
"""Flask-Session: sessions kept on the server."""
import os, redis
from flask import Flask, session
from flask_session import Session

app = Flask("app")
r = redis.from_url(os.environ["REDIS_URL"])
app.config.update(SESSION_TYPE="redis", SESSION_REDIS=r)
Session(app)

@app.route("/")
def root():
    session["n"] = session.get("n", 0) + 1
    return str(session["n"])

client = app.test_client()
print([client.get("/").text for _ in range(3)], len(r.keys("session:*")), 0 < r.ttl(r.keys("session:*")[0]))
