// Contends for a lock by npm's redlock: URL[,URL...] NAME FILE COUNT, as examples/contend.rs does it by ours.
//
// COUNT critical sections, each of which reads the number in FILE and writes it back, one larger. Prints "ready"
// before the first one, and the first and the last number that it wrote after the last. NODE_PATH names where
// redlock and ioredis are.
const fs = require("fs");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const LEASE_MS = 10_000;
const WAIT_MS = 60_000;
const ASK_AGAIN = { retryCount: 0, retryDelay: 0, retryJitter: 0 };
const PAUSE_MS = 20;

async function acquire(redlock, name) {
  // Its own retries are bounded by a count; here they are to last for a time.
  for (const until = Date.now() + WAIT_MS; ; ) {
    try {
      return await redlock.acquire([name], LEASE_MS);
    } catch (error) {
      if (Date.now() > until) throw error;
      await new Promise((wake) => setTimeout(wake, PAUSE_MS * Math.random()));
    }
  }
}

async function section(redlock, name, file) {
  const lock = await acquire(redlock, name);
  const before = Number(fs.readFileSync(file, "utf8"));
  fs.writeFileSync(file, String(before + 1));
  // It throws if no majority of the masters has released it.
  await lock.release();
  return before + 1;
}

async function main() {
  const [urls, name, file, count] = process.argv.slice(2);
  const masters = urls.split(",").map((url) => new Redis(url.replace("redis+unix://", "")));
  await Promise.all(masters.map((master) => master.ping()));
  const redlock = new Redlock(masters, ASK_AGAIN);
  // "Somebody else has it" is said here as well.
  redlock.on("error", () => {});
  console.log("ready");
  const written = [];
  for (let turn = 0; turn < Number(count); turn++) {
    written.push(await section(redlock, name, file));
  }
  console.log(written[0], written[written.length - 1]);
  masters.forEach((master) => master.disconnect());
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
