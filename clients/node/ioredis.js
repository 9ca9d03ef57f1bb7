// Smoke program of ioredis: `node ioredis.js PORT`.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const client = new Redis(Number(process.argv[2]));
await client.flushall();

assert.equal(await client.set("greeting", "hello"), "OK");
assert.equal(await client.get("greeting"), "hello");
assert.equal(await client.incrby("counter", 5), 5);
assert.deepEqual(await client.mget("greeting", "absent"), ["hello", null]);

assert.equal(await client.hset("hash", { a: "1", b: "2" }), 2);
assert.deepEqual(await client.hgetall("hash"), { a: "1", b: "2" });

assert.equal(await client.zadd("board", 3, "ada", 1.5, "bob"), 2);
assert.deepEqual(await client.zrange("board", 0, -1), ["bob", "ada"]);
assert.equal(Number(await client.zscore("board", "bob")), 1.5);
assert.equal(await client.zrank("board", "ada"), 1);

assert.equal(await client.rpush("list", "x", "y", "z"), 3);
assert.deepEqual(await client.lrange("list", 0, -1), ["x", "y", "z"]);
assert.equal(await client.lpop("list"), "x");

assert.equal(await client.sadd("set", "p", "q"), 2);
assert.deepEqual((await client.smembers("set")).sort(), ["p", "q"]);

assert.deepEqual(await client.multi().set("t", 1).incr("t").get("t").exec(), [
  [null, "OK"],
  [null, 2],
  [null, "2"],
]);

const page = (number) => `page:${String(number).padStart(3, "0")}`;
const pipeline = client.pipeline();
for (let number = 0; number < 100; number++) pipeline.set(page(number), number);
assert.equal((await pipeline.exec()).length, 100);
const found = new Set();
for await (const keys of client.scanStream({ match: "page:*", count: 7 })) {
  for (const key of keys) found.add(key);
}
assert.equal(found.size, 100);

assert.equal(await client.set("short", "life", "PX", 30), "OK");
await sleep(50);
assert.equal(await client.get("short"), null);

assert.deepEqual((await client.call("RANGE", "[page:010", "(page:012")).flat(), [
  "page:010", "10", "page:011", "11",
]);
assert.equal((await client.call("NEXT", "page:010"))[0], "page:011");
assert.equal((await client.call("PREV", "page:010"))[0], "page:009");
await assert.rejects(client.lpush("greeting", "no list"), /WRONGTYPE/);

await client.quit();
console.log("ioredis: ok");
