"""Who may see which rows: the scope of a turn, the filter that keeps to it, the check of every row."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Scope:
    """The tenant of one turn. Its text form never shows the id."""

    agent_id: str = field(repr=False)
