"""The collection that `open_knowledge` makes: its fields, indexes, analyzers and the notes kept with it.

A Milvus Lite collection can't get a field later, so everything that later versions need is declared from the start.
"""

import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pymilvus import CollectionSchema, DataType, Function, FunctionType

SCHEMA_VERSION = 1
"""Raised whenever fields, indexes or the meaning of a field change."""

Language = Literal["auto", "zh", "en"]
"""What the keyword leg reads: `zh` Chinese with English in it, `en` English only, `auto` what the collection has, `zh` for a new one."""

Isolation = Literal["partition_key", "collection", "database"]
"""What each tenant has of its own: a key in one shared collection, a collection, or a database. See docs/tenants.md."""

SHARED: Isolation = "partition_key"
"""The isolation of collections without a note of it."""

ID = "id"
TEXT = "text"
TENANT = "agent_id"
DENSE = "dense_embedding"
SPARSE = "sparse_embedding"
CONTENT_HASH = "content_hash"
CONFIDENCE = "confidence"
CREATED_AT = "created_at"
METADATA = "metadata"

MAX_VARCHAR_BYTES = 65_535
"""A server's limit for one VARCHAR value. It counts UTF-8 bytes where Milvus Lite counts characters; bytes are never fewer, so they decide."""

MAX_JSON_BYTES = 65_536
"""A server's limit for one JSON value."""

MAX_ID_BYTES = 512
MAX_TENANT_BYTES = 256

OPTIONAL_TEXT: Mapping[str, int] = MappingProxyType(
    {"doc_id": 512, "section": 2048, "version": 256, "title": 2048, "source": 4096, "url": 8192, "origin": 256}
)
"""Nullable text fields with the most UTF-8 bytes that fit."""

OPTIONAL_INTEGERS = ("chunk_index", "start", "end", "page", "fetched_at", "expires_at")
"""Nullable INT64 fields; `fetched_at` and `expires_at` are milliseconds since the epoch."""

RESERVED = frozenset({ID, "pk", TEXT, "vector", "dense", "sparse", DENSE, SPARSE, CONTENT_HASH})
"""Metadata keys nobody may bring: fields that are filled here, and langchain-milvus' own names for the same things."""

INDEXES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        DENSE: {"index_type": "AUTOINDEX", "metric_type": "COSINE", "params": {}},
        SPARSE: {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", "params": {}},
    }
)
"""Indexes that Lite and servers both build: Lite refuses AUTOINDEX for BM25, and any `drop_ratio`."""

SEARCH_PARAMS = tuple({"metric_type": index["metric_type"], "params": {}} for index in INDEXES.values())
"""Search parameters of the dense and the sparse leg, without the `drop_ratio` that Lite refuses."""

PUNCTUATION = (*string.punctuation, *"，。！？；：、（）《》“”‘’【】…—·")
"""Stop words for Lite's jieba, which counts punctuation as words and would let a full stop match."""

ANALYZERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "zh": {"tokenizer": "jieba", "filter": ["lowercase", "removepunct", {"type": "stop", "stop_words": list(PUNCTUATION)}]},
        "en": {
            "tokenizer": "standard",
            "filter": ["lowercase", {"type": "stemmer", "language": "english"}, {"type": "stop", "stop_words": ["_english_"]}],
        },
    }
)
"""Analyzers by language. Lite knows the two tokenizers and stop words, lower-cases by itself and ignores other filters; servers apply all (2.5.11 or later).

`cnalphanumonly` would drop versions such as `1.25.3`, so punctuation is removed by `removepunct`.
"""


def notes(embedding_name: str, dimension: int, language: str, isolation: str) -> dict[str, str]:
    """What is kept with the collection, in its properties: Lite loses the description, and both keep properties they don't know."""
    apart = {} if isolation == SHARED else {"crag.isolation": isolation}
    return {
        "crag.schema_version": str(SCHEMA_VERSION),
        "crag.embedding_name": embedding_name,
        "crag.embedding_dimension": str(dimension),
        "crag.language": language,
        **apart,
    }


def collection_schema(dimension: int, language: str) -> CollectionSchema:
    """The fields of a new collection, without dynamic ones: a partition key and dynamic fields don't go together in langchain-milvus."""
    schema = CollectionSchema([], enable_dynamic_field=False, check_fields=False)
    schema.add_field(ID, DataType.VARCHAR, is_primary=True, max_length=MAX_ID_BYTES)
    schema.add_field(TEXT, DataType.VARCHAR, max_length=MAX_VARCHAR_BYTES, enable_analyzer=True, analyzer_params=dict(ANALYZERS[language]))
    schema.add_field(TENANT, DataType.VARCHAR, max_length=MAX_TENANT_BYTES, is_partition_key=True)
    schema.add_field(DENSE, DataType.FLOAT_VECTOR, dim=dimension)
    schema.add_field(SPARSE, DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field(CONTENT_HASH, DataType.VARCHAR, max_length=64)
    schema.add_field(CONFIDENCE, DataType.DOUBLE)
    schema.add_field(CREATED_AT, DataType.INT64)
    schema.add_field(METADATA, DataType.JSON)
    for name, max_bytes in OPTIONAL_TEXT.items():
        schema.add_field(name, DataType.VARCHAR, max_length=max_bytes, nullable=True)
    for name in OPTIONAL_INTEGERS:
        schema.add_field(name, DataType.INT64, nullable=True)
    schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=[TEXT], output_field_names=[SPARSE]))
    return schema
