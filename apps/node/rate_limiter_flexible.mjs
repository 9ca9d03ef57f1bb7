// packages: rate-limiter-flexible ioredis
// rate-limiter-flexible: points, penalties, blocks, a queue.
import Redis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";

const storeClient = new Redis(process.env.REDIS_URL);
const limiter = new RateLimiterRedis({ storeClient, points: 3, duration: 100, blockDuration: 5 });
const out = [];
for (let i = 0; i < 5; i++) out.push(await limiter.consume("u").then((r) => r.remainingPoints, (r) => `refused ${r.consumedPoints}`));
console.log(out);
console.log((await limiter.penalty("v", 2)).consumedPoints, (await limiter.reward("v", 1)).consumedPoints, (await limiter.get("v")).remainingPoints, await limiter.delete("v"));
storeClient.disconnect();
