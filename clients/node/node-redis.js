// Smoke program of node-redis: `node node-redis.js PORT`.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}` });
await client.connect();
await client.flushAll();

assert.equal(await client.set("greeting", "hello"), "OK");
assert.equal(await client.get("greeting"), "hello");
assert.equal(await client.incrBy("counter", 5), 5);
assert.deepEqual(await client.mGet(["greeting", "absent"]), ["hello", null]);

assert.equal(await client.hSet("hash", { a: "1", b: "2" }), 2);
assert.deepEqual({ ...(await client.hGetAll("hash")) }, { a: "1", b: "2" });

assert.equal(await client.zAdd("board", [{ score: 3, value: "ada" }, { score: 1.5, value: "bob" }]), 2);
assert.deepEqual(await client.zRangeWithScores("board", 0, -1), [
  { value: "bob", score: 1.5 },
  { value: "ada", score: 3 },
]);
assert.equal(await client.zScore("board", "bob"), 1.5);
assert.equal(await client.zRank("board", "ada"), 1);

assert.equal(await client.rPush("list", ["x", "y", "z"]), 3);
assert.deepEqual(await client.lRange("list", 0, -1), ["x", "y", "z"]);
assert.equal(await client.lPop("list"), "x");

assert.equal(await client.sAdd("set", ["p", "q"]), 2);
assert.deepEqual([...(await client.sMembers("set"))].sort(), ["p", "q"]);

assert.deepEqual(await client.multi().set("t", "1").incr("t").get("t").exec(), ["OK", 2, "2"]);

const page = (number) => `page:${String(number).padStart(3, "0")}`;
await Promise.all(Array.from({ length: 100 }, (_, number) => client.set(page(number), String(number))));
const found = new Set();
for await (const keys of client.scanIterator({ MATCH: "page:*", COUNT: 7 })) {
  for (const key of [keys].flat()) found.add(key);
}
assert.equal(found.size, 100);

assert.equal(await client.set("short", "life", { PX: 30 }), "OK");
await sleep(50);
assert.equal(await client.get("short"), null);

assert.deepEqual((await client.sendCommand(["RANGE", "[page:010", "(page:012"])).flat(), [
  "page:010", "10", "page:011", "11",
]);
assert.equal((await client.sendCommand(["NEXT", "page:010"]))[0], "page:011");
assert.equal((await client.sendCommand(["PREV", "page:010"]))[0], "page:009");
await assert.rejects(client.lPush("greeting", "no list"), /WRONGTYPE/);

await client.close();
console.log("node-redis: ok");
