"""A collection of ours in Milvus: made if it is missing, checked by the notes kept with it, opened as a store."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings
from pymilvus import MilvusException

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.schema import INDEXES, SCHEMA_VERSION, SHARED, Language, collection_schema, notes
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.stages.chinese import load

T = TypeVar("T")

SETTLING_S = (0.1, 0.3, 1.0)
"""Waits between attempts: Milvus refuses to make what another process is making in the same moment."""

_MEND = {
    "schema_version": f"this package reads version {SCHEMA_VERSION}; open a new collection and ingest again",
    "isolation": "open it with that isolation; docs/tenants.md says how to move to another one",
    "embedding_name": "open it with those embeddings, ingest into a new collection, or pass `embedding_name=` if the vectors are the same",
    "embedding_dimension": "open it with the embeddings that made it, or ingest into a new collection",
    "language": "leave `language` out, or ingest into a new collection",
}
"""What to do about each note that is not as wanted."""


@dataclass(frozen=True, slots=True)
class Making:
    """How collections are made and opened.

    Attributes:
        embeddings: Make the dense vectors.
        embedding_name: The name kept with a collection.
        dimension: Of the vectors.
        language: `auto` for what the collection has, `zh` for a new one.
        isolation: What tenants are kept apart by, and whether it is one tenant's.
        consistency_level: Kept with a new collection.
        timeout_s: Deadline of each call of Milvus, in seconds, or None.
    """

    embeddings: Embeddings
    embedding_name: str
    dimension: int
    language: Language
    isolation: str
    consistency_level: str
    timeout_s: float | None

    def ensure(self, client: Any, collection: str) -> "Making":
        """Makes the collection if it is missing, and checks the notes that it has; returns this with the collection's language.

        Raises:
            ConfigError: It was not made by us, or not in this way.
            MilvusException: Milvus failed.
        """
        if not client.has_collection(collection, timeout=self.timeout_s):
            self._create(client, collection)
        return self.checked(client, collection)

    def checked(self, client: Any, collection: str) -> "Making":
        """This with the language of the collection, which must be there and fit.

        Raises:
            ConfigError: It was not made by us, or not in this way.
            MilvusException: Milvus failed.
        """
        kept = client.describe_collection(collection, timeout=self.timeout_s).get("properties") or {}
        language = kept.get("crag.language", "") if self.language == "auto" else self.language
        _check_notes(collection, {"crag.isolation": SHARED, **kept}, {"crag.isolation": SHARED, **self._notes(language)})
        if language == "zh":
            load()  # jieba, which Lite cuts words with: now, and not in the first turn
        return replace(self, language=language)

    def store(self, connection: Mapping[str, Any], collection: str) -> KnowledgeStore:
        """The store over a collection that is there."""
        return KnowledgeStore(
            self.embeddings,
            connection,
            collection=collection,
            dimension=self.dimension,
            consistency_level=self.consistency_level,
            timeout_s=self.timeout_s,
        )

    def _notes(self, language: str) -> dict[str, str]:
        return notes(self.embedding_name, self.dimension, language, self.isolation)

    def _create(self, client: Any, collection: str) -> None:
        language = "zh" if self.language == "auto" else self.language
        indexes = client.prepare_index_params()
        for field, index in INDEXES.items():
            indexes.add_index(field, **index)
        # A partition key takes sixteen partitions unless told otherwise, and a server counts each; there is nothing to spread where one tenant is alone.
        alone = {} if self.isolation == SHARED else {"num_partitions": 1}
        client.create_collection(
            collection,
            schema=collection_schema(self.dimension, language),
            properties=self._notes(language),
            consistency_level=self.consistency_level,
            timeout=self.timeout_s,
            **alone,
        )
        # Loading waits for the indexes; waiting here, too, would poll for half a second at each.
        client.create_index(collection, indexes, timeout=self.timeout_s, sync=False)


def patiently(attempt: Callable[[], T]) -> T:
    """What the attempt returns in the end: an index it finds missing is made by the store, a half-made collection is waited for."""
    for wait_s in SETTLING_S:
        try:
            return attempt()
        except MilvusException:
            time.sleep(wait_s)
    return attempt()


def _check_notes(collection: str, kept: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Passes if the collection was made by this version, with this isolation, for these embeddings and this language."""
    if "crag.schema_version" not in kept:
        msg = (
            f"the collection {collection!r} was not made by `open_knowledge`; use another name, "
            "or give a `langchain_milvus.Milvus` store over it to the middleware"
        )
        raise ConfigError(msg)
    for note, advice in _MEND.items():
        had, got = kept.get(f"crag.{note}"), wanted[f"crag.{note}"]
        if had != got:
            msg = f"the collection {collection!r} was made with {note} {had!r}, got {got!r}; {advice}"
            raise ConfigError(msg)
