// The page: who is signed in, what is asked, what is shown. Tokens come behind the # of the address and stay in this tab.

import { answerNodes, badge, footnotes } from "./answer.js";
import { ApiError, call, stream } from "./api.js";
import { documentsView } from "./documents.js";
import { el } from "./dom.js";
import { sourceView, timelineView } from "./panel.js";
import { say, speak, tell } from "./words.js";

const $ = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 52rem)");

let language = speak(localStorage.getItem("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
let sessions = []; // a tenant each: token, name, examples, thread, turns
let session = null;
let running = null; // what stops the turn that is being answered
let panel = null; // what the panel shows, to show it anew in another language

// ---- the conversation

function newTurn(question) {
  const turn = { question, text: "", receipt: null, checked: null, stages: [], ms: null, error: "" };
  const open = (number, sentences, opener) => openPanel(() => [say("source", { n: number }), sourceView(turn, number, sentences)], opener);
  turn.node = el("article", { class: "turn" });
  turn.show = () => {
    const checked = turn.checked;
    const now = turn.stages.at(-1)?.stage;
    const busy = turn.running && el("p", { class: "progress" }, el("span", { class: "dots", "aria-hidden": "true" }), say(`stage:${now ?? "reading"}`));
    const answer = el(
      "div",
      { class: "answer", "aria-busy": turn.running ? "true" : "false" },
      el("h3", { class: "hidden" }, say("answer")),
      turn.receipt && !turn.running && badge(turn.receipt, (event) => openPanel(() => [say("how"), timelineView(turn)], event.currentTarget)),
      turn.text && el("p", { class: "text" }, ...answerNodes(turn.text, checked, open)),
      footnotes(checked, open),
      busy,
      turn.error && el("p", { class: "error", role: "alert" }, turn.error),
    );
    turn.node.replaceChildren(el("h3", { class: "hidden" }, say("you")), el("p", { class: "asked" }, turn.question), answer);
  };
  return turn;
}

function showConversation() {
  const talk = $("conversation");
  const stay = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80;
  if (!session?.turns.length) {
    const examples = (session?.examples[language] ?? []).map((text) => el("button", { type: "button", class: "example", onclick: () => ask(text) }, text));
    talk.replaceChildren(el("div", { class: "welcome" }, el("h2", {}, say("welcome")), el("p", {}, say("welcomeWhy", { name: session?.name ?? "…" })), el("div", { class: "examples" }, ...examples)));
    return;
  }
  if (talk.children.length !== session.turns.length || talk.firstChild !== session.turns[0].node) talk.replaceChildren(...session.turns.map((turn) => turn.node));
  if (stay) talk.scrollTop = talk.scrollHeight;
}

async function ask(question) {
  if (running || !session || !question.trim()) return;
  const mine = session;
  const turn = newTurn(question.trim());
  turn.running = true;
  mine.turns.push(turn);
  const control = (running = new AbortController());
  const update = () => {
    turn.show();
    if (session === mine) showConversation();
  };
  update();
  $("conversation").scrollTop = $("conversation").scrollHeight;
  showComposer();
  try {
    await answer(mine, turn, control.signal, update);
    announce(`${say("ready")} ${turn.text}`);
  } catch (error) {
    turn.error = error.name === "AbortError" ? say("stopped") : tell(error);
    if (error.code === "no_thread") mine.thread = null;
  }
  turn.running = false;
  update();
  if (running !== control) return;
  running = null;
  showComposer();
}

async function answer(mine, turn, signal, update) {
  mine.thread ??= remember(mine, (await (await call(mine.token, "POST", "threads", { signal })).json()).thread);
  for await (const { name, data } of stream(mine.token, `threads/${mine.thread}/turns`, { question: turn.question }, signal)) {
    if (name === "stage") {
      turn.stages.push(data);
      if (data.stage !== "done") announce(say(`stage:${data.stage}`));
    }
    if (name === "evidence") turn.receipt = data.receipt;
    if (name === "token") turn.text += data.text;
    if (name === "answer") Object.assign(turn, { text: data.text, receipt: data.receipt, checked: data.receipt.answer ?? null, ms: data.ms, running: false });
    if (name === "error") throw new ApiError(data.code, data.message);
    update();
  }
  if (turn.ms === null) throw new ApiError("broken", "");
}

function announce(text) {
  $("status").textContent = text;
}

function showComposer() {
  $("ask").hidden = Boolean(running);
  $("stop").hidden = !running;
}

// ---- who is signed in

function remember(mine, thread) {
  sessionStorage.setItem(`thread ${mine.name}`, thread);
  return thread;
}

function forget(mine) {
  sessionStorage.removeItem(`thread ${mine.name}`);
  Object.assign(mine, { thread: null, turns: [] });
}

async function signIn(token) {
  const { name, examples } = await (await call(token, "GET", "me")).json();
  const known = sessions.find((s) => s.name === name);
  if (known) return Object.assign(known, { token });
  const mine = { token, name, examples, thread: sessionStorage.getItem(`thread ${name}`), turns: [] };
  sessions.push(mine);
  return mine;
}

async function choose(mine) {
  running?.abort();
  running = null;
  session = mine;
  closePanel();
  announce("");
  $("question").value = "";
  showTenants();
  showComposer();
  showConversation();
  if (mine.thread && !mine.turns.length) await restore(mine);
}

/** What was said before the page was loaded anew. */
async function restore(mine) {
  try {
    const { messages, receipt } = await (await call(mine.token, "GET", `threads/${mine.thread}`)).json();
    if (mine.turns.length) return;
    for (const { role, text, checked } of messages) {
      if (role === "user") mine.turns.push(newTurn(text));
      else if (mine.turns.length) Object.assign(mine.turns.at(-1), { text, checked: checked ?? null });
    }
    if (mine.turns.length) mine.turns.at(-1).receipt = receipt;
    mine.turns.forEach((turn) => turn.show());
  } catch {
    forget(mine); // the server was started with another folder
  }
  if (session === mine) showConversation();
}

function showTenants() {
  const options = sessions.map((s, at) => el("option", { value: at, selected: s === session }, s.name));
  $("tenant").replaceChildren(...options, el("option", { value: "more" }, say("addToken")));
}

function askForToken(why = "") {
  $("signin-error").textContent = why;
  if (!$("signin").open) $("signin").showModal();
}

async function start() {
  const given = new URLSearchParams(location.hash.slice(1)).getAll("token");
  if (given.length) history.replaceState(null, "", location.pathname);
  const tokens = given.length ? given : JSON.parse(sessionStorage.getItem("tokens") ?? "[]");
  let failure = null;
  for (const token of tokens) await signIn(token).catch((error) => (failure = error));
  keepTokens();
  if (sessions.length) await choose(sessions[0]);
  else askForToken(failure ? tell(failure) : "");
}

function keepTokens() {
  sessionStorage.setItem("tokens", JSON.stringify(sessions.map((s) => s.token)));
}

// ---- the panel

function openPanel(content, opener = null) {
  panel = { content, opener };
  showPanel();
  $("panel").hidden = false;
  document.body.classList.add("with-panel");
  document.querySelector("main").inert = document.querySelector("header").inert = narrow.matches;
  $("documents").setAttribute("aria-expanded", String(opener === $("documents")));
  $("panel-title").focus();
  const cited = $("panel-body").querySelector("blockquote .cited");
  cited ? cited.scrollIntoView({ block: "center" }) : ($("panel-body").scrollTop = 0);
}

function showPanel() {
  const [title, body] = panel.content();
  $("panel-title").textContent = title;
  $("panel-body").replaceChildren(body);
}

function closePanel() {
  if (!panel) return;
  const { opener } = panel;
  panel = null;
  $("panel").hidden = true;
  $("panel-body").replaceChildren();
  document.body.classList.remove("with-panel");
  document.querySelector("main").inert = document.querySelector("header").inert = false;
  $("documents").setAttribute("aria-expanded", "false");
  (opener?.isConnected ? opener : $("question")).focus();
}

// ---- words and wiring

function translate() {
  for (const node of document.querySelectorAll("[data-say]")) node.textContent = say(node.dataset.say);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
  for (const node of document.querySelectorAll("[data-placeholder]")) node.placeholder = say(node.dataset.placeholder);
  $("language").textContent = say("other");
  $("language").lang = language === "zh" ? "en" : "zh-CN";
  sessions.forEach((s) => s.turns.forEach((turn) => turn.show()));
  showTenants();
  showConversation();
  if (panel) showPanel();
}

$("language").onclick = () => {
  language = speak(language === "zh" ? "en" : "zh");
  localStorage.setItem("language", language);
  translate();
};
$("tenant").onchange = (event) => {
  if (event.target.value === "more") askForToken();
  else choose(sessions[event.target.value]);
  showTenants();
};
$("new").onclick = () => {
  if (!session) return;
  running?.abort();
  running = null;
  forget(session);
  choose(session);
  $("question").focus();
};
$("documents").onclick = () => {
  const mine = session;
  if (mine) openPanel(() => [say("documents"), documentsView(mine)], $("documents"));
};
$("composer").onsubmit = (event) => {
  event.preventDefault();
  if (running) return;
  ask($("question").value);
  $("question").value = "";
};
$("question").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // a composing Enter picks a Chinese word
  event.preventDefault();
  $("composer").requestSubmit();
};
$("stop").onclick = () => {
  running?.abort();
  $("question").focus();
};
$("close").onclick = closePanel;
document.onkeydown = (event) => {
  if (event.key === "Escape") closePanel();
};
$("signin-form").onsubmit = async (event) => {
  event.preventDefault();
  try {
    const mine = await signIn($("token").value.trim());
    keepTokens();
    $("token").value = "";
    $("signin").close();
    await choose(mine);
  } catch (error) {
    askForToken(tell(error));
  }
};

translate();
start();
