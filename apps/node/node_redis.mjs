// packages: redis
// node-redis: RESP3 with client-side caching messages, functions of scripts, streams, sorted sets.
import { createClient, defineScript } from "redis";

const script = defineScript({ SCRIPT: "return redis.call('incrby', KEYS[1], ARGV[1])", NUMBER_OF_KEYS: 1, parseCommand(p, k, n) { p.pushKey(k); p.push(n.toString()); }, transformReply: (r) => r });
const c = await createClient({ url: process.env.REDIS_URL, RESP: 3, scripts: { add: script } }).connect();
console.log(await c.add("n", 5), await c.multi().set("a", 1).get("a").exec());
console.log(await c.zAdd("z", [{ score: 1, value: "a" }, { score: 2, value: "b" }]), await c.zRangeWithScores("z", 0, -1), await c.zRank("z", "b"));
const sub = await c.duplicate().connect();
const got = new Promise((resolve) => sub.subscribe("ch", (m) => resolve(m)).then(() => c.publish("ch", "hi")));
console.log(await got);
await c.xGroupCreate("s", "g", "0", { MKSTREAM: true });
await c.xAdd("s", "1-1", { a: "b" });
console.log(JSON.stringify(await c.xReadGroup("g", "c", { key: "s", id: ">" })), await c.xAck("s", "g", "1-1"));
console.log(await c.hSet("h", { a: 1, b: 2 }), await c.hGetAll("h"), (await c.scan("0")).keys.sort());
sub.destroy();
c.destroy();
