"""What the offline evaluator costs: 5 passages of 350 characters, English and Chinese, with each of the embeddings that come in a wheel and are installed.

    python benchmarks/grading.py [--repeat 20]

Prints the median milliseconds of one grading after the first, which measures the model's scale.
"""

import argparse
import statistics
import time

from texts import QUESTIONS, by_language

from crag_middleware import ConfigError, E5Embeddings, EmbeddingEvaluator, LocalEmbeddings, Passage
from crag_middleware.stages.sentences import split


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    for embeddings in (LocalEmbeddings, E5Embeddings):
        try:
            evaluator = EmbeddingEvaluator(embeddings())
        except ConfigError as error:
            print(f"{embeddings.__name__}: {error}")
            continue
        for language, texts in by_language().items():
            passages = [Passage(str(n), text[:350]) for n, text in enumerate(texts[:5])]
            evaluator.grade(QUESTIONS[language], passages)
            times = []
            for _ in range(repeat):
                begun = time.perf_counter()
                evaluator.grade(QUESTIONS[language], passages)
                times.append((time.perf_counter() - begun) * 1000)
            sentences = sum(len(split(p.text)) for p in passages)
            print(f"{embeddings.model}, {language}: grading 5 passages with {sentences} sentences {statistics.median(times):.0f} ms")


if __name__ == "__main__":
    main()
