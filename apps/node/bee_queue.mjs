// packages: bee-queue
// Bee-Queue: jobs, retries, results by messages.
import Queue from "bee-queue";

const queue = new Queue("q", { redis: process.env.REDIS_URL, activateDelayedJobs: true });
let tries = 0;
queue.process(async (job) => {
  if (job.data.shaky && tries++ === 0) throw new Error("again");
  return job.data.n * 3;
});
const run = (job) => new Promise((resolve) => job.save().then(() => job.on("succeeded", resolve)));
const results = [];
for (let n = 0; n < 5; n++) results.push(run(queue.createJob({ n })));
results.push(run(queue.createJob({ n: 9, shaky: true }).retries(2)));
console.log(await Promise.all(results));
await queue.close(100);
process.exit(0);
