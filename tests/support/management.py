"""What a test asks RabbitMQ's management API: the topology as the broker itself sees it."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen


class ManagementApi:
    """The API of a node, by its management URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.hostname}:{parts.port}/api"
        who = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        self._headers = {"Authorization": f"Basic {base64.b64encode(who.encode()).decode()}"}

    def queues(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Durable queues whose names begin so, with their arguments.

        RabbitMQ 4 adds `x-queue-type=classic` where none was asked for; it is left out here.
        """
        found = self._get("queues/%2F")
        return {
            queue["name"]: {
                name: value
                for name, value in queue["arguments"].items()
                if (name, value) != ("x-queue-type", "classic")
            }
            for queue in found
            if queue["name"].startswith(prefix) and queue["durable"]
        }

    def exchanges(self, prefix: str) -> dict[str, str]:
        """Durable exchanges whose names begin so, with their kind."""
        found = self._get("exchanges/%2F")
        return {
            exchange["name"]: exchange["type"]
            for exchange in found
            if exchange["name"].startswith(prefix) and exchange["durable"]
        }

    def bindings(self, exchange: str) -> list[tuple[str, str]]:
        """Where an exchange sends messages: queue and routing key."""
        found = self._get(f"exchanges/%2F/{quote(exchange, safe='')}/bindings/source")
        return sorted((entry["destination"], entry["routing_key"]) for entry in found)

    def _get(self, path: str) -> Any:
        with urlopen(Request(f"{self._base}/{path}", headers=self._headers), timeout=10) as answer:
            return json.load(answer)
