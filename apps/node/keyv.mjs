// packages: keyv @keyv/redis
// Keyv: a namespace of keys.
import Keyv from "keyv";
import KeyvRedis from "@keyv/redis";

const keyv = new Keyv({ store: new KeyvRedis(process.env.REDIS_URL), namespace: "n" });
await keyv.set("a", { b: 1 }, 50000);
console.log(await keyv.get("a"), await keyv.has("a"), await keyv.delete("a"), await keyv.get("a"));
await keyv.set("x", 1);
const all = [];
for await (const [k, v] of keyv.iterator()) all.push([k, v]);
console.log(all);
await keyv.clear();
console.log(await keyv.get("x"));
await keyv.disconnect();
