// packages: rsmq
// rsmq: messages that are hidden while somebody works on them.
import { createRequire } from "module";
const RSMQ = createRequire(import.meta.url)("rsmq");

const q = new RSMQ({ host: "127.0.0.1", port: new URL(process.env.REDIS_URL).port, ns: "rsmq" });
console.log(await q.createQueueAsync({ qname: "q", vt: 30 }));
await q.sendMessageAsync({ qname: "q", message: "a" });
await q.sendMessageAsync({ qname: "q", message: "b" });
const m = await q.receiveMessageAsync({ qname: "q" });
console.log(m.message, (await q.getQueueAttributesAsync({ qname: "q" })).hiddenmsgs);
console.log(await q.deleteMessageAsync({ qname: "q", id: m.id }), (await q.popMessageAsync({ qname: "q" })).message, await q.listQueuesAsync());
process.exit(0);
