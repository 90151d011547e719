// @proca/queue, the reference: its own syncQueue, which parses, normalises, decrypts and acks.
import { createRequire } from "node:module";

const { BENCH_MODULES, BENCH_URL, BENCH_QUEUE, BENCH_CONCURRENCY, BENCH_WAIT, BENCH_HTTP, BENCH_KEYS } =
  process.env;
const require = createRequire(BENCH_MODULES + "/");
const { syncQueue } = require("@proca/queue");

const wait = Number(BENCH_WAIT) * 1000;
const call = async (message) => {
  // Node's own fetch keeps its connections and opens as many as there are calls at once.
  const response = await fetch(BENCH_HTTP, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(message),
  });
  await response.text();
  return response.ok;
};
const pause = () => new Promise((done) => setTimeout(() => done(true), wait));
const handle = BENCH_HTTP ? call : wait ? pause : async () => true;

const options = { concurrency: Number(BENCH_CONCURRENCY), tag: "bench" };
if (BENCH_KEYS) options.keyStore = require("@proca/crypto").loadKeyStoreFromFile(BENCH_KEYS);

await syncQueue(BENCH_URL, BENCH_QUEUE, async (message) => {
  if (message.schema !== "proca:action:2") throw new Error("unknown schema");
  if (BENCH_KEYS && !message.contact.email) throw new Error("still sealed");
  return handle(message);
}, options);
