"""The fields of proca's messages, sorted by how much they say about a person."""

from __future__ import annotations

from typing import Final

# Names that may be shown in a path. Any other key was chosen outside, and may be a person's name.
FIELDS: Final = frozenset((
    "schema", "stage", "eventType", "timestamp", "actionId", "actionPageId", "campaignId", "orgId",
    "action", "actionType", "createdAt", "customFields", "fields", "donation", "payload", "amount",
    "currency", "frequencyUnit", "testing", "actionPage", "locale", "name", "thankYouTemplate",
    "thankYouTemplateRef", "supporterConfirmTemplate", "campaign", "title", "contactSchema",
    "externalId", "config", "org", "contact", "contactRef", "ref", "dupeRank", "email", "firstName",
    "lastName", "phone", "country", "postcode", "address", "region", "locality", "street",
    "streetNumber", "area", "birthDate", "city", "nationality", "documentType", "documentNumber",
    "personalInfo", "nonce", "encryptKey", "signKey", "public", "id", "privacy", "withConsent",
    "optIn", "givenAt", "emailStatus", "emailStatusChanged", "communication", "tracking", "source",
    "medium", "content", "location", "supporter", "confirm", "operation", "message", "subjectId",
    "objectId", "code", "creator", "jobTitle", "acceptLink", "rejectLink",
))  # fmt: skip

# Where every word counts, however short or common.
PROPER: Final = frozenset(("contact", "supporter", "personalInfo", "confirm"))

# Words that say nothing about a person unless they are in a proper field.
EVERYDAY: Final = frozenset(map(str.lower, FIELDS)) | frozenset((
    "true", "false", "yes", "no", "none", "null", "on", "off", "http", "https", "www",
))  # fmt: skip

# What the organisers chose, not the supporters: these values may be shown.
HARMLESS: Final = frozenset(tuple(path.split(".")) for path in (
    "schema", "stage", "eventType", "timestamp", "actionId", "actionPageId", "campaignId", "orgId",
    "action.actionType", "action.createdAt", "actionPage.name", "actionPage.locale",
    "campaign.name", "campaign.id", "campaign.contactSchema", "campaign.externalId", "org.name",
    "privacy.givenAt", "privacy.emailStatus", "privacy.emailStatusChanged",
    "supporter.privacy.givenAt", "supporter.privacy.emailStatus",
    "supporter.privacy.emailStatusChanged",
))  # fmt: skip
