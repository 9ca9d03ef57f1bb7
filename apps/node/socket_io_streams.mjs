// packages: @socket.io/redis-streams-adapter socket.io socket.io-client redis
// socket.io: two servers that reach each other by a stream.
import { createServer } from "http";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { createClient } from "redis";
import { createAdapter } from "@socket.io/redis-streams-adapter";

const start = async () => {
  const client = await createClient({ url: process.env.REDIS_URL }).connect();
  const http = createServer();
  const server = new Server(http, { adapter: createAdapter(client) });
  await new Promise((r) => http.listen(0, r));
  return [server, http.address().port];
};
const [one, a] = await start();
const [, b] = await start();
const clients = [a, b].map((p) => io(`http://127.0.0.1:${p}`));
await Promise.all(clients.map((c) => new Promise((r) => c.on("connect", r))));
await new Promise((r) => setTimeout(r, 300));
const got = Promise.all(clients.map((c) => new Promise((r) => c.on("hi", r))));
one.emit("hi", 7);
console.log(await got);
process.exit(0);
