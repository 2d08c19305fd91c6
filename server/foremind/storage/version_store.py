"""Reads the versions in force of relationships and their companions."""

from collections.abc import Sequence
from typing import Any

from foremind.domain.versions import CompanionVersions, RelationshipVersions, VersionsInForce
from foremind.storage.database import Database


def versions_of(row: Any) -> VersionsInForce:
    """Return the versions in a row."""
    return VersionsInForce(
        RelationshipVersions(*(row[name] for name in RelationshipVersions.__struct_fields__)),
        CompanionVersions(row["companion_id"], row["companion_version"], row["documents_version"]),
    )


class VersionStore:
    """Reads versions, for any relationships."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self, relationships: Sequence[int]) -> dict[int, VersionsInForce]:
        """Return the versions by relationship id, without those that do not exist.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        rows = await self._database.rows("relationship_versions", list(relationships))
        return {row["relationship_id"]: versions_of(row) for row in rows}
