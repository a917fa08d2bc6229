"""The gate lets whole sentences through, as soon as they are whole, and loses nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages.gate import Gate, Sentence

ANSWER = """Refunds take 30 days [1]. See Dr. Smith at 3.14 p.m. or www.example.com for v2.1.0 details! Really? Yes.

退款需要30天[1]。运费为10元！“可以。”他说：好。

- The first item ends here.
- The second: see `config.yaml. It` is code.

```python
x = "A sentence. Another one."
```
| a | b |
| --- | --- |
| 1. x | 2. y |
The end"""


def gated(pieces: list[str]) -> list[Sentence]:
    gate = Gate()
    return [sentence for piece in pieces for sentence in gate.feed(piece)] + gate.end()


def test_sentences_come_as_soon_as_they_are_whole() -> None:
    gate = Gate()
    assert gate.feed("Refunds take thirty days") == []
    assert gate.feed(".") == [Sentence("Refunds take thirty days.")]
    assert gate.feed(" It is v2.") == []
    assert gate.feed("1 now") == []
    assert gate.feed("! And") == [Sentence(" It is v2.1 now! ")]
    assert gate.end() == [Sentence("And")]


def test_a_chinese_stop_ends_a_sentence_at_once() -> None:
    gate = Gate()
    assert gate.feed("退款需要30天[1]。") == [Sentence("退款需要30天[1]。")]


def test_abbreviations_numbers_and_addresses_end_none() -> None:
    assert [s.text for s in gated(["Ask Dr. Smith at www.example.com about v2.1.0 or e.g. 3.14 units of it. Then go."])] == [
        "Ask Dr. Smith at www.example.com about v2.1.0 or e.g. 3.14 units of it. ",
        "Then go.",
    ]


def test_code_is_told_apart() -> None:
    code = [s.text for s in gated([ANSWER]) if s.is_code]
    assert code == ["\n```python\n", 'x = "A sentence. Another one."\n', "```\n"]


@pytest.mark.parametrize("seed", range(100))
def test_how_the_answer_is_cut_into_pieces_changes_nothing(seed: int) -> None:
    cuts, pieces, place = random.Random(seed), [], 0
    while place < len(ANSWER):
        size = cuts.randint(1, 15)
        pieces.append(ANSWER[place : place + size])
        place += size
    assert gated(pieces) == gated([ANSWER])


@given(st.text(alphabet="aB. \n`!。”)1", max_size=80))
def test_nothing_is_lost(text: str) -> None:
    assert "".join(s.text for s in gated([text])) == text
    assert gated(list(text)) == gated([text])


def test_a_long_answer_takes_time_in_proportion() -> None:
    for unit in ("word. ", "字。", "a.", ". ", "`. ", "1. "):
        text = unit * (20_000 // len(unit))
        assert "".join(s.text for s in gated([text])) == text
