"""The call that the `http` handlers of all Python consumers make: the message as JSON, to the local server.

The clients are the same for everybody and lie in a folder of their own (installing.py). A handler that makes
no call imports none of them.
"""

import os
import sys
from typing import Any

URL = os.environ["BENCH_HTTP"]
CONCURRENCY = int(os.environ["BENCH_CONCURRENCY"])

sys.path.append(os.environ["BENCH_CLIENTS"])


class Async:
    """aiohttp, with a connection for each handler that may run at once."""

    def __init__(self) -> None:
        self._session: Any = None

    async def post(self, message: dict[str, Any]) -> bool:
        if self._session is None:  # made on the loop it is used on
            import aiohttp

            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY))
        async with self._session.post(URL, json=message) as response:
            await response.read()
            return bool(response.status == 200)


class Sync:
    """urllib3, with a connection for each handler that may run at once."""

    def __init__(self) -> None:
        import urllib3

        self._pool = urllib3.connection_from_url(URL, maxsize=CONCURRENCY)

    def post(self, message: dict[str, Any]) -> bool:
        return bool(self._pool.request("POST", "/", json=message).status == 200)
