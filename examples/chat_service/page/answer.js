// An answer: its text with footnotes, its badge, what it rests on. Offsets from the server count characters, so text is cut as an array of them.

import { el } from "./dom.js";
import { say } from "./words.js";

const VERDICTS = { relevant: "✓", ambiguous: "≈", incorrect: "⌕", none: "–", failed: "!", skipped: "·", open: "?" };

/** What the answer came from, as a word of words.js and of style.css. */
function outcome(receipt) {
  if (receipt.status === "skipped") return "skipped";
  if (receipt.status === "no_evidence") return "none";
  if (receipt.status === "retrieval_failed") return "failed";
  return receipt.verdict ?? "open";
}

export function badge(receipt, open) {
  const kind = outcome(receipt);
  const verdict = receipt.verdict ? say(receipt.verdict) : "";
  const checks = counted(receipt.answer);
  return el(
    "button",
    { type: "button", class: `badge ${kind}`, onclick: open, "aria-label": [say(`badge_${kind}`), verdict && `${say("verdict")}: ${verdict}`, checks, say("how")].filter(Boolean).join(". ") },
    el("span", { class: "sign", "aria-hidden": "true" }, VERDICTS[kind]),
    say(`badge_${kind}`),
    verdict && el("small", {}, verdict),
    checks && el("small", {}, checks),
  );
}

function counted(answer) {
  if (!answer || answer.checked === "off") return "";
  if (answer.checked === "nothing_to_check") return say("nothingToCheck");
  if (answer.checked !== "checked") return say("notChecked");
  return say("supportedCount", { n: answer.claims.filter((claim) => claim.label === "supported").length, m: answer.claims.length });
}

/** The text's nodes: plain while it streams, then with a button for each citation and a mark on what no source supports. */
export function answerNodes(text, checked, open) {
  if (!checked) return [text];
  const characters = [...text];
  const places = new Map();
  for (const { number, title, places: found } of checked.citations) {
    for (const [start, end] of found) {
      const place = places.get(start) ?? { start, end, cited: [] };
      place.cited.push({ number, title });
      places.set(start, place);
    }
  }
  const doubtful = checked.claims.filter((claim) => claim.label !== "supported" && claim.end > claim.start);
  const edges = [...places.values(), ...doubtful].flatMap(({ start, end }) => [start, end]);
  const cuts = [...new Set([0, ...edges, characters.length])].filter((cut) => cut <= characters.length).sort((a, b) => a - b);
  const nodes = [];
  let cited = 0;
  cuts.slice(0, -1).forEach((start, at) => {
    const place = places.get(start);
    if (place) {
      const buttons = place.cited.map((source) => citation(source, open, supports(checked, source.number, cited, place.end)));
      nodes.push(el("span", { class: "together" }, tail(nodes), ...buttons));
      cited = place.end;
    }
    if (start < cited) return;
    const piece = characters.slice(start, cuts[at + 1]).join("");
    const claim = doubtful.find((c) => c.start <= start && start < c.end);
    nodes.push(claim ? el("span", { class: "doubt", title: say("doubt") }, piece, el("span", { class: "hidden" }, ` (${say("doubt")})`)) : piece);
  });
  return nodes;
}

/** Takes the last character of the text so far, which the number behind it must not leave for the next line. */
function tail(nodes) {
  if (typeof nodes.at(-1) !== "string") return "";
  const before = nodes.pop();
  const text = before.trimEnd();
  const last = [...text.slice(-2)].at(-1) ?? "";
  nodes.push(text.slice(0, text.length - last.length));
  return last + (text.length < before.length ? " " : "");
}

/** The sentences of a source by which the statements between two places were decided. */
function supports(checked, number, from, to) {
  return checked.claims.filter((c) => c.decided_by?.number === number && c.end > from && c.start < to).map((c) => c.decided_by.text);
}

function citation({ number, title }, open, sentences) {
  const label = `${say("source", { n: number })}: ${title}`;
  return el("button", { type: "button", class: "cite", "aria-label": label, title: label, onclick: (event) => open(number, sentences, event.currentTarget) }, String(number));
}

/** The cited sources below an answer. */
export function footnotes(checked, open) {
  if (!checked?.citations.length) return null;
  const items = checked.citations.map(({ number, title, source, url, origin }) =>
    el(
      "li",
      {},
      el(
        "button",
        { type: "button", class: "note", onclick: (event) => open(number, supports(checked, number, 0, Infinity), event.currentTarget) },
        el("b", {}, String(number)),
        el("span", { class: "what" }, title || source || url),
        el("small", {}, origin === "web" ? `${say("fromWeb")} · ${source}` : source),
      ),
    ),
  );
  return el("nav", { class: "notes", "aria-label": say("sources") }, el("ol", {}, ...items));
}
