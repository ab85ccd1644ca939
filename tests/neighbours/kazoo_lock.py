"""A neighbour: so many critical sections under kazoo's own lock, in a process of its own.

    python kazoo_lock.py plain|mixed|curator SERVERS PATH FILE COUNT

Says "ready" when it is connected. Each turn reads the number in FILE, adds one and writes it back: if two ever work at
once, one of their turns is lost, and the sum at the end shows it. Says at last the first and the last number that it
wrote.

plain    kazoo as it is: sees only nodes called `__lock__`.
mixed    kazoo with `extra_lock_patterns`: its nodes are called `__lock__`, and it waits for `-lock-` too.
curator  kazoo with Curator's names. Curator sorts a node whose name has no `lock-` by its random part, mostly behind
         its own, and so does not wait for it: only with these names do the two exclude each other.
"""

import logging
import sys
import time
import uuid

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

SESSION_SECONDS = 10
CONNECT_SECONDS = 10
WAIT_SECONDS = 30


class CuratorLock(Lock):
    """kazoo's lock with the node names of Curator's `InterProcessMutex`."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]

    def __init__(self, client, path):
        super().__init__(client, path)
        self.prefix = f"_c_{uuid.uuid4()}{self._NODE_NAME}"
        self.create_path = f"{self.path}/{self.prefix}"


LOCKS = {
    "plain": Lock,
    "mixed": lambda client, path: Lock(client, path, extra_lock_patterns=["-lock-"]),
    "curator": CuratorLock,
}


def turn(lock, file):
    if not lock.acquire(timeout=WAIT_SECONDS):
        raise TimeoutError(f"not granted within {WAIT_SECONDS} s")
    try:
        with open(file, encoding="ascii") as stored:
            own = int(stored.read()) + 1
        time.sleep(0.001)  # room for whoever is wrongly here too
        with open(file, "w", encoding="ascii") as stored:
            stored.write(str(own))
        return own
    finally:
        lock.release()


def main():
    logging.disable(logging.CRITICAL)
    kind, servers, path, file, count = sys.argv[1:]
    client = KazooClient(hosts=servers, timeout=SESSION_SECONDS)
    client.start(timeout=CONNECT_SECONDS)
    try:
        lock = LOCKS[kind](client, path)
        print("ready", flush=True)
        written = [turn(lock, file) for _ in range(int(count))]
        print(written[0], written[-1])
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    main()
