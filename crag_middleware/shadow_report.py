"""What receipts of shadow mode say together: what the middleware would have decided, what it would have cost, and which answers it would have flagged."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crag_middleware.errors import ConfigError

ACTIONS = ("flagged", "repaired", "dropped", "refused")
"""What a check does with an answer that it objects to; a citation that is mended is no objection."""

_NEEDED = frozenset({"schema", "status", "skipped", "verdict", "tokens", "spent", "answer", "degraded", "rungs", "message_id"})


@dataclass(slots=True)
class Summary:
    """The turns of one tenant, or of all.

    Attributes:
        turns: How many there were.
        verdicts: Turns by verdict; `none` where the knowledge could not be searched.
        skipped: Turns in which nothing was looked up, by why.
        block_tokens: Size of what would have been injected, for each turn that looked something up.
        ms: Milliseconds that the middleware took of each of those, its pass and its check; live, they come on top of the model's.
        model_calls: Calls of chat models inside the middleware.
        model_tokens: Tokens of those.
        web_requests: Requests that left for the web.
        answers: Answers by what their check says: checked, nothing to check, and so on.
        actions: Answers that would have been objected to, by what would have been done with them.
        rungs: Turns by what they did without, since time or budget ran short.
        degraded: Steps that failed, as `step:reason`.
    """

    turns: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    block_tokens: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    model_calls: int = 0
    model_tokens: int = 0
    web_requests: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    rungs: Counter[str] = field(default_factory=Counter)
    degraded: Counter[str] = field(default_factory=Counter)

    def add(self, receipt: Mapping[str, Any]) -> None:
        """Counts a turn."""
        self.turns += 1
        self.degraded.update(f"{failed['step']}:{failed['reason']}" for failed in receipt["degraded"])
        if receipt["status"] == "skipped":
            self.skipped[receipt["skipped"] or "unknown"] += 1
            return
        spent = receipt["spent"]
        self.verdicts[receipt["verdict"] or "none"] += 1
        self.block_tokens.append(receipt["tokens"])
        self.ms.append(spent["ms"])
        self.model_calls += spent["model_calls"]
        self.model_tokens += spent["tokens"]
        self.web_requests += spent["web_requests"]
        self.rungs.update(receipt["rungs"])
        if answer := receipt["answer"]:
            self.answers[answer["checked"]] += 1
            self.actions.update([answer["action"]] if answer["action"] in ACTIONS else [])

    def told(self) -> dict[str, Any]:
        """The same as plain JSON."""
        return {
            "turns": self.turns,
            "verdicts": dict(self.verdicts),
            "skipped": dict(self.skipped),
            "block_tokens": _quantiles(self.block_tokens),
            "ms": _quantiles(self.ms),
            "model_calls": self.model_calls,
            "model_tokens": self.model_tokens,
            "web_requests": self.web_requests,
            "answers": dict(self.answers),
            "actions": dict(self.actions),
            "rungs": dict(self.rungs),
            "degraded": dict(self.degraded),
        }

    def __str__(self) -> str:
        """A few lines for a person."""
        shown = [
            ("turns", str(self.turns)),
            ("verdicts", _mix(self.verdicts)),
            ("skipped", _mix(self.skipped)),
            ("block", f"{_spread(self.block_tokens)} tokens"),
            ("latency", f"{_spread(self.ms)} ms"),
            ("spent", f"{self.model_calls} model calls, {self.model_tokens} tokens, {self.web_requests} web requests"),
            ("answers", _mix(self.answers)),
            ("objections", _mix(self.actions)),
            ("ran short", _mix(self.rungs)),
            ("without", _mix(self.degraded)),
        ]
        return "\n".join(f"{name:<12}{value}" for name, value in shown)


@dataclass(slots=True)
class ShadowReport:
    """What receipts of shadow mode say.

    Attributes:
        all: Of all tenants together.
        tenants: Of each tenant, by the digest of its id; under the empty text those without one.
        flagged: The answers that would have been objected to: message id, tenant and what would have been done.
        live: Receipts of turns that were not in shadow mode, which are left out.
    """

    all: Summary = field(default_factory=Summary)
    tenants: dict[str, Summary] = field(default_factory=dict)
    flagged: list[dict[str, str]] = field(default_factory=list)
    live: int = 0

    def told(self) -> dict[str, Any]:
        """The same as plain JSON."""
        tenants = {tenant: summary.told() for tenant, summary in self.tenants.items()}
        return {"all": self.all.told(), "tenants": tenants, "flagged": self.flagged, "live_left_out": self.live}


def shadow_report(receipts: Iterable[Mapping[str, Any]]) -> ShadowReport:
    """Adds receipts up, in any order."""
    report = ShadowReport()
    for receipt in receipts:
        if not receipt.get("shadow"):
            report.live += 1
            continue
        tenant = receipt["tenant"]
        report.all.add(receipt)
        report.tenants.setdefault(tenant, Summary()).add(receipt)
        action = (receipt["answer"] or {}).get("action")
        if action in ACTIONS:
            report.flagged.append({"message_id": receipt["message_id"], "tenant": tenant, "action": action})
    return report


def read_receipts(lines: Iterable[str], *, where: str) -> Iterator[dict[str, Any]]:
    """The receipts of a file with one in each line; blank lines are passed over.

    Args:
        lines: The file's.
        where: What the file is called in errors.

    Raises:
        ConfigError: A line is no receipt. What it holds is not told.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            receipt = json.loads(line)
        except (ValueError, RecursionError):
            receipt = None
        if not (isinstance(receipt, dict) and receipt.keys() >= _NEEDED and _is_sound(receipt)):
            msg = f"{where}, line {number}, holds no receipt; each line must be the JSON of one, such as json.dumps(result['crag'])"
            raise ConfigError(msg)
        yield receipt


def _is_sound(receipt: Mapping[str, Any]) -> bool:
    """Whether the keys that are added up have what they should."""
    spent, answer = receipt["spent"], receipt["answer"]
    numbers = (
        [receipt["tokens"], *(spent.get(key) for key in ("ms", "model_calls", "tokens", "web_requests"))]
        if isinstance(spent, dict)
        else [None]
    )
    lists = [receipt["rungs"], receipt["degraded"]]
    return (
        all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
        and all(isinstance(value, list) for value in lists)
        and all(isinstance(rung, str) for rung in receipt["rungs"])
        and all(isinstance(failed, dict) and failed.keys() >= {"step", "reason"} for failed in receipt["degraded"])
        and all(value is None or isinstance(value, str) for value in (receipt["verdict"], receipt["skipped"]))
        and isinstance(receipt.get("tenant", ""), str)
        and (
            answer is None
            or (isinstance(answer, dict) and isinstance(answer.get("checked"), str) and isinstance(answer.get("action"), str))
        )
        and (not receipt.get("shadow") or "tenant" in receipt)
    )


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed (the nearest-rank method); None of none.

    Args:
        values: In any order.
        share: In (0, 1].
    """
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def _quantiles(values: Sequence[float]) -> dict[str, float | None]:
    return {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99)}


def _spread(values: Sequence[float]) -> str:
    return ", ".join(f"{name} -" if q is None else f"{name} {q:.0f}" for name, q in _quantiles(values).items())


def _mix(counts: Counter[str]) -> str:
    """Counts with their shares, the largest first."""
    total = sum(counts.values())
    return ", ".join(f"{name} {count} ({count / total:.0%})" for name, count in counts.most_common()) or "none"
