// Talks to the server. Every failure is an ApiError with a code that words.js can tell.

export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Cuts a stream of server-sent events into `{name, data}`; feed it text in pieces of any size. */
export class Events {
  #rest = "";

  feed(text) {
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map(read).filter(Boolean);
  }
}

function read(block) {
  const lines = block.split("\n");
  const after = (field) => lines.filter((l) => l.startsWith(`${field}:`)).map((l) => l.slice(field.length + 1).replace(/^ /, ""));
  const data = after("data");
  return data.length ? { name: after("event")[0] ?? "message", data: JSON.parse(data.join("\n")) } : null;
}

async function failure(response) {
  const said = await response.json().catch(() => null);
  return new ApiError(said?.error?.code ?? "failed", said?.error?.message ?? `HTTP ${response.status}`);
}

export async function call(token, method, path, { body, signal } = {}) {
  let response;
  try {
    response = await fetch(`api/${path}`, {
      method,
      signal,
      headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : new ApiError("offline", error.message);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function* stream(token, path, body, signal) {
  const response = await call(token, "POST", path, { body, signal });
  const [events, reader, decoder] = [new Events(), response.body.getReader(), new TextDecoder()];
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      throw error.name === "AbortError" ? error : new ApiError("offline", error.message);
    }
    if (piece.done) return;
    yield* events.feed(decoder.decode(piece.value, { stream: true }));
  }
}

/** Sends a file; `told(part, chunks)` hears the share that was sent, then how many chunks are stored. fetch can't tell how much it has sent. */
export function upload(token, file, told) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const events = new Events();
    let seen = 0;
    const hear = () => {
      if (request.status !== 200) return;
      for (const { name, data } of events.feed(request.responseText.slice(seen))) {
        if (name === "progress") told(1, data.chunks);
        if (name === "done") resolve(data);
        if (name === "error") reject(new ApiError(data.code, data.message));
      }
      seen = request.responseText.length;
    };
    request.upload.onprogress = (event) => event.lengthComputable && told(event.loaded / event.total, 0);
    request.onprogress = hear;
    request.onerror = () => reject(new ApiError("offline", "The connection was lost."));
    request.onload = () => {
      hear();
      if (request.status === 200) return reject(new ApiError("failed", "The upload broke off."));
      new Response(request.responseText, { status: request.status }).json().then(
        (said) => reject(new ApiError(said.error?.code ?? "failed", said.error?.message)),
        () => reject(new ApiError("failed", `HTTP ${request.status}`)),
      );
    };
    request.open("PUT", `api/documents/${encodeURIComponent(file.name)}`);
    request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.send(file);
  });
}
