"""A syncer: it takes a message and returns True (done) or False (failed)."""

CRM: dict[str, str] = {}  # stands for the system you sync to


def sync(message: dict) -> bool:
    contact = message["contact"]
    if "@" not in (contact["email"] or ""):
        return False
    CRM[contact["contactRef"]] = contact["email"]
    return True


def sync_fixed(message: dict) -> bool:
    """The same after a look at what failed: supporters without an e-mail address are kept, too."""
    contact = message["contact"]
    CRM[contact["contactRef"]] = contact["email"] or "no address"
    return True
