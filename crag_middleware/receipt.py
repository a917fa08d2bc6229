"""The record of a turn as plain JSON, and how it is told to a person. docs/receipt.md describes every key."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from crag_middleware.findings import Evidence
from crag_middleware.types import Graded, Passage, Question, Side, Source

SCHEMA_VERSION = 1
"""Rises when a key of the receipt changes its meaning or goes away."""


def record(
    evidence: Evidence, *, name: str, detail: Literal["injected", "full"], alarms: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The receipt of one turn: plain JSON values only.

    Args:
        evidence: What the corrective pass found out.
        name: The middleware instance's name.
        detail: With `full`, every passage's text and the evaluator's reasons stand in it; else no text but the injected strips.
        alarms: What is wrong with the tenant's latest verdicts, with the numbers.
    """
    question, numbers = evidence.question, {(s.graded.passage.origin, s.graded.passage.id): s for s in evidence.sources}
    return {
        "schema": SCHEMA_VERSION,
        "name": name,
        "shadow": False,
        "tenant": "",
        "message_id": question.message_id,
        "status": evidence.status,
        "skipped": question.skip,
        "verdict": evidence.verdict,
        "verdict_rule": evidence.rule,
        "sufficiency": _number(evidence.sufficiency),
        "calibration": evidence.calibration,
        "query": evidence.query,
        "queries": list(evidence.queries),
        "routes": [asdict(routed) for routed in evidence.routed],
        "web_queries": list(evidence.web_queries),
        "web_attempts": [asdict(a) for a in evidence.web_attempts],
        "web_dropped": [asdict(d) for d in evidence.web_dropped],
        "passages": [_passage(g, numbers.get((g.passage.origin, g.passage.id)), detail) for g in evidence.graded],
        "sources": [_source(s) for s in evidence.sources],
        "conflicts": [{**asdict(conflict), "sides": [_side(side) for side in conflict.sides]} for conflict in evidence.conflicts],
        "answer": None,
        "written_back": [],
        "rules": evidence.rules,
        "cut_strips": evidence.cut_strips,
        "degraded": [{"step": t.step, "reason": t.reason} for t in evidence.troubles],
        "notes": list(evidence.notes),
        "rungs": list(evidence.rungs),
        "alarms": [dict(alarm) for alarm in alarms],
        "calls": dict(evidence.calls),
        "spent": asdict(evidence.spent),
        "tokens": evidence.tokens,
        "timings_ms": dict(evidence.timings_ms),
    }


Skipped = Literal["not_reached", "disabled", "failed"]
"""Why nothing was looked up that had nothing to do with the question."""


def unasked(why: Skipped, question: Question, *, name: str, reasons: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The receipt of a turn in which nothing was looked up.

    Args:
        why: The reason.
        question: What was asked.
        name: The middleware instance's name.
        reasons: What failed, by step, as short codes.
    """
    nothing = record(Evidence(question=question, status="skipped"), name=name, detail="injected")
    return {**nothing, "skipped": why, "degraded": [{"step": step, "reason": reason} for step, reason in (reasons or {}).items()]}


def shadowed(receipt: Mapping[str, Any], *, tenant: str) -> dict[str, Any]:
    """The receipt, marked as that of a turn which nothing of it reached.

    Args:
        receipt: What would have been done.
        tenant: A digest of the tenant's id, so that receipts can be told apart by it; empty if there was no tenant.
    """
    return {**receipt, "shadow": True, "tenant": tenant}


def _passage(graded: Graded, source: Source | None, detail: str) -> dict[str, Any]:
    passage, grade = graded.passage, graded.grade
    entry: dict[str, Any] = {
        **_identity(passage),
        "rank": passage.rank,
        "score": _number(passage.score),
        "hits": [{"route": h.route, "query": h.query, "rank": h.rank, "id": h.id, "score": _number(h.score)} for h in passage.hits],
        "fused_score": _rounded(passage.fused_score, 6),
        "rerank_score": _number(passage.rerank_score),
        "confidence": _number(passage.confidence),
        "evidence_score": _number(passage.evidence_score),
        "injection_score": _number(passage.injection_score),
        "label": grade.label,
        "probability": _number(grade.probability),
        "raw": _number(grade.raw),
        "inconsistent": grade.inconsistent,
        "number": source.number if source else None,
    }
    if "legs" in passage.metadata:
        entry["legs"] = passage.metadata["legs"]
    if detail == "full":
        entry |= {"text": passage.text, "reason": str(grade.reason)}
    return entry


def _source(source: Source) -> dict[str, Any]:
    strips = [{"start": s.start, "end": s.end, "text": s.text, "why": s.why, "worth": _rounded(s.worth)} for s in source.strips]
    known = source.graded.passage.metadata
    return {
        "number": source.number,
        **_identity(source.graded.passage),
        "section": _plain(known.get("section")),
        "page": _plain(known.get("page")),
        "label": source.graded.grade.label,
        "strips": strips,
    }


def _side(side: Side) -> dict[str, Any]:
    return {"numbers": list(side.numbers), "says": side.says}


def _plain(value: Any) -> str | int | None:
    """What a store says of a section or page, if it is a text or a whole number."""
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _number(value: float | None) -> float | None:
    """The number as plain JSON has it: stores and models like to give numpy's."""
    return None if value is None or not math.isfinite(value) else float(value)


def _rounded(value: float | None, digits: int = 4) -> float | None:
    number = _number(value)
    return None if number is None else round(number, digits)


def _identity(passage: Passage) -> dict[str, Any]:
    return {"id": passage.id, "origin": passage.origin, "title": passage.title, "source": passage.source, "url": passage.url}


_SAID = {
    "no_evidence": "no evidence found; the model was told so",
    "retrieval_failed": "the knowledge could not be searched; the model was told so",
}
_SKIPPED = {"disabled": "switched off for this turn", "failed": "could not run"}
_PLACES = {"knowledge": "the knowledge", "web": "the web"}
_NOTES = {
    "no_rewriter": "no rewriter: the question was searched in the user's own words",
    "no_web_search": "no web search is configured",
    "web_off": "this tenant has no web search",
    "web_only_when_incorrect": "the web is searched after the verdict `incorrect` only",
    "web_not_needed": "the web was searched while the knowledge was graded, and not needed",
    "web_vetoed": "the web query was not approved",
    "no_web_query": "nothing was left of the question that could go to the web",
    "budget_spent": "no more model calls were left for this turn; optional ones were left out",
    "cut_to_budget": "not all that was kept fits into the token budget",
}
_RUNGS = {
    "no_claim_check": "the claims of the answer were not checked",
    "cheap_evaluator": "the fallback evaluator graded",
    "no_web": "the web was left out",
    "plain_passages": "passages were used without a grade",
    "untouched": "nothing was added to the model's messages",
}
_ALARMS = {
    "verdict_share": "`{verdict}` is the verdict of {share:.0%} of the last {turns} turns",
    "grade_spread": "the probabilities of the last {turns} turns spread by {spread:.3f}, those before by {spread_before:.3f}",
}


def explain(receipt: Mapping[str, Any]) -> str:
    """The receipt as a few lines of text for a person."""
    if receipt["status"] == "skipped":
        said = _SKIPPED.get(receipt["skipped"], "nothing to look up")
        return "\n".join((f"skipped    {said} ({receipt['skipped']})", *[f"{'without':<11}{_failed(d)}" for d in receipt["degraded"]]))
    rows = [
        *([("shadow", "nothing of this reached the model or the user")] if receipt.get("shadow") else []),
        ("verdict", f"{receipt['verdict'] or 'none'}: {_SAID.get(receipt['status']) or _grounds(receipt['sources'])}"),
        *([("together", _together(receipt))] if receipt.get("sufficiency") is not None else []),
        ("calibrated", receipt.get("calibration") or "no, the evaluator's numbers as they are"),
        ("searched", " -> ".join(f'"{q}"' for q in receipt["queries"])),
        *[("route", _route(name, receipt)) for name in _route_names(receipt)],
        *[("kept", _kept(s)) for s in receipt["sources"]],
        *[("conflict", _conflict(c)) for c in receipt.get("conflicts", ())],
        *[("dropped", _dropped(p)) for p in receipt["passages"] if p["number"] is None],
        *[("to the web", f'"{q}"') for q in receipt["web_queries"]],
        *[("web", _attempt(a)) for a in receipt.get("web_attempts", ())],
        *[("from the web", f"dropped {d['url'] or d['title']}: {d['reason']}") for d in receipt.get("web_dropped", ())],
        *[("without", _failed(d)) for d in receipt["degraded"]],
        *[("note", _note(n, receipt)) for n in dict.fromkeys(receipt["notes"])],
        *[("ran short", _RUNGS[rung]) for rung in receipt.get("rungs", ())],
        *[("alarm", _ALARMS[a["alarm"]].format(**a)) for a in receipt.get("alarms", ())],
        *([("answer", _answered(receipt["answer"]))] if receipt.get("answer") else []),
        ("injected", f"{receipt['tokens']} tokens"),
        *([("spent", _cost(receipt["spent"]))] if receipt.get("spent") else []),
        ("time", _times(receipt["timings_ms"])),
    ]
    if not receipt["web_queries"]:
        rows.insert(-2, ("to the web", "nothing"))
    return "\n".join(f"{name:<11}{value}" for name, value in rows)


def _failed(degraded: Mapping[str, Any]) -> str:
    return f"{degraded['step']} failed: {degraded['reason']}"


def _route_names(receipt: Mapping[str, Any]) -> list[str]:
    """The routes that were asked, if there are several."""
    names = list(dict.fromkeys(routed["route"] for routed in receipt.get("routes", ())))
    return names if len(names) > 1 else []


def _route(name: str, receipt: Mapping[str, Any]) -> str:
    """What a route brought, or why it did not."""
    answers = [routed for routed in receipt["routes"] if routed["route"] == name]
    found, failed = sum(a["found"] for a in answers), sorted({a["reason"] for a in answers if a["reason"]})
    return f"{name}: {found} passage{'' if found == 1 else 's'}" + (f", failed: {', '.join(failed)}" if failed else "")


def _attempt(attempt: Mapping[str, Any]) -> str:
    outcome = attempt["reason"] or f"{attempt['results']} results"
    return f"{attempt['provider']}: {outcome}, {attempt['requests']} requests, {attempt['ms']:.0f} ms"


def _together(receipt: Mapping[str, Any]) -> str:
    """P(the passages together answer), and whether the verdict comes of it."""
    decided = ", which decided" if receipt["verdict_rule"] == "set" else ""
    return f"the passages answer with probability {receipt['sufficiency']:.2f}{decided}"


def _grounds(sources: Sequence[Mapping[str, Any]]) -> str:
    """Where the evidence comes from."""
    origins = {source["origin"] for source in sources}
    return "evidence from " + " and ".join(place for origin, place in _PLACES.items() if origin in origins)


def _kept(source: Mapping[str, Any]) -> str:
    return f"[{source['number']}] {_named(source)}: {source['label']}, {_amount([s.get('why', 'chosen') for s in source['strips']])}"


_CLAIMS = {"supported": "supported", "contradicted": "contradicted", "not_mentioned": "not mentioned"}
_CHECKED = {
    "nothing_to_check": "no claims to check",
    "failed": "claims could not be checked",
    "skipped": "claims were not checked: time or budget ran short",
}
_DONE = {
    "mended": "citations of what does not exist were removed",
    "flagged": "shown all the same",
    "repaired": "the model wrote it anew",
    "dropped": "unsupported sentences were left out",
    "refused": "a refusal took its place",
}


def _answered(answer: Mapping[str, Any]) -> str:
    """What was found out about the answer, and done."""
    facts = [f"cites {', '.join(str(c['number']) for c in answer['citations']) or 'no source'}"]
    labels = [claim["label"] for claim in answer["claims"]]
    facts += [f"{n} claim{'' if n == 1 else 's'} {said}" for label, said in _CLAIMS.items() if (n := labels.count(label))]
    facts += [words[answer[key]] for key, words in (("checked", _CHECKED), ("action", _DONE)) if answer[key] in words]
    return "; ".join(facts)


def _conflict(conflict: Mapping[str, Any]) -> str:
    """Who says what, and whom to believe."""
    sides = " / ".join("".join(f"[{number}]" for number in side["numbers"]) + f" {side['says']}" for side in conflict["sides"])
    newer, trusted = conflict["newer"], conflict["trusted"]
    facts = [f"[{newer}] is newer"] if newer else []
    facts += [f"[{trusted}] is more trusted"] if trusted else []
    facts += [] if conflict["told"] else ["no room to tell the model"]
    return "; ".join((sides, *facts))


def _amount(reasons: Sequence[str]) -> str:
    """How many strips were chosen, and how many came along."""
    if "whole" in reasons:
        return f"{_sentences(len(reasons))}, kept whole"
    chosen = reasons.count("chosen")
    along = len(reasons) - chosen
    if not chosen or not along:
        return _sentences(len(reasons))
    return f"{_sentences(chosen)} and {along} that belong{'s' if along == 1 else ''} to {'it' if chosen == 1 else 'them'}"


def _sentences(count: int) -> str:
    return f"{count} sentence{'' if count == 1 else 's'}"


def _note(code: str, receipt: Mapping[str, Any]) -> str:
    cut = receipt.get("cut_strips")
    return _NOTES.get(code, code) + (f": {_sentences(cut)} left out" if code == "cut_to_budget" and cut else "")


def _dropped(passage: Mapping[str, Any]) -> str:
    probability = passage["probability"]
    return f"{_named(passage)}: {passage['label']}" + (f" ({probability:.2f})" if probability is not None else "")


def _named(entry: Mapping[str, Any]) -> str:
    return f"{entry['origin']} | {entry['title'] or entry['url'] or entry['source'] or entry['id'][:12]}"


def _cost(spent: Mapping[str, Any]) -> str:
    """What the middleware's own models and web searches cost."""
    return f"{spent['model_calls']} model calls, {spent['tokens']} tokens, {spent['web_requests']} web requests"


def _times(timings: Mapping[str, float]) -> str:
    stages: Sequence[tuple[str, float]] = [(s, ms) for s, ms in timings.items() if ms >= 0.5]
    return ", ".join(f"{stage} {ms:.0f} ms" for stage, ms in stages) + f"; together {sum(timings.values()):.0f} ms"
