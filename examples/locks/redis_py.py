"""Measures redis-py's Lock. URL TASKS SECONDS: prints two bare round trips, then "task asked granted freed"."""

import asyncio
import sys
import time

import redis.asyncio as redis

LEASE_SECONDS = 10


async def take_turns(client, task, began, seconds, turns):
    while (asked := time.monotonic() - began) < seconds:
        lock = client.lock("contended", timeout=LEASE_SECONDS, blocking_timeout=seconds - asked)
        if not await lock.acquire():
            return
        granted = time.monotonic() - began
        await asyncio.sleep(0)
        freed = time.monotonic() - began
        await lock.release()
        turns.append((task, asked, granted, freed))


async def main():
    url, tasks, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    url = url.replace("redis+unix://", "unix://")
    client = redis.Redis.from_url(url)
    began, count = time.monotonic(), 0
    while time.monotonic() - began < 0.3:
        await client.set("bare", "0123456789abcdef", px=10_000)
        await client.delete("bare")
        count += 1
    print((time.monotonic() - began) / count)
    began, turns = time.monotonic(), []
    await asyncio.gather(*(take_turns(client, task, began, seconds, turns) for task in range(tasks)))
    for turn in sorted(turns, key=lambda turn: turn[2]):
        print(*turn)


asyncio.run(main())
