"""Who may log in to a private Kafka server by SCRAM, and what they may do there."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.topics import Topics

ANSWER_TIMEOUT: Final = 30.0


def allow(
    topics: Topics, user: str, *operations: str, topic: str = "", group: str = "", transaction: str = ""
) -> None:
    """Let a user do this, for example READ and DESCRIBE, with what is named; a star names all."""
    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transaction,
    }
    rules = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*",
            AclOperation[operation], AclPermissionType.ALLOW,
        )
        for kind, name in named.items() if name
        for operation in operations
    ]  # fmt: skip
    with topics.admin() as admin:
        done(admin.create_acls(rules))


def forbid(topics: Topics, user: str) -> None:
    """Take back all that was allowed to a user."""
    anything: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{user}", anything,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    with topics.admin() as admin:
        done(admin.delete_acls([everything]))


def write_users(topics: Topics, users: Mapping[str, str]) -> None:
    """Write down the users for SCRAM; those for PLAIN are in the settings."""
    with topics.admin() as admin:
        # Kafka takes one mechanism of a user at a time.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            how = ScramCredentialInfo(mechanism, 4096)
            for user, password in users.items():
                wanted = UserScramCredentialUpsertion(user, how, password.encode())
                done(admin.alter_user_scram_credentials([wanted]))


def done(answers: Mapping[Any, Future[Any]]) -> None:
    for answer in answers.values():
        answer.result(ANSWER_TIMEOUT)
