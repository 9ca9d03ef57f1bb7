// packages: bullmq ioredis
// BullMQ while its server is killed: says what is tried, added, begun and done, until it is told to stop.
import fs from "node:fs";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";
import Redis from "ioredis";

const say = (...words) => fs.writeSync(1, words.join(" ") + "\n");
const connect = () => {
  const options = { maxRetriesPerRequest: null, retryStrategy: () => 50 };
  return new Redis(process.env.REDIS_URL, options).on("error", () => {});
};
let stopping = false;
readline.createInterface({ input: process.stdin }).on("line", () => (stopping = true));

const queue = new Queue("killed", { connection: connect() });
queue.on("error", () => {});
for (let i = 0; i < 2; i++) {
  const worker = new Worker("killed", async (job) => {
    say("began", job.id);
    await sleep(1);
  }, { connection: connect(), concurrency: 4, lockDuration: 3000, stalledInterval: 1000, maxStalledCount: 10000 });
  worker.on("completed", (job) => say("done", job.id));
  worker.on("error", () => {});
}

// The commands of a connection that ends are sent again by the client: an added job has one name, and is one job.
let number = 0;
const produce = async (producer) => {
  while (!stopping) {
    const id = `${producer}-${number++}`;
    say("tried", id);
    await queue.add("job", {}, { jobId: id });
    say("added", id);
    await sleep(5);
  }
};
await Promise.all(["a", "b"].map(produce));

const left = async () => {
  const counts = await queue.getJobCounts("wait", "active", "delayed", "prioritized", "failed", "completed");
  return [counts, counts.wait + counts.active + counts.delayed + counts.prioritized];
};
let [counts, open] = await left();
for (let waits = 0; open > 0 && waits < 600; waits++) {
  await sleep(100);
  [counts, open] = await left();
}
if (open + counts.failed > 0) say("fault", JSON.stringify(counts));
const completed = await queue.getCompleted(0, -1);
completed.forEach((job) => say("kept", job.id));
say("end");
process.exit(0);
