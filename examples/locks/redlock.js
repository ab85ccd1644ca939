// Measures npm's redlock on one master. URL TASKS SECONDS: prints two bare round trips, then "task asked granted
// freed" for each turn. NODE_PATH names where redlock and ioredis are.
const Redis = require("ioredis");
const imported = require("redlock");
const Redlock = imported.default || imported;

const LEASE_MS = 10_000;
const [url, tasks, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const client = new Redis(url.replace("redis+unix://", ""));
const now = () => Number(process.hrtime.bigint()) / 1e9;

async function takeTurns(redlock, task, began, turns) {
  for (let asked; (asked = now() - began) < seconds; ) {
    let lock;
    try {
      lock = await (redlock.acquire || redlock.lock).call(redlock, ["contended"], LEASE_MS);
    } catch {
      continue; // Its tries are used up: ask anew.
    }
    const granted = now() - began;
    await null;
    const freed = now() - began;
    await (lock.release || lock.unlock).call(lock);
    turns.push([task, asked, granted, freed]);
  }
}

async function main() {
  let began = now();
  let count = 0;
  for (; now() - began < 0.3; count++) {
    await client.set("bare", "0123456789abcdef", "PX", LEASE_MS);
    await client.del("bare");
  }
  console.log((now() - began) / count);
  const redlock = new Redlock([client]);
  redlock.on && redlock.on("error", () => {});
  const turns = [];
  began = now();
  const running = [];
  for (let task = 0; task < tasks; task++) running.push(takeTurns(redlock, task, began, turns));
  await Promise.all(running);
  turns.sort((a, b) => a[2] - b[2]);
  for (const turn of turns) console.log(turn.join(" "));
  client.disconnect();
}

main();
