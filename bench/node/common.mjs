export const payload = (bytes) => ({ data: "x".repeat(Math.max(Number(bytes) - 11, 1)) });

export function finish(result) {
  console.log(JSON.stringify(result));
  process.exit(0);
}

// clock starts; what it returns says how long that is ago, and how much of a processor this process used since, both in seconds.
export function clock() {
  const began = process.hrtime.bigint();
  const cpu = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(cpu);
    return { seconds: Number(process.hrtime.bigint() - began) / 1e9, cpu: (user + system) / 1e6 };
  };
}

// producers adds n jobs by so many at once and says how long that took.
export async function producers(atOnce, n, add) {
  let left = n;
  const took = clock();
  await Promise.all(Array.from({ length: atOnce }, async () => { while (left-- > 0) await add(); }));
  return took();
}

// rate calls add so many times a second, n times.
export async function rate(perSecond, n, add) {
  const began = performance.now();
  for (let i = 0; i < n; i++) {
    const wait = began + (i * 1000) / perSecond - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    await add();
  }
}

// until waits until done() is true, for half a minute at most.
export async function until(done) {
  for (let tries = 0; !done() && tries < 3000; tries++) await new Promise((resolve) => setTimeout(resolve, 10));
}

// now is the wall clock in milliseconds, with fractions.
export const now = () => performance.timeOrigin + performance.now();
