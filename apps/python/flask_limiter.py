# packages: flask-limiter[redis]
"""Flask-Limiter: limited routes."""
import os
from flask import Flask
from flask_limiter import Limiter

app = Flask("app")
limiter = Limiter(lambda: "user", app=app, storage_uri=os.environ["REDIS_URL"], strategy="moving-window")

@app.route("/")
@limiter.limit("3/hour")
def root():
    return "ok"

client = app.test_client()
print([client.get("/").status_code for _ in range(5)])
