"""A neighbour: so many critical sections under kazoo's own lock, in a process of its own.

    python3 kazoo_lock.py SERVERS PATH FILE COUNT [plain|mixed|curator]

Says "ready" when it is connected and begins when a line comes in, so that all contend from the first turn on. Each
turn reads the number in FILE, adds one and writes it back: if two ever work at once, one of their turns is lost, and
the sum at the end shows it. Says at last between how many of its turns somebody else had one.

plain    kazoo as it is: sees only nodes called `__lock__`.
mixed    kazoo with `extra_lock_patterns`: its nodes are called `__lock__`, and it waits for `-lock-` too.
curator  kazoo with Curator's names. Curator sorts a node whose name has no `lock-` by its random part, mostly behind
         its own, and so does not wait for it: only with these names do the two exclude each other.

Debian: python3-kazoo.
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


def take_turns(lock, file, count):
    own, handed = 0, 0
    for _ in range(count):
        if not lock.acquire(timeout=WAIT_SECONDS):
            raise TimeoutError(f"not granted within {WAIT_SECONDS} s")
        try:
            with open(file, encoding="ascii") as stored:
                read = int(stored.read())
            handed += read != own
            time.sleep(0.001)  # room for whoever is wrongly here too
            own = read + 1
            with open(file, "w", encoding="ascii") as stored:
                stored.write(str(own))
        finally:
            lock.release()
    return handed


def main():
    logging.disable(logging.CRITICAL)
    servers, path, file, count = sys.argv[1:5]
    kind = sys.argv[5] if len(sys.argv) > 5 else "mixed"
    client = KazooClient(hosts=servers, timeout=SESSION_SECONDS)
    client.start(timeout=CONNECT_SECONDS)
    try:
        lock = LOCKS[kind](client, path)
        print("ready", flush=True)
        sys.stdin.readline()
        print(take_turns(lock, file, int(count)))
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    main()
