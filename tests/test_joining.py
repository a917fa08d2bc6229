"""Chunks of one document become one passage, and a passage takes its neighbours along."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.joining import MAX_CHARS, join, widened
from crag_middleware.types import Hit, Passage

TEXT = "".join(f"Sentence number {i} of the manual. " for i in range(200))


def chunk(start, end, id_="", *, text=None, **fields):
    metadata = {"doc_id": "manual", "start": start, "end": end} | fields.pop("metadata", {})
    return Passage(id=id_ or f"{start}", text=TEXT[start:end] if text is None else text, metadata=metadata, **fields)


def spans(passages):
    return [(p.metadata["start"], p.metadata["end"]) for p in passages]


def test_overlapping_chunks_become_the_stretch_they_cover():
    one = chunk(100, 300, "a", hits=(Hit("r", 0, 2, "a"),), confidence=0.9, evidence_score=0.9, vector=(1.0, 0.0))
    two = chunk(250, 450, "b", hits=(Hit("r", 0, 1, "b"),), confidence=0.5, evidence_score=0.4, injection_score=0.7, vector=(0.0, 1.0))

    (joined,) = join([two, one])

    assert (joined.id, joined.text) == ("b", TEXT[100:450])
    assert joined.metadata == {"doc_id": "manual", "start": 100, "end": 450, "joined": ["a", "b"]}
    assert joined.hits == (Hit("r", 0, 1, "b"), Hit("r", 0, 2, "a"))
    assert (joined.confidence, joined.evidence_score, joined.injection_score) == (0.5, 0.4, 0.7)
    assert joined.vector == pytest.approx((0.5**0.5, 0.5**0.5))


def test_a_chunk_within_another_goes_into_it():
    assert spans(join([chunk(150, 200, "in"), chunk(100, 300, "out")])) == [(100, 300)]


@pytest.mark.parametrize(
    "other",
    [
        chunk(301, 400),
        chunk(250, 400, metadata={"doc_id": "other"}),
        chunk(250, 400, metadata={"version": "2"}),
        chunk(250, 400, metadata={"page": 2}),
        chunk(250, 400, metadata={"page": [1]}),
        chunk(250, 400, origin="web"),
        chunk(250, 400, text="x" * 150),
        chunk(250, 400, text=TEXT[250:399]),
        chunk(250, 400, metadata={"start": "250"}),
        chunk(250, 400, metadata={"start": True}),
        chunk(250, 400, metadata={"start": -1}),
        chunk(250, 400, metadata={"end": 10}),
        chunk(250, 400, metadata={"end": None}),
        chunk(250, 400, metadata={"end": 400.0}),
        chunk(300, 300, text=""),
        chunk(300, 400, created_at=2),
    ],
)
def test_what_is_no_part_of_the_same_stretch_stays_apart(other):
    one = chunk(100, 300, created_at=1, metadata={"page": 1, "version": ""})

    assert join([one, other]) == (one, other)


def test_chunks_without_a_document_stay_apart():
    nameless = [replace(chunk(a, b), metadata={"start": a, "end": b}) for a, b in ((0, 100), (50, 150))]

    assert join(nameless) == tuple(nameless)


def test_chunks_that_only_touch_need_a_name_that_tells_documents_apart():
    touching = [chunk(0, 100), chunk(100, 200)]
    by_host = [replace(p, source="example.org", metadata={"start": p.metadata["start"], "end": p.metadata["end"]}) for p in touching]
    by_title = [replace(p, title="Manual") for p in by_host]

    assert spans(join(touching)) == [(0, 200)]
    assert join(by_host) == tuple(by_host)
    assert spans(join(by_title)) == [(0, 200)]


def test_a_joined_passage_is_bounded_and_grows_from_the_best_chunk():
    parts = [chunk(a, a + 600) for a in range(0, 6000, 500)]
    best = parts.pop(6)

    joined = join([best, *parts])

    assert joined[0].id == best.id
    assert joined[0].metadata["start"] <= 3000 < 3600 <= joined[0].metadata["end"]
    assert all(len(p.text) <= MAX_CHARS for p in joined)


def test_one_chunk_longer_than_the_bound_still_swallows_those_within():
    assert spans(join([chunk(100, 200), chunk(0, 3 * MAX_CHARS)])) == [(0, 3 * MAX_CHARS)]


cut = st.tuples(st.integers(0, 3000), st.integers(1, 900)).map(lambda c: chunk(c[0], c[0] + c[1], f"{c[0]}-{c[1]}"))


@settings(deadline=None)
@given(st.lists(cut, max_size=12, unique_by=lambda p: p.id))
def test_joining_loses_no_text_and_stays_true_to_the_document(chunks):
    joined = join(chunks)

    assert all(p.text == TEXT[p.metadata["start"] : p.metadata["end"]] for p in joined)
    assert all(any(c.text in p.text and c.id in p.metadata.get("joined", [p.id]) for p in joined) for c in chunks)
    assert sum(len(p.metadata.get("joined", [1])) for p in joined) == len(chunks)
    assert len(joined) <= len(chunks)


MIDDLE = chunk(1000, 1100)
AROUND = [chunk(800, 910), chunk(900, 1010), chunk(1090, 1200), chunk(1190, 1300)]


def test_neighbours_stand_around_the_passage_and_overlaps_stand_there_once():
    wide = widened(MIDDLE, AROUND, limit_chars=10_000)

    assert wide.text == TEXT[800:1300]
    assert (wide.id, wide.metadata["start"], wide.metadata["end"]) == (MIDDLE.id, 800, 1300)
    assert wide.metadata["joined"] == ["800", "900", "1000", "1090", "1190"]


@pytest.mark.parametrize(
    ("limit", "stretch"), [(0, (1000, 1100)), (199, (1000, 1100)), (200, (1000, 1200)), (300, (900, 1200)), (400, (900, 1300))]
)
def test_the_nearest_neighbours_come_first_as_far_as_they_fit(limit, stretch):
    assert widened(MIDDLE, AROUND, limit_chars=limit).text == TEXT[slice(*stretch)]


def test_nothing_comes_after_a_neighbour_that_is_missing_or_another_text():
    lied = replace(AROUND[2], text="x" * 110)

    assert widened(MIDDLE, [AROUND[0], AROUND[3]], limit_chars=10_000) is MIDDLE
    assert widened(MIDDLE, [lied, AROUND[3]], limit_chars=10_000) is MIDDLE
    assert widened(MIDDLE, [], limit_chars=10_000) is MIDDLE
    assert widened(MIDDLE, [replace(AROUND[2], metadata=AROUND[2].metadata | {"version": "2"})], limit_chars=10_000) is MIDDLE


def test_white_space_lost_between_chunks_is_made_up_for():
    wide = widened(chunk(0, 34), [chunk(35, 69), chunk(71, 100)], limit_chars=10_000)

    assert wide.text == f"{TEXT[:34]} {TEXT[35:69]}\n\n{TEXT[71:100]}"
    assert wide.metadata["end"] == 100


def test_without_offsets_the_place_in_the_document_decides():
    def numbered(i, **metadata):
        return Passage(id=f"c{i}", text=f"chunk {i}", metadata={"doc_id": "d", "chunk_index": i, **metadata})

    wide = widened(numbered(5, start=7, end=3), [numbered(3), numbered(4), numbered(6), numbered(8)], limit_chars=1_000)

    assert wide.text == "chunk 3\n\nchunk 4\n\nchunk 5\n\nchunk 6"
    assert wide.metadata == {"doc_id": "d", "chunk_index": 5, "joined": ["c3", "c4", "c5", "c6"]}
    assert widened(numbered(5), [numbered(6, doc_id="e")], limit_chars=1_000) == numbered(5)


@settings(deadline=None)
@given(st.lists(cut, max_size=8), cut, st.integers(0, 3_000), st.randoms())
def test_a_widened_passage_holds_its_own_text_and_its_document_and_keeps_the_limit(neighbours, passage, limit, chance):
    shuffled = chance.sample(neighbours, len(neighbours))

    wide = widened(passage, neighbours, limit_chars=limit)

    assert passage.text in wide.text
    assert len(wide.text) <= max(limit, len(passage.text))
    assert wide.id == passage.id
    assert widened(passage, shuffled, limit_chars=limit).text == wide.text
