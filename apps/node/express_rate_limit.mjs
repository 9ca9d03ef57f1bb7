// packages: rate-limit-redis express-rate-limit express ioredis
// express-rate-limit with rate-limit-redis.
import Redis from "ioredis";
import express from "express";
import { rateLimit } from "express-rate-limit";
import { RedisStore } from "rate-limit-redis";

const client = new Redis(process.env.REDIS_URL);
const app = express();
app.use(rateLimit({ windowMs: 100000, limit: 3, keyGenerator: () => "u", store: new RedisStore({ sendCommand: (...a) => client.call(...a) }) }));
app.get("/", (_, res) => res.send("ok"));
const server = app.listen(0);
const out = [];
for (let i = 0; i < 5; i++) out.push((await fetch(`http://127.0.0.1:${server.address().port}/`)).status);
console.log(out);
server.close();
client.disconnect();
