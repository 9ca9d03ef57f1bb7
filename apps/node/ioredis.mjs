// packages: ioredis
// ioredis: scripts by name, transactions, blocking pops, streams, messages.
import Redis from "ioredis";

const r = new Redis(process.env.REDIS_URL);
r.defineCommand("put", { numberOfKeys: 1, lua: "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])" });
console.log(await r.put("a", "b"), await r.pipeline().put("c", "d").incr("n").exec());
console.log(await r.multi().set("x", 1).get("x").exec());
const other = r.duplicate();
const taken = other.blpop("q", 5);
await r.rpush("q", 1);
console.log(await taken);
const seen = new Promise((resolve) => other.on("pmessage", (...m) => resolve(m)));
await other.psubscribe("n.*");
await r.publish("n.a", "hi");
console.log(await seen);
await r.xadd("s", "1-1", "a", "b");
console.log(await r.xrange("s", "-", "+"), await r.xread("COUNT", 1, "STREAMS", "s", 0));
r.disconnect();
other.disconnect();
