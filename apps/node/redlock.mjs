// packages: redlock@5.0.0-beta.2 ioredis
// Redlock: exclusive locks, extension, refusal.
import Redis from "ioredis";
import { createRequire } from "module";
const Redlock = createRequire(import.meta.url)("redlock").default;

const r = new Redis(process.env.REDIS_URL);
const locks = new Redlock([r], { retryCount: 2, retryDelay: 20 });
let lock = await locks.acquire(["a", "b"], 2000);
await locks.acquire(["a"], 1000).then(() => console.log("?"), (e) => console.log(e.name));
lock = await lock.extend(3000);
console.log((await r.pttl("a")) > 2000);
await lock.release();
console.log(await r.exists("a", "b"), await locks.using(["c"], 1000, async () => "used"));
r.disconnect();
