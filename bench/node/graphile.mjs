// Graphile Worker under test: node graphile.mjs ACTION URL N BYTES. Prints one line of JSON.
import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { clock, finish, now, payload, producers, rate, until } from "./common.mjs";

const [action, url, count, bytes] = process.argv.slice(2);
const n = Number(count);
const logger = new Logger(() => () => {});
// The settings that its documentation gives for throughput: a local queue, and completions in batches.
const preset = {
  worker: { connectionString: url, maxPoolSize: 20, pollInterval: 1000, concurrentJobs: 96, logger, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
};

if (action === "setup") {
  await runMigrations({ connectionString: url, logger });
  finish({});
} else if (action === "enqueue") {
  const pool = new pg.Pool({ connectionString: url, max: 8 });
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  finish(await producers(8, n, () => utils.addJob("nothing", payload(bytes))));
} else if (action === "bulk") {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  const jobs = Array.from({ length: 5000 }, () => ({ identifier: "nothing", payload: payload(bytes) }));
  const took = clock();
  for (let left = n; left > 0; left -= jobs.length) await utils.addJobs(jobs.slice(0, Math.min(left, jobs.length)));
  finish(took());
} else if (action === "drain") {
  let left = n;
  let done;
  const all = new Promise((resolve) => (done = resolve));
  const took = clock();
  const runner = await run({ preset, taskList: { nothing: () => { if (--left === 0) done(); } }, noHandleSignals: true });
  await all;
  await runner.stop();
  finish(took());
} else if (action === "latency") {
  const waits = [];
  const runner = await run({ preset, taskList: { stamp: ({ at }) => waits.push(now() - at) }, noHandleSignals: true });
  await rate(20, n, () => runner.addJob("stamp", { at: now() }));
  await until(() => waits.length === n);
  await runner.stop();
  finish({ waits });
} else if (action === "once") {
  // For the cold start: says when the first job starts, and ends when it is done.
  let done;
  const first = new Promise((resolve) => (done = resolve));
  const runner = await run({ preset, taskList: { nothing: () => { console.log("started"); done(); } }, noHandleSignals: true });
  await first;
  await runner.stop();
  process.exit(0);
}
