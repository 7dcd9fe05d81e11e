// A queue at its defaults beside a database that may suspend: node awake.mjs graphile|pgboss URL. It reads jobs to add, one line of
// JSON each, {id, once, delay}, and says on stdout what happens. It ends when its input ends.
import { createInterface } from "node:readline";

const [who, url] = process.argv.slice(2);
const say = (line) => console.log(JSON.stringify(line));
const trouble = (error) => say({ what: "trouble", text: String(error?.message ?? error) });
const ran = ({ id }) => say({ what: "ran", id, at: Date.now() });
const ticked = (name) => say({ what: "ticked", name, at: Date.now() });
const fail = ({ id }) => {
  say({ what: "failed", id, at: Date.now() });
  throw new Error("the first attempt fails");
};
process.on("unhandledRejection", trouble);
process.on("uncaughtException", trouble);

const queues = {
  async graphile() {
    const { Logger, run } = await import("graphile-worker");
    const tasks = {
      ok: ran,
      once: (payload, { job }) => (job.attempts === 1 ? fail : ran)(payload),
      "each-minute": () => ticked("each-minute"),
      twice: () => ticked("twice"),
    };
    const runner = await run({
      connectionString: url, taskList: tasks, noHandleSignals: true,
      crontab: "* * * * * each-minute\n*/2 * * * * twice",
      logger: new Logger(() => (level, message) => {
        if ((level === "error" || level === "warning") && !message.includes("the first attempt fails")) trouble(message);
      }),
    });
    runner.promise.catch(trouble);
    return {
      add: ({ id, once, delay }) => runner.addJob(once ? "once" : "ok", { id }, delay ? { runAt: new Date(Date.now() + delay) } : {}),
      stop: () => runner.stop(),
    };
  },

  async pgboss() {
    const { PgBoss } = await import("pg-boss");
    const boss = new PgBoss(url);
    boss.on("error", trouble);
    await boss.start();
    const names = ["ok", "once", "each-minute", "twice"];
    for (const name of names) await boss.createQueue(name, name === "once" ? { retryLimit: 2, retryDelay: 12 } : {});
    await boss.work("ok", { batchSize: 25 }, async (jobs) => jobs.forEach((job) => ran(job.data)));
    await boss.work("once", { includeMetadata: true }, async ([job]) => (job.retryCount === 0 ? fail : ran)(job.data));
    for (const name of names.slice(2)) await boss.work(name, async () => ticked(name));
    await boss.schedule("each-minute", "* * * * *");
    await boss.schedule("twice", "*/2 * * * *");
    return {
      add: ({ id, once, delay }) => boss.send(once ? "once" : "ok", { id }, delay ? { startAfter: new Date(Date.now() + delay) } : {}),
      stop: () => boss.stop(),
    };
  },
};

const queue = await queues[who]();
say({ what: "started" });
for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  say({ what: "adding", id: job.id, at: Date.now() });
  for (;;) { // a connection that the suspend has closed
    try {
      await queue.add(job);
      break;
    } catch (error) {
      trouble(error);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}
await queue.stop().catch(trouble);
process.exit(0);
