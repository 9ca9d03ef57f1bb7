// packages: node-resque
// node-resque: a worker, a scheduler, a plugin that locks.
import { Queue, Worker, Scheduler } from "node-resque";

const port = new URL(process.env.REDIS_URL).port;
const connection = { pkg: "ioredis", host: "127.0.0.1", port: Number(port), database: 0, namespace: "resque" };
const done = [];
const jobs = { add: { plugins: ["JobLock"], perform: async (a, b) => { done.push(a + b); return a + b; } } };
const queue = new Queue({ connection }, jobs);
await queue.connect();
for (let i = 0; i < 5; i++) await queue.enqueue("q", "add", [i, 1]);
await queue.enqueueIn(100, "q", "add", [100, 1]);
const scheduler = new Scheduler({ connection, timeout: 50 });
await scheduler.connect();
scheduler.start();
const worker = new Worker({ connection, queues: ["q"], timeout: 20 }, jobs);
await worker.connect();
worker.start();
for (let i = 0; i < 400 && done.length < 6; i++) await new Promise((r) => setTimeout(r, 25));
console.log(done.sort((a, b) => a - b), await queue.length("q"));
await worker.end(); await scheduler.end(); await queue.end();
process.exit(0);
