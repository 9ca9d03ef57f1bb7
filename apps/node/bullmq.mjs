// packages: bullmq ioredis
// BullMQ: jobs, priorities, delays, retries, a flow, events, a repeated job.
import { Queue, Worker, QueueEvents, FlowProducer } from "bullmq";
import Redis from "ioredis";

const connection = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
const queue = new Queue("q", { connection });
const events = new QueueEvents("q", { connection: connection.duplicate() });
await events.waitUntilReady();
const order = [];
const worker = new Worker("q", async (job) => {
  order.push(job.name);
  if (job.name === "shaky" && job.attemptsMade < 1) throw new Error("again");
  if (job.name === "parent") return Object.values(await job.getChildrenValues()).sort();
  return job.data.n * 2;
}, { connection: connection.duplicate(), autorun: false });
const jobs = await queue.addBulk([...Array(20).keys()].map((n) => ({ name: `j${n}`, data: { n } })));
const low = await queue.add("low", { n: 1 }, { priority: 10 });
const high = await queue.add("high", { n: 1 }, { priority: 1 });
const late = await queue.add("late", { n: 4 }, { delay: 300 });
const shaky = await queue.add("shaky", { n: 5 }, { attempts: 3, backoff: 10 });
worker.run();
console.log(await Promise.all(jobs.map((j) => j.waitUntilFinished(events, 20000))));
console.log(await late.waitUntilFinished(events, 20000), await shaky.waitUntilFinished(events, 20000));
await low.waitUntilFinished(events, 20000);
console.log(order.indexOf("high") < order.indexOf("low"));
const flow = new FlowProducer({ connection: connection.duplicate() });
const tree = await flow.add({ name: "parent", queueName: "q", data: {}, children: [1, 2, 3].map((n) => ({ name: "child", queueName: "q", data: { n } })) });
console.log(await tree.job.waitUntilFinished(events, 20000));
console.log(await queue.getJobCounts("wait", "active", "completed", "failed", "delayed"));
await worker.close(); await events.close(); await flow.close(); await queue.close();
process.exit(0);
