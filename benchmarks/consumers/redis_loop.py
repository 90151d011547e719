"""redis-py with hiredis and nothing around it: read a window, parse it, acknowledge it with the next read.

It is what a group's consumer can reach from Python: one loop, no concurrency, no handler and no failures.
"""

import os

import orjson
from redis import Redis

STREAM = os.environ["BENCH_QUEUE"]
GROUP = "chronicle"
WINDOW = 2 * int(os.environ["BENCH_CONCURRENCY"])

server = Redis.from_url(os.environ["BENCH_URL"])
done: list[bytes] = []
while True:
    turn = server.pipeline(transaction=False)
    for entry in done:
        turn.xack(STREAM, GROUP, entry)
    turn.xreadgroup(GROUP, "loop", {STREAM: ">"}, count=WINDOW, block=1000)
    *_, read = turn.execute()
    done = []
    for _stream, entries in read or ():
        for entry, fields in entries:
            if orjson.loads(fields[b"data"])["schema"] != "proca:action:2":
                raise ValueError("unknown schema")
            done.append(entry)
