// packages: @socket.io/redis-adapter socket.io socket.io-client redis
// socket.io: two servers that reach each other's rooms by messages.
import { createServer } from "http";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { createClient } from "redis";
import { createAdapter } from "@socket.io/redis-adapter";

const start = async () => {
  const pub = await createClient({ url: process.env.REDIS_URL }).connect();
  const sub = await pub.duplicate().connect();
  const http = createServer();
  const server = new Server(http, { adapter: createAdapter(pub, sub) });
  server.on("connection", (s) => s.join("room"));
  await new Promise((r) => http.listen(0, r));
  return [server, http.address().port];
};
const [one, a] = await start();
const [two, b] = await start();
const clients = [a, b].map((p) => io(`http://127.0.0.1:${p}`));
await Promise.all(clients.map((c) => new Promise((r) => c.on("connect", r))));
await new Promise((r) => setTimeout(r, 200));
const got = Promise.all(clients.map((c) => new Promise((r) => c.on("hi", r))));
one.to("room").emit("hi", 7);
console.log(await got, (await two.in("room").fetchSockets()).length);
process.exit(0);
