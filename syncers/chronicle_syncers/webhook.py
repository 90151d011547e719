"""A syncer that posts each message as JSON to a URL.

Rule 1: 2xx is True. 408, 429, 5xx, a timeout and a failed connection ask for another try, after the time in
        Retry-After (at most an hour). Any other response is False, including redirects.
Rule 2: `Idempotency-Key` lets the receiver ignore duplicates: the actionId of a delivered action, the
        SHA-256 of the body for everything else, since confirmations and events share their action's id.
Rule 3: no error text contains the URL, the token, the message or any part of the response.

    CHRONICLE_WEBHOOK_URL           where to post to, https:// (http:// is for trusted networks)
    CHRONICLE_WEBHOOK_TOKEN         sent as a bearer token, if set
    CHRONICLE_WEBHOOK_TOKEN_FILE    or a file that contains the token
    CHRONICLE_WEBHOOK_TIMEOUT       seconds to connect, and again for the whole response; 10 by default

Certificates are verified against the system's CA bundle, or the one SSL_CERT_FILE names. Proxy variables are
ignored.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from chronicle import Retry
from chronicle.errors import SettingError
from chronicle_syncers._message import Message, action_id, as_json, lookup
from chronicle_syncers._post import Endpoint, NoAnswerError, connect, post
from chronicle_syncers._settings import required, seconds

URL: Final = "CHRONICLE_WEBHOOK_URL"
TOKEN: Final = "CHRONICLE_WEBHOOK_TOKEN"
TIMEOUT: Final = "CHRONICLE_WEBHOOK_TIMEOUT"
LONGEST_WAIT: Final = 3600.0

log = logging.getLogger(__name__)


class Webhook:
    """Posts messages over one persistent connection per thread."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.time
    ) -> None:
        self._endpoint = parse_url(
            required(environ, URL, "https://crm.example.org/hook"), seconds(environ, TIMEOUT, 10.0)
        )
        self._headers = {"Content-Type": "application/json", "User-Agent": "chronicle"}
        if token := read_token(environ):
            self._headers["Authorization"] = f"Bearer {token}"
        self._clock = clock
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()

    def __enter__(self) -> Webhook:
        if self._endpoint.tls is None and self._endpoint.host not in ("127.0.0.1", "::1", "localhost"):
            log.warning("%s is http://: messages travel unencrypted", URL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    def __call__(self, message: Message) -> bool:
        body = as_json(message)
        headers = {**self._headers, "Idempotency-Key": idempotency_key(message, body)}
        try:
            status, retry_after = self._post(body, headers)
        except TimeoutError:
            raise Retry("the webhook did not answer in time") from None
        except ssl.SSLCertVerificationError:
            raise Retry("the webhook's certificate is not trusted") from None
        except NoAnswerError:
            raise Retry("the webhook closed the connection without an answer") from None
        except (OSError, http.client.HTTPException) as error:
            raise Retry(f"the webhook cannot be reached: {type(error).__name__}") from None
        if 200 <= status < 300:
            return True
        if status in (408, 429) or 500 <= status < 600:
            raise Retry(f"the webhook answered {status}", after=wait(retry_after, self._clock()))
        return False

    def _post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str | None]:
        connection: http.client.HTTPConnection | None = getattr(self._mine, "connection", None)
        if connection is not None:
            try:
                return self._post_on(connection, body, headers)
            except NoAnswerError:
                pass  # a server may close a kept connection at any time: that says nothing about this message
        return self._post_on(connect(self._endpoint), body, headers)

    def _post_on(
        self, connection: http.client.HTTPConnection, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, str | None]:
        self._mine.connection = None
        with self._lock:
            self._open.add(connection)
        keep = False
        try:
            answer = post(connection, self._endpoint, body, headers)
            keep = answer.keep
        finally:
            if not keep:
                connection.close()
                with self._lock:
                    self._open.discard(connection)
        self._mine.connection = connection if keep else None
        return answer.status, answer.retry_after


def parse_url(url: str, timeout: float) -> Endpoint:
    """Where to post to; refuses what http.client would report in an error that quotes the URL."""
    remedy = f"for example {URL}=https://crm.example.org/hook"
    if not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise SettingError(f"{URL} holds a blank or a character beyond ASCII", "percent-encode it")
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise SettingError(f"{URL} is not a URL", remedy) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"{URL} is not an http:// or https:// URL with a host", remedy)
    if parts.username is not None or parts.password is not None:
        raise SettingError(f"{URL} holds a user name or password", f"put a token into {TOKEN}_FILE instead")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    if tls:
        tls.hostname_checks_common_name = False  # many authorities do not check what it says
    return Endpoint(tls, parts.hostname, port or (443 if tls else 80), target, timeout)


def read_token(environ: Mapping[str, str]) -> str:
    """The token from the environment or its file; empty if there is none."""
    token, file = environ.get(TOKEN, "").strip(), environ.get(f"{TOKEN}_FILE", "").strip()
    if token and file:
        raise SettingError(f"{TOKEN} and {TOKEN}_FILE are both set", "keep one of them")
    if file:
        try:
            token = Path(file).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"the file of {TOKEN}_FILE cannot be read: {type(error).__name__}") from None
        if not token:
            raise SettingError(f"the file of {TOKEN}_FILE is empty", "write the token into it")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise SettingError(
            f"{TOKEN} holds a character that cannot stand in a header", "check it for line breaks"
        )
    return token


def idempotency_key(message: Message, body: bytes) -> str:
    """A key that is the same when this message arrives again and different for every other message."""
    number = action_id(message)
    if number is not None and lookup(message, "stage") in (None, "deliver"):
        return str(number)
    return hashlib.sha256(body).hexdigest()


def wait(retry_after: str | None, now: float) -> float | None:
    """How long the server wants us to wait; None if it does not say, and then the delay grows."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        delay = float(text[:9]) if len(text) <= 9 else LONGEST_WAIT
    else:
        try:
            delay = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    # Zero and the past would be a hot loop.
    return min(delay, LONGEST_WAIT) if delay > 0 else None


sync = Webhook
