// What stands beside the conversation: a source with the cited sentence marked, and how an answer came about.

import { el, link } from "./dom.js";
import { has, say } from "./words.js";

/** A source of a turn: where it is from, and its passage with what the answer rests on. */
export function sourceView({ receipt, checked }, number, sentences) {
  const source = receipt?.sources.find((s) => s.number === number) ?? checked?.citations.find((c) => c.number === number);
  if (!source) return el("p", {}, say("badge_none"));
  const passage = receipt?.passages.find((p) => p.origin === source.origin && p.id === source.id);
  const facts = [
    source.origin === "web" ? say("fromWeb") : `${say("fromKnowledge")} · ${source.source}`,
    source.section && `${say("section")}: ${source.section}`,
    source.page !== null && source.page !== undefined && `${say("page")}: ${source.page}`,
    passage?.probability !== null && passage && say("probability", { p: Math.round(passage.probability * 100) }),
  ];
  return el(
    "article",
    { class: "source" },
    el("h3", {}, source.title || source.source || source.url),
    el("p", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    source.url && el("p", { class: "facts" }, link(source.url)),
    el("blockquote", {}, ...marked(passage?.text, source.strips, sentences)),
    el("p", { class: "legend" }, el("mark", { class: "cited" }, say("highlight")), " ", el("mark", { class: "given" }, say("alsoShown"))),
  );
}

/** The passage's text with the strips that the model was given, and among them the sentences that decided. */
function marked(text, strips, sentences) {
  const characters = [...(text ?? strips.map((strip) => strip.text ?? "").join(" "))];
  const kinds = new Array(characters.length).fill("");
  const joined = characters.join("");
  if (text !== undefined) for (const { start, end } of strips) kinds.fill("given", start, end);
  for (const sentence of sentences) {
    const place = sentence ? joined.indexOf(sentence) : -1;
    if (place >= 0) {
      const start = [...joined.slice(0, place)].length;
      kinds.fill("cited", start, start + [...sentence].length);
    }
  }
  if (!kinds.includes("cited")) kinds.forEach((kind, at) => (kinds[at] = kind || text === undefined ? "cited" : ""));
  const nodes = [];
  for (let at = 0; at < characters.length; ) {
    let end = at;
    while (end < characters.length && kinds[end] === kinds[at]) end += 1;
    const piece = characters.slice(at, end).join("");
    const spoken = kinds[at] === "cited" && el("span", { class: "hidden" }, `${say("highlight")}: `);
    nodes.push(kinds[at] ? el("mark", { class: kinds[at] }, spoken || "", piece) : piece);
    at = end;
  }
  return nodes;
}

/** What happened in a turn, in order. */
export function timelineView({ receipt, stages, ms }) {
  if (!receipt) return el("p", {}, say("badge_open"));
  const steps = [searched(receipt), graded(receipt), web(receipt), checks(receipt), troubles(receipt), times(receipt, stages, ms)];
  return el("ol", { class: "timeline" }, ...steps.filter(Boolean));
}

function step(kind, title, ...content) {
  return el("li", { class: kind }, el("h3", {}, title), ...content);
}

function list(items) {
  return el("ul", {}, ...items.map((item) => el("li", {}, ...[item].flat())));
}

function searched(receipt) {
  const found = receipt.passages.filter((p) => p.origin === "knowledge").length;
  if (receipt.status === "skipped") return step("plain", say("badge_skipped"));
  return step("plain", say("retrieved"), el("p", {}, say("found", { n: found })), list(receipt.queries.map((q) => say("query", { q }))));
}

function graded(receipt) {
  if (!receipt.passages.length) return null;
  const verdict = receipt.verdict && el("p", {}, `${say("verdict")}: `, el("b", {}, say(receipt.verdict)));
  const rows = receipt.passages.map((p) => {
    const sure = p.probability === null ? "" : ` · ${say("probability", { p: Math.round(p.probability * 100) })}`;
    const fate = p.number === null ? say("dropped", { why: say(`label_${p.label}`) }) : say("kept", { n: p.number });
    return [
      el("span", { class: p.number === null ? "no" : "yes", "aria-hidden": "true" }, p.number === null ? "✕ " : "✓ "),
      el("b", {}, p.title || p.source || p.url),
      p.origin === "web" && el("small", { class: "chip" }, say("fromWeb")),
      el("small", {}, `${fate}${sure}`, p.reason && ` (${p.reason})`),
    ].filter(Boolean);
  });
  return step(receipt.verdict ?? "plain", say("graded"), verdict, list(rows));
}

function web(receipt) {
  if (receipt.status === "skipped") return null;
  if (!receipt.web_queries.length) return step("plain", say("webNone"));
  const tried = receipt.web_attempts.map((a) =>
    a.reason ? say("failedWith", { who: a.provider, why: a.reason }) : say("results", { who: a.provider, n: a.results, ms: Math.round(a.ms) }),
  );
  const left = receipt.web_dropped.map((d) => say("webDropped", { what: d.title || d.url, why: d.reason }));
  return step("plain", say("web"), list([...receipt.web_queries.map((q) => say("sent", { q })), ...tried, ...left]));
}

function checks({ answer, conflicts }) {
  const said = (answer?.claims ?? []).map((claim) => {
    const good = claim.label === "supported";
    const by = claim.decided_by?.number;
    const how = good ? (by ? say("supported", { n: by }) : say("supportedAny")) : say(claim.label);
    return [el("span", { class: good ? "yes" : "no", "aria-hidden": "true" }, good ? "✓ " : "✕ "), claim.text, el("small", {}, how)];
  });
  const against = conflicts.map((c) => [el("b", {}, say("conflict")), el("small", {}, c.sides.map((s) => `[${s.numbers.join(", ")}] ${s.says}`).join(" / "))]);
  if (!said.length && !against.length) return answer && answer.checked !== "off" ? step("plain", say("checks"), el("p", {}, say("nothingToCheck"))) : null;
  return step("plain", say("checks"), list([...said, ...against]));
}

function troubles(receipt) {
  const failed = [...receipt.degraded, ...(receipt.answer?.degraded ?? [])].map((d) => say("trouble", d));
  const notes = [...new Set(receipt.notes)].filter((note) => has(`note:${note}`)).map((note) => say(`note:${note}`));
  if (!failed.length && !notes.length) return null;
  return step(failed.length ? "incorrect" : "plain", failed.length ? say("troubles") : "ⓘ", list([...failed, ...notes]));
}

function times(receipt, stages, ms) {
  const done = stages.find((s) => s.stage === "done");
  const entries = Object.entries(receipt.timings_ms).filter(([, took]) => took >= 0.5);
  if (ms && done) entries.push(["writing", Math.max(0, ms - done.ms)]);
  const longest = Math.max(1, ...entries.map(([, took]) => took));
  const bars = entries.map(([stage, took]) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.inlineSize = `${(took / longest) * 100}%`;
    return el("tr", {}, el("th", { scope: "row" }, say(`stage:${stage}`)), el("td", {}, bar), el("td", { class: "ms" }, `${Math.round(took)} ms`));
  });
  const { model_calls: calls, tokens, web_requests: requests } = receipt.spent;
  return step("plain", say("times"), el("table", {}, el("tbody", {}, ...bars)), el("p", {}, el("small", {}, say("together", { ms: Math.round(ms ?? receipt.spent.ms), calls, tokens, web: requests }))));
}
