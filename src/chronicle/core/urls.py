"""A URL, cut into its parts.

urllib has become strict about addresses in brackets that stand beside other hosts, and a cluster has those:
kafka://h1,[::1]:9093.

Rule: nothing is refused here. What a part must look like is for whoever uses it to say.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NO_PART_OF_IT: Final = str.maketrans("", "", "\t\r\n")  # as urllib sees it


class Url(NamedTuple):
    """The parts of a URL as they are written; `login` is the user, perhaps with a password."""

    scheme: str
    login: str
    hosts: str
    path: str
    query: str
    fragment: str


def split_url(url: str) -> Url:
    rest, _, fragment = _tidy(url).partition("#")
    rest, _, query = rest.partition("?")
    scheme, _, rest = rest.partition(":") if ":" in rest.partition("/")[0] else ("", "", rest)
    netloc, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    login, _, hosts = netloc.rpartition("@")
    return Url(scheme.lower(), login, hosts, slash + path, query, fragment)


def join_login(url: str, login: str) -> str:
    """The same URL with this user, and perhaps a password, instead of its own."""
    parts = split_url(url)
    before, slashes, after = _tidy(url).partition("//")
    own = f"{parts.login}@" if parts.login else ""
    return f"{before}{slashes}{login}@{after.removeprefix(own)}"


def _tidy(url: str) -> str:
    return url.strip().translate(NO_PART_OF_IT)
