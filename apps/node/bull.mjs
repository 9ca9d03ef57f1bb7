// packages: bull
// Bull: jobs, progress, delays, a rate limit.
import Bull from "bull";

const queue = new Bull("q", process.env.REDIS_URL, { limiter: { max: 100, duration: 1000 } });
queue.process(async (job) => { await job.progress(50); return job.data.n + 1; });
const jobs = await queue.addBulk([...Array(10).keys()].map((n) => ({ data: { n } })));
const late = await queue.add({ n: 41 }, { delay: 200 });
console.log(await Promise.all(jobs.map((j) => j.finished())), await late.finished());
console.log((await queue.getJobCounts()).completed, (await (await queue.getJob(late.id)).getState()));
await queue.pause();
await queue.empty();
await queue.close();
process.exit(0);
