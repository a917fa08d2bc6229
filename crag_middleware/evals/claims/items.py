"""Labelled claims, each with what it may rest on; read from two schemas, recognised by their keys. Keys that are not named here are ignored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from crag_middleware.evals.datasets import collect, digest, parsed
from crag_middleware.evals.schemas import Name, Text, Words
from crag_middleware.stages.words import language

Label = Literal["supported", "partially_supported", "contradicted", "not_mentioned", "not_supported", "generic"]
"""What people said. Only `supported` counts as supported: `partially_supported` is not in full, and `generic` says nothing that could be."""

KNOWN = "`claim` with `context` or `evidence` and `label`, and `right` and `hallucinated` with `context` or `evidence`"
"""What `recognise` looks for, for people."""


class _Line(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, hide_input_in_errors=True)

    id: Name = ""
    lang: Name = ""
    source: Name = ""
    question: Text = ""
    context: Text | tuple[Text, ...] | None = None
    evidence: Text | tuple[Text, ...] | None = None

    @model_validator(mode="after")
    def _rests_on_one(self) -> "_Line":
        if (self.context is None) == (self.evidence is None):
            msg = "either `context` or `evidence`, a text or a list of texts, is needed"
            raise ValueError(msg)
        return self

    @property
    def grounds(self) -> tuple[str, ...]:
        """What the claim may rest on."""
        held = self.evidence if self.context is None else self.context
        return (held,) if isinstance(held, str) else held or ()


class LabelledClaim(_Line):
    """A claim.

    Attributes:
        id: Unique in a run; made of the file's name and the line's number if not given.
        lang: The language, under any name; told by the claim's script if not given.
        source: The data set; the file's name if not given.
        question: What the claim answers, if that is known.
        context: The text that it may rest on, or several, which may be none.
        evidence: Another name for the same.
        claim: What is claimed.
        label: What the evidence says of it, as people judged.
    """

    claim: Words
    label: Label

    @property
    def labelled(self) -> tuple[tuple[str, str, Label], ...]:
        """Of each claim what follows the line's id, the claim, and its label."""
        return (("", self.claim, self.label),)


class ClaimPair(_Line):
    """Two answers to one question: one that the evidence supports, and one that was made up. Both are claims of their own.

    Attributes:
        right: The supported one.
        hallucinated: The other.
    """

    right: Words
    hallucinated: Words

    @property
    def labelled(self) -> tuple[tuple[str, str, Label], ...]:
        """As of a `LabelledClaim`."""
        return ("-right", self.right, "supported"), ("-hallucinated", self.hallucinated, "not_supported")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimItem:
    """One claim.

    Attributes:
        id: Unique among the claims of a run.
        lang: The data set's name for the language, such as `en` or `zh`.
        source: The data set's name.
        question: What it answers; empty if unknown.
        claim: What is claimed.
        grounds: What it may rest on.
        label: What people said.
    """

    id: str
    lang: str
    source: str
    question: str
    claim: str
    grounds: tuple[str, ...]
    label: Label

    @property
    def evidence(self) -> str:
        """Sixteen hex digits that claims on the same evidence have in common."""
        return digest(self.grounds)

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with the claim, the question, the evidence or the label."""
        return digest((self.question, self.claim, self.grounds, self.label))


def load_claims(paths: Sequence[str | Path]) -> tuple[ClaimItem, ...]:
    """The claims of JSONL files, in order.

    Raises:
        ConfigError: A file can't be read, a line fits no schema, an id occurs twice, or there is no claim at all.
    """
    return collect(paths, _items)


def recognise(value: Any) -> type[LabelledClaim] | type[ClaimPair] | None:
    """The schema that a line's keys point to, whether or not the rest is in order; None for none."""
    match value:
        case {"right": _, "hallucinated": _}:
            return ClaimPair
        case {"claim": _, "context": _} | {"claim": _, "evidence": _}:
            return LabelledClaim
    return None


def _items(path: Path) -> Iterator[tuple[str, ClaimItem]]:
    """Each claim with the line it stands on."""
    read: Iterator[tuple[int, LabelledClaim | ClaimPair]] = parsed(path, recognise, KNOWN)
    for number, line in read:
        for suffix, claim, label in line.labelled:
            yield (
                f"{path}, line {number}",
                ClaimItem(
                    id=(line.id or f"{path.stem}-{number}") + suffix,
                    lang=line.lang or language(claim),
                    source=line.source or path.stem,
                    question=line.question,
                    claim=claim,
                    grounds=line.grounds,
                    label=label,
                ),
            )
