// A tenant's documents: add, list, delete.

import { ApiError, call, upload } from "./api.js";
import { el } from "./dom.js";
import { say, tell } from "./words.js";

const TYPES = ".txt,.text,.log,.rst,.md,.markdown,.html,.htm,.xhtml,.pdf,.docx,.csv,.tsv";
const MOST = 5 * 2 ** 20; // as the server has it, which hangs up in the middle of a larger file

/** The view of a session's documents; it stops to change when the session is over. */
export function documentsView(session) {
  const told = el("p", { class: "told", role: "status" });
  const running = el("div", {});
  const found = el("ul", { class: "documents" });
  const input = el("input", { type: "file", id: "files", multiple: true, accept: TYPES, class: "hidden", onchange: () => add([...input.files]) });
  const drop = el("label", { class: "drop", for: "files" }, el("b", {}, `＋ ${say("upload")}`), el("small", {}, say("uploadWhy")));
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
  const view = el("div", {}, input, drop, running, told, found);

  async function add(files) {
    input.value = "";
    for (const file of files) await send(file);
  }

  async function send(file) {
    const bar = el("progress", { max: 1, value: 0, "aria-label": file.name });
    const part = el("small", {});
    const row = el("p", { class: "sending" }, el("b", {}, file.name), bar, part);
    running.append(row);
    try {
      if (file.size > MOST) throw new ApiError("too_large", "");
      const done = await upload(session.token, file, (share, chunks) => {
        if (share < 1) bar.value = share;
        else bar.removeAttribute("value");
        part.textContent = share < 1 ? say("uploading", { part: Math.round(share * 100) }) : say("storing", { n: chunks });
      });
      report(say("uploaded", { name: done.source, n: done.chunks }));
    } catch (error) {
      report(`${file.name}: ${tell(error)}`, true);
    }
    row.remove();
    await show();
  }

  async function remove(source) {
    if (!confirm(say("confirm", { name: source }))) return;
    try {
      await call(session.token, "DELETE", `documents/${encodeURIComponent(source)}`);
      report(say("removed", { name: source }));
    } catch (error) {
      report(tell(error), true);
    }
    await show();
    (found.querySelector("button") ?? input).focus();
  }

  function report(text, bad = false) {
    told.textContent = text;
    told.classList.toggle("bad", bad);
  }

  async function show() {
    try {
      const { documents } = await (await call(session.token, "GET", "documents")).json();
      const items = documents.map(({ source, title, chunks }) =>
        el(
          "li",
          {},
          el("span", { class: "what" }, el("b", {}, title || source), el("small", {}, `${source} · ${say("chunks", { n: chunks })}`)),
          el("button", { type: "button", class: "quiet", "aria-label": say("remove", { name: source }), title: say("remove", { name: source }), onclick: () => remove(source) }, say("delete")),
        ),
      );
      found.replaceChildren(...(items.length ? items : [el("li", {}, say("noDocuments"))]));
    } catch (error) {
      report(tell(error), true);
    }
  }

  show();
  return view;
}
