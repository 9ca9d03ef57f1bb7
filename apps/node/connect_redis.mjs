// packages: connect-redis express-session express redis
// connect-redis: sessions of Express.
import { createClient } from "redis";
import express from "express";
import session from "express-session";
import { RedisStore } from "connect-redis";

const client = createClient({ url: process.env.REDIS_URL });
await client.connect();
const store = new RedisStore({ client });
const app = express();
app.use(session({ store, secret: "s", resave: false, saveUninitialized: true }));
app.get("/", (req, res) => { req.session.n = (req.session.n ?? 0) + 1; res.send(String(req.session.n)); });
const server = app.listen(0);
const url = `http://127.0.0.1:${server.address().port}/`;
const first = await fetch(url);
const cookie = first.headers.get("set-cookie").split(";")[0];
console.log(await first.text(), await (await fetch(url, { headers: { cookie } })).text(), await new Promise((r) => store.length((_, n) => r(n))) );
await new Promise((r) => store.clear(r));
console.log((await store.all?.())?.length);
server.close();
client.destroy();
