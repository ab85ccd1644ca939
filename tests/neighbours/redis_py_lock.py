"""Contends for a lock by redis-py's Lock: URL NAME FILE COUNT, as examples/contend.rs does it by ours.

COUNT critical sections, each of which reads the number in FILE and writes it back, one larger. Prints "ready" before
the first one, and the first and the last number that it wrote after the last.
"""

import sys

import redis

LEASE_SECONDS = 10
WAIT_SECONDS = 60
ASK_AGAIN_SECONDS = 0.005


def section(lock, file):
    if not lock.acquire():
        sys.exit("the lock was not free in time")
    with open(file) as text:
        before = int(text.read())
    with open(file, "w") as text:
        text.write(str(before + 1))
    # It raises if the lock is not this one's any more.
    lock.release()
    return before + 1


def main():
    url, name, file, count = sys.argv[1:]
    client = redis.Redis.from_url(url.replace("redis+unix://", "unix://"))
    lock = client.lock(
        name,
        timeout=LEASE_SECONDS,
        sleep=ASK_AGAIN_SECONDS,
        blocking_timeout=WAIT_SECONDS,
    )
    client.ping()
    print("ready", flush=True)
    written = [section(lock, file) for _ in range(int(count))]
    print(written[0], written[-1])


main()
