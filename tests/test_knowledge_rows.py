"""Rows are complete, identified and checked before anything is embedded or written."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.knowledge.rows import batched, prepare_rows, with_vectors
from crag_middleware.knowledge.schema import MAX_VARCHAR_BYTES, OPTIONAL_INTEGERS, OPTIONAL_TEXT, RESERVED
from crag_middleware.settings import DEFAULT_CONFIDENCE

NOW = 1_700_000_000_000
FREE_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
SMALL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip)


def rows(texts, metadatas=None, ids=None, agent_id="a"):
    return prepare_rows(texts, metadatas, ids, agent_id=agent_id, now_ms=NOW)


def row(text="some text", agent_id="a", **metadata):
    return rows([text], [metadata], agent_id=agent_id)[0]


def test_a_row_without_metadata_is_filled_in():
    made = row("图书馆周末照常开放")

    assert made["content_hash"] == sha256("图书馆周末照常开放".encode()).hexdigest()
    assert (made["text"], made["agent_id"], made["confidence"], made["created_at"]) == ("图书馆周末照常开放", "a", DEFAULT_CONFIDENCE, NOW)
    assert made["metadata"] == {}
    assert all(made[name] is None for name in (*OPTIONAL_TEXT, *OPTIONAL_INTEGERS))


def test_the_id_is_the_hash_of_length_prefixed_tenant_document_position_and_text():
    parts = ("a", "manual.pdf", "7", "text")
    expected = sha256(b"".join(len(p.encode()).to_bytes(8, "big") + p.encode() for p in parts)).hexdigest()

    assert row("text", source="manual.pdf", chunk_index=7)["id"] == expected
    assert row("text", source="elsewhere", doc_id="manual.pdf", chunk_index=7)["id"] == expected


@pytest.mark.parametrize(
    "other",
    [
        {"agent_id": "b"},
        {"doc_id": "d2"},
        {"chunk_index": 2},
        {"text": "other"},
    ],
)
def test_each_part_of_the_id_changes_it(other):
    base = {"text": "text", "agent_id": "a", "doc_id": "d1", "chunk_index": 1}

    assert row(**base)["id"] != row(**{**base, **other})["id"]


@given(SMALL_TEXT, SMALL_TEXT, SMALL_TEXT)
def test_moving_characters_between_tenant_document_and_text_changes_the_id(a, b, c):
    assert row(c, a, doc_id=b + "x")["id"] != row("x" + c, a, doc_id=b)["id"]
    assert row(c, a + "x", doc_id=b)["id"] != row(c, a, doc_id="x" + b)["id"]


def test_the_same_content_gets_the_same_ids_in_any_order_and_in_parts():
    together = [r["id"] for r in rows(["one", "two", "three"])]

    assert [r["id"] for r in rows(["three", "one", "two"])] == [together[2], together[0], together[1]]
    assert [rows([text])[0]["id"] for text in ("one", "two", "three")] == together


def test_equal_texts_of_one_document_are_told_apart_and_still_repeatable():
    first = [r["id"] for r in rows(["same", "same", "other"], [{"source": "s", "page": p} for p in (1, 2, 3)])]

    assert len(set(first)) == 3
    assert [r["id"] for r in rows(["same", "same", "other"], [{"source": "s", "page": p} for p in (1, 2, 3)])] == first


def test_free_keys_are_kept_as_plain_json_and_known_ones_in_their_fields():
    made = row(title="T", page=3, version="1.25.3", team="ops", tags=("a", "b"), nested={"deep": [1, None]}, empty=None)

    assert (made["title"], made["page"], made["version"]) == ("T", 3, "1.25.3")
    assert made["metadata"] == {"team": "ops", "tags": ["a", "b"], "nested": {"deep": [1, None]}, "empty": None}


def test_a_mapping_under_metadata_is_merged_and_keys_beside_it_win():
    assert row(metadata={"team": "old", "unit": "kg"}, team="new")["metadata"] == {"team": "new", "unit": "kg"}


def test_inputs_are_not_changed():
    metadata = {"metadata": {"x": 1}, "team": "ops", "agent_id": "b"}

    rows(["text"], [metadata])

    assert metadata == {"metadata": {"x": 1}, "team": "ops", "agent_id": "b"}


def test_reserved_metadata_keys_are_refused_by_name_c069():
    hostile = {"text": "other body", "pk": "z", "dense": "x", "sparse": 1, "agent_id": "victim"}

    with pytest.raises(ConfigError, match=r"documents\[1\].*`dense`, `pk`, `sparse`, `text`.*rename or remove") as caught:
        rows(["fine", "text"], [{}, hostile])
    assert "other body" not in str(caught.value)
    assert "victim" not in str(caught.value)


@pytest.mark.parametrize("key", sorted(RESERVED))
def test_every_reserved_key_is_refused_c069(key):
    with pytest.raises(ConfigError, match=f"`{key}`"):
        rows(["text"], [{key: None}])


@pytest.mark.parametrize("key", ["agent_id", "id", "text", "confidence", "metadata"])
def test_names_of_fields_inside_metadata_are_refused_c069(key):
    with pytest.raises(ConfigError, match=f"`{key}`"):
        row(metadata={key: "x"})


def test_the_keyword_tenant_wins_over_metadata_c123():
    moved = rows(["text"], [{"agent_id": "b", "tenant": "b"}], agent_id="a")[0]

    assert moved["agent_id"] == "a"
    assert moved["id"] == row("text", "a")["id"]
    assert moved["metadata"] == {"tenant": "b"}


@pytest.mark.parametrize("agent_id", ["", "  ", [], 0, False, b"a", "x" * 257, "字" * 86, "\ud800"])
def test_an_unusable_tenant_is_refused_as_keyword_and_in_metadata_l04(agent_id):
    with pytest.raises(TenantError):
        rows(["text"], agent_id=agent_id)
    with pytest.raises(TenantError, match=r"documents\[0\]"):
        rows(["text"], [{"agent_id": agent_id}], agent_id=None)


@pytest.mark.parametrize("metadata", [None, {}, {"agent_id": None}, {"tenant": "a"}])
def test_a_missing_tenant_is_refused_l04(metadata):
    with pytest.raises(TenantError, match=r"documents\[1\].*agent_id"):
        rows(["fine", "text"], [{"agent_id": "a"}, metadata], agent_id=None)


def test_text_is_measured_in_bytes_and_the_error_names_the_document_c067():
    fits = "字" * (MAX_VARCHAR_BYTES // 3)

    assert row(fits)["text"] == fits
    with pytest.raises(ConfigError, match=r"documents\[2\].*90000 bytes.*65535") as caught:
        rows(["a", "b", "字" * 30_000])
    assert "字" not in str(caught.value)


def test_every_text_field_is_measured_in_bytes_c067():
    for name, limit in OPTIONAL_TEXT.items():
        fits = "字" * (limit // 3)
        assert row(**{name: fits})[name] == fits
        with pytest.raises(ConfigError, match=f"`{name}` has {limit + 1} bytes"):
            row(**{name: "x" * (limit + 1)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("confidence", 1.01),
        ("confidence", -0.1),
        ("confidence", float("nan")),
        ("confidence", True),
        ("confidence", "0.9"),
        ("created_at", "2024-01-01"),
        ("created_at", 1.5),
        ("created_at", 2**63),
        ("page", "iv"),
        ("page", -1),
        ("page", True),
        ("chunk_index", 1.0),
        ("expires_at", [1]),
        ("title", 3),
        ("version", 2.1),
        ("url", b"http://x"),
        ("title", "\udc80"),
        ("metadata", "text"),
        ("metadata", [1]),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_by_field_and_place(name, value):
    with pytest.raises(ConfigError, match=rf"documents\[1\].*`{name}`"):
        rows(["fine", "text"], [{}, {name: value}])


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), float("inf"), 2**70, b"x", "\ud800", {("a",): 1}])
def test_free_values_that_are_no_json_are_refused(value):
    with pytest.raises(ConfigError, match=r"documents\[0\].*'key'.*JSON"):
        row(key=value)


def test_endlessly_nested_metadata_is_refused():
    value: list = []
    value.append(value)

    with pytest.raises(ConfigError, match="JSON"):
        row(key=value)


def test_metadata_beyond_the_json_limit_is_refused():
    with pytest.raises(ConfigError, match="bytes as JSON"):
        row(key="字" * 30_000)


@pytest.mark.parametrize("text", ["", " \n\t", None, 3, b"text", "\ud800"])
def test_text_that_can_not_be_found_is_refused(text):
    with pytest.raises(ConfigError, match=r"documents\[0\]"):
        rows([text])


def test_lists_of_different_lengths_and_a_bare_string_are_refused():
    with pytest.raises(ConfigError, match=r"`metadatas`.*1 for 2"):
        rows(["a", "b"], [{}])
    with pytest.raises(ConfigError, match=r"`ids`.*3 for 2"):
        rows(["a", "b"], None, ["1", "2", "3"])
    with pytest.raises(ConfigError, match="single str"):
        rows("ab")


def test_own_ids_are_kept_and_missing_ones_computed():
    made = rows(["a", "b"], None, ["mine", None])

    assert made[0]["id"] == "mine"
    assert made[1]["id"] == row("b")["id"]


@pytest.mark.parametrize("own_id", ["", " ", 3, "x" * 513, "\ud800", "\U00020000"])
def test_an_own_id_that_can_not_be_looked_up_is_refused(own_id):
    with pytest.raises(ConfigError, match=r"documents\[0\]: the id"):
        rows(["a"], None, [own_id])


def test_one_id_twice_in_a_call_is_refused():
    with pytest.raises(ConfigError, match=r"documents\[1\] and documents\[0\]"):
        rows(["a", "b"], None, ["1", "1"])
    with pytest.raises(TenantError, match=r"documents\[1\] and documents\[0\]"):
        rows(["a", "b"], [{"agent_id": "a"}, {"agent_id": "b"}], ["1", "1"], agent_id=None)
    with pytest.raises(ConfigError):
        rows(["a", "a"], [{"chunk_index": 0}, {"chunk_index": 1}], [row("a", chunk_index=1)["id"], None])


def test_vectors_must_fit_the_collection_c072():
    made = rows(["a", "b"])

    assert [r["dense_embedding"] for r in with_vectors(made, [[1, 0], [0, 1]], 2)] == [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(ConfigError, match=r"8 dimensions.*16"):
        with_vectors(made, [[0.0] * 16] * 2, 8)
    with pytest.raises(ConfigError, match="1 for 2"):
        with_vectors(made, [[0.0] * 8], 8)
    with pytest.raises(ConfigError, match="finite"):
        with_vectors(made, [[1.0, float("nan")]] * 2, 2)


@given(st.integers(0, 30), st.integers(1, 10))
def test_batches_hold_all_rows_in_order(count, size):
    made = [{"n": n} for n in range(count)]

    parts = list(batched(made, size))

    assert [r for part in parts for r in part] == made
    assert all(1 <= len(part) <= size for part in parts)


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(ConfigError, match="batch_size"):
        batched([], 0)


@given(
    st.dictionaries(FREE_TEXT, st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FREE_TEXT, st.lists), max_size=4)
)
def test_any_json_metadata_under_free_names_survives(metadata):
    known = RESERVED | {"agent_id", "confidence", "created_at", "metadata", *OPTIONAL_TEXT, *OPTIONAL_INTEGERS}
    metadata = {key: value for key, value in metadata.items() if key not in known}

    assert rows(["text"], [metadata])[0]["metadata"] == metadata


@pytest.mark.parametrize("given", [None, 5, "text", b"text", {"a": 1}])
def test_texts_metadatas_and_ids_must_be_lists_of_some_kind(given):
    with pytest.raises(ConfigError, match="`texts` must be a list"):
        rows(given)
    if given is not None:
        with pytest.raises(ConfigError, match="`metadatas` must be a list"):
            rows(["t"], given)
        with pytest.raises(ConfigError, match="`ids` must be a list"):
            rows(["t"], ids=given)


def test_any_iterable_serves():
    made = rows(iter(["s", "t"]), ({"page": n} for n in range(2)), (str(n) for n in range(2)))

    assert [(one["text"], one["page"], one["id"]) for one in made] == [("s", 0, "0"), ("t", 1, "1")]


@pytest.mark.parametrize("number", [1e300, 1e38, 2e18 * 10, float("nan"), float("inf")])
def test_vectors_that_overflow_32_bits_are_refused(number):
    with pytest.raises(ConfigError, match="not finite, or too large"):
        with_vectors(rows(["t"]), [[0.0, number]], 2)


def test_vectors_of_numpy_and_generators_of_vectors_serve():
    (made,) = with_vectors(rows(["t"]), (vector for vector in np.array([[0.5, 1]], dtype=np.float32)), 2)

    assert made["dense_embedding"] == [0.5, 1.0]


@pytest.mark.parametrize(
    "metadata", [{"page": -987654}, {"confidence": 987654}, {"confidence": 10**400}, {"big": 2**63 + 987654}, {"title": ["987654"]}]
)
def test_no_message_quotes_a_metadata_value(metadata):
    with pytest.raises(ConfigError) as caught:
        row(**metadata)

    assert "987654" not in str(caught.value)
