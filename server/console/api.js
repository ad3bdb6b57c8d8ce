// Calls of the server's own routes, with the API key where there is one.
const kKey = "millrace-key";

export function setKey(key) {
  if (key) {
    sessionStorage.setItem(kKey, key);
  } else {
    sessionStorage.removeItem(kKey);
  }
}

// The sentence of an error, whichever protocol's form it has.
function sentence(status, body) {
  try {
    const error = JSON.parse(body).error;
    return typeof error === "string" ? error : error.message;
  } catch {
    return `the server answered ${status}`;
  }
}

// A response that is OK; else an Error with the server's own sentence.
export async function api(path, {body, signal} = {}) {
  const headers = {};
  const key = sessionStorage.getItem(kKey);
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
  });
  if (answer.ok) return answer;
  if (answer.status === 401) throw new Error("this server needs an API key: press Key");
  throw new Error(sentence(answer.status, await answer.text()));
}

// The data lines of server-sent events, until "[DONE]".
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n")) >= 0) {
      const line = text.slice(0, end).trimEnd();
      text = text.slice(end + 1);
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}
