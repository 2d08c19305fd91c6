"""The versions of everything that a process caches of a relationship."""

import msgspec


class CompanionVersions(msgspec.Struct, frozen=True):
    """The versions of a companion as of one moment; `documents` counts changes to its documents."""

    companion_id: int
    version: int
    documents: int


class RelationshipVersions(msgspec.Struct, frozen=True):
    """The versions of a relationship as of one moment.

    They only rise, unless a database without the last commits takes over: one restored from a
    backup, or a standby that lagged behind. `incarnation` is of the start of the database that they
    were read from, so that numbers which have caught up since are not taken for the known ones.

    `removals` counts the transactions that removed something, `erasures` those of them that refuse
    work in flight. `settings_version` also counts changes of consent.
    """

    relationship_id: int
    memory_version: int
    layers_version: int
    removals: int
    erasures: int
    settings_version: int
    consented: bool
    incarnation: str


class VersionsInForce(msgspec.Struct, frozen=True):
    """Everything that prompts of a relationship depend on."""

    relationship: RelationshipVersions
    companion: CompanionVersions
