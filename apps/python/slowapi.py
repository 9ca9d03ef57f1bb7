# packages: slowapi redis httpx fastapi
"""slowapi: a limited route of FastAPI."""
import os
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

limiter = Limiter(key_func=lambda request: "user", storage_uri=os.environ["REDIS_URL"])
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

@app.get("/")
@limiter.limit("3/hour")
def root(request: Request):
    return "ok"

client = TestClient(app)
print([client.get("/").status_code for _ in range(5)])
