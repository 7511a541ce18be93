// Requests to the app's server. The token of the printed URL is kept for this address and sent as a header.

const KEPT = "checklist-rewards-token", HEADER = "x-checklist-rewards-token";

/** Keep the token of the address, and remove it from the address: it should not be copied with it. */
export function keepToken() {
  const given = new URLSearchParams(location.search);
  if (!given.has("token")) return;
  localStorage.setItem(KEPT, given.get("token"));
  given.delete("token");
  history.replaceState(null, "", location.pathname + (given.size ? `?${given}` : "") + location.hash);
}

/** The answer to a GET. Throws an Error with the server's sentence, the `status`, and what else the server says. */
export async function get(path, params = {}) {
  const known = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return reached(`/api/${path}?${new URLSearchParams(known)}`, { headers: headers() });
}

export async function getJson(path, params) {
  return (await get(path, params)).json();
}

export async function post(path, body, signal) {
  return (await send(path, body, signal)).json();
}

/** A `post` for a form that is being edited: the answer, or its error as `{ error }`; null once a later request was sent. */
export function latest(path) {
  let last = 0;
  return async (body) => {
    const own = ++last, found = await post(path, body).catch((error) => ({ error: error.message }));
    return own === last ? found : null;
  };
}

/** Ask the judge. `answered(place, line)` is called for each answer as it arrives, and for all of them with the score;
 *  the event with the score is returned. Throws the judge's sentence. */
export async function judged(body, answered, signal) {
  for await (const event of lines(await send("judge", body, signal))) {
    if (event.event === "error") throw new Error(event.message);
    if (event.event === "item") answered(event.index, event.item);
    if (event.event !== "score") continue;
    event.score.items.forEach((line, i) => answered(i, { ...line, threshold: event.score.aggregation?.threshold }));
    return event;
  }
  throw new Error("the answer of the judge ended before its score.");
}

/** The lines of an answer as they arrive, each a JSON object. */
async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const parts = rest.split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
    if (done) return;
  }
}

/** Send a file of the user; the answer has its name in the project. */
export async function upload(file) {
  const init = { method: "POST", headers: { ...headers(), "content-type": "application/octet-stream" }, body: file };
  return (await reached(`/api/upload?${new URLSearchParams({ name: file.name })}`, init)).json();
}

/** Save a file of the project, or a text, on the user's machine. */
export async function download(name, text = null) {
  const content = text === null ? await (await get("download", { file: name })).blob() : new Blob([text]);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name.split("/").at(-1);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function send(path, body, signal) {
  const init = { method: "POST", headers: { ...headers(), "content-type": "application/json" }, body: JSON.stringify(body), signal };
  return reached(`/api/${path}`, init);
}

function headers() {
  return { [HEADER]: localStorage.getItem(KEPT) ?? "" };
}

async function reached(address, init) {
  const answer = await fetch(address, init).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The app's server does not answer. If it has stopped, start it again: checklist-rewards ui. If not, the network is down.");
  });
  if (answer.ok) return answer;
  const error = new Error(`${answer.status} ${answer.statusText}`);
  try {
    const { error: sentence, ...more } = await answer.json();
    Object.assign(error, more, { message: sentence ?? error.message });
  } catch {
    // not JSON: the status says enough
  }
  throw Object.assign(error, { status: answer.status });
}
