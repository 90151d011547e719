"""What a test asks RabbitMQ's management API: the topology as the broker sees it, users and policies."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
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
        found = self._get(f"exchanges/%2F/{_quoted(exchange)}/bindings/source")
        return sorted((entry["destination"], entry["routing_key"]) for entry in found)

    def add_user(self, name: str, password: str) -> None:
        """A user who may do nothing yet."""
        self._change("PUT", f"users/{_quoted(name)}", {"password": password, "tags": ""})

    def set_permissions(self, user: str, configure: str, write: str, read: str) -> None:
        """What a user may do: patterns of the names, an empty one means nothing."""
        rights = {"configure": configure, "write": write, "read": read}
        self._change("PUT", f"permissions/%2F/{_quoted(user)}", rights)

    def delete_user(self, name: str) -> None:
        self._change("DELETE", f"users/{_quoted(name)}")

    def add_vhost(self, name: str) -> None:
        """A virtual host that guest may use."""
        self._change("PUT", f"vhosts/{_quoted(name)}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self._change("PUT", f"permissions/{_quoted(name)}/guest", everything)

    def limit_connections(self, vhost: str, most: int) -> None:
        """So many connections at once, from now on."""
        self._change("PUT", f"vhost-limits/{_quoted(vhost)}/max-connections", {"value": most})

    def delete_vhost(self, name: str) -> None:
        self._change("DELETE", f"vhosts/{_quoted(name)}")

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, Any]) -> None:
        """A policy for the queues whose names match."""
        policy = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
        self._change("PUT", f"policies/%2F/{_quoted(name)}", policy)

    def clear_policy(self, name: str) -> None:
        self._change("DELETE", f"policies/%2F/{_quoted(name)}")

    def _get(self, path: str) -> Any:
        return json.loads(self._answer(Request(f"{self._base}/{path}", headers=self._headers)))

    def _change(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> None:
        body = None if document is None else json.dumps(document).encode()
        headers = self._headers | {"Content-Type": "application/json"}
        self._answer(Request(f"{self._base}/{path}", body, headers, method=method))

    def _answer(self, request: Request) -> bytes:
        with urlopen(request, timeout=10) as answer:
            return bytes(answer.read())


def _quoted(name: str) -> str:
    return quote(name, safe="")
