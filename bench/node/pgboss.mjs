// pg-boss under test: node pgboss.mjs ACTION URL N BYTES. Prints one line of JSON.
import { PgBoss } from "pg-boss";
import { clock, finish, now, payload, producers, rate, until } from "./common.mjs";

const [action, url, count, bytes] = process.argv.slice(2);
const n = Number(count);
const boss = new PgBoss({ connectionString: url, max: 20, supervise: false, schedule: false, useListenNotify: action === "latency" });
boss.on("error", (e) => console.error(e.message));
await boss.start();

if (action === "setup") {
  await boss.createQueue("nothing");
  await boss.createQueue("stamp", { notify: true });
  await boss.stop();
  finish({});
} else if (action === "enqueue") {
  finish(await producers(8, n, () => boss.send("nothing", payload(bytes))));
} else if (action === "bulk") {
  const jobs = Array.from({ length: 5000 }, () => ({ data: payload(bytes) }));
  const took = clock();
  for (let left = n; left > 0; left -= jobs.length) await boss.insert("nothing", jobs.slice(0, Math.min(left, jobs.length)));
  finish(took());
} else if (action === "drain") {
  // Batches are fetched and completed by hand, two loops at once: several times as fast as work() with its polling.
  const took = clock();
  let done = 0;
  const loop = async () => {
    for (;;) {
      const jobs = await boss.fetch("nothing", { batchSize: 1000 });
      if (jobs.length === 0) return;
      await boss.complete("nothing", jobs.map((j) => j.id));
      done += jobs.length;
    }
  };
  await Promise.all([loop(), loop()]);
  if (done !== n) throw new Error(`${done} of ${n} done`);
  finish(took());
} else if (action === "latency") {
  const waits = [];
  await boss.work("stamp", { pollingIntervalSeconds: 0.5 }, async ([job]) => { waits.push(now() - job.data.at); });
  await rate(20, n, () => boss.send("stamp", { at: now() }));
  await until(() => waits.length === n);
  finish({ waits });
} else if (action === "once") {
  const [job] = await boss.fetch("nothing", { batchSize: 1 });
  console.log("started");
  await boss.complete("nothing", job.id);
  process.exit(0);
}
