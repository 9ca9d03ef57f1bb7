# packages: fastapi-cache2[redis] httpx jinja2
"""fastapi-cache2: a cached route."""
import os
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fastapi_cache import FastAPICache
from fastapi_cache.backends.redis import RedisBackend
from fastapi_cache.decorator import cache
import redis.asyncio as redis
from contextlib import asynccontextmanager

calls = []
@asynccontextmanager
async def life(app):
    FastAPICache.init(RedisBackend(redis.from_url(os.environ["REDIS_URL"])), prefix="c")
    yield
app = FastAPI(lifespan=life)

@app.get("/")
@cache(expire=60)
async def root():
    calls.append(1)
    return {"n": len(calls)}

with TestClient(app) as client:
    print([client.get("/").json() for _ in range(3)], len(calls))
    import asyncio
    print(client.portal.call(FastAPICache.clear, "c"), client.get("/").json())
