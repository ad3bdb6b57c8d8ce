// A chat with a model: streamed, with stop and regenerate.
import {events} from "/console/api.js";
import {markdown} from "/console/markdown.js";

const byId = (id) => document.getElementById(id);
let api;
let turns = [];  // {role, content}
let running = null;  // AbortController of the completion under way

function setRunning(controller) {
  running = controller;
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
  byId("regenerate").disabled =
      running !== null || !turns.some((turn) => turn.role === "user");
}

function addMessage(role) {
  const message = document.createElement("div");
  message.className = `message ${role}`;
  byId("messages").append(message);
  return message;
}

// Follows the end of the conversation unless the reader scrolled up.
function keepingTheEnd(change) {
  const box = byId("messages");
  const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  change();
  if (follows) box.scrollTop = box.scrollHeight;
}

function facts(usage, reason, seconds) {
  const words = [];
  if (usage) {
    words.push(`${usage.prompt_tokens} + ${usage.completion_tokens} tokens`);
    words.push(`${(usage.completion_tokens / seconds).toFixed(1)} tokens/s`);
  }
  if (reason === "length") words.push("cut off at the limit of output tokens");
  if (reason === "stopped") words.push("stopped");
  return words.join(" · ");
}

async function complete() {
  const mine = turns;  // "New chat" begins another list meanwhile
  const controller = new AbortController();
  setRunning(controller);
  const message = addMessage("assistant");
  const text = document.createElement("div");
  const told = document.createElement("div");
  told.className = "facts";
  message.append(text, told);
  let content = "";
  let drawn = false;
  const draw = () => {
    drawn = false;
    keepingTheEnd(() => text.replaceChildren(...markdown(content)));
  };
  const body = {
    model: byId("model").value,
    messages: turns,
    stream: true,
    stream_options: {include_usage: true},
    max_tokens: Number(byId("max-tokens").value) || 512,
  };
  const system = byId("system").value.trim();
  if (system) body.messages = [{role: "system", content: system}, ...turns];
  const temperature = byId("temperature").value;
  if (temperature !== "") body.temperature = Number(temperature);
  const begun = performance.now();
  let usage = null;
  let reason = null;
  try {
    const answer =
        await api("/v1/chat/completions", {body, signal: controller.signal});
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      const choice = event.choices?.[0];
      reason = choice?.finish_reason ?? reason;
      content += choice?.delta?.content ?? "";
      if (!drawn) {
        drawn = true;
        requestAnimationFrame(draw);
      }
    }
  } catch (error) {
    if (controller.signal.aborted) {
      reason = "stopped";
    } else {
      told.classList.add("bad");
      reason = error.message;
    }
  }
  told.textContent = told.classList.contains("bad")
      ? reason
      : facts(usage, reason, (performance.now() - begun) / 1000);
  if (content) mine.push({role: "assistant", content});
  setRunning(null);
  draw();
}

function ask(content) {
  // A question without an answer was kept for Regenerate alone: templates want
  // turns that alternate, and one that is too long would be so again.
  if (turns.at(-1)?.role === "user") turns.pop();
  turns.push({role: "user", content});
  addMessage("user").textContent = content;
  const box = byId("messages");
  box.scrollTop = box.scrollHeight;
  complete();
}

function regenerate() {
  if (running) return;
  if (turns.at(-1)?.role === "assistant") turns.pop();
  const last = byId("messages").lastElementChild;
  if (last?.classList.contains("assistant")) last.remove();
  complete();
}

export function start(call) {
  api = call;
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const content = byId("prompt").value.trim();
    if (!content || running) return;
    byId("prompt").value = "";
    ask(content);
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) running.abort();
  });
  byId("stop").addEventListener("click", () => {
    running?.abort();
    byId("prompt").focus();
  });
  byId("regenerate").addEventListener("click", regenerate);
  byId("new-chat").addEventListener("click", () => {
    running?.abort();
    turns = [];
    byId("messages").replaceChildren();
    byId("regenerate").disabled = true;
    byId("prompt").focus();
  });
}

export async function refresh() {
  const picker = byId("model");
  try {
    const list = await (await api("/v1/models")).json();
    // One with a task makes vectors or scores of texts, no answers.
    const data = list.data.filter((model) => !model.task);
    const chosen = picker.value;
    picker.replaceChildren(...data.map((model) => new Option(model.id)));
    if (data.some((model) => model.id === chosen)) picker.value = chosen;
    if (data.length === 0) picker.add(new Option("no language model", ""));
  } catch (error) {
    picker.replaceChildren(new Option(error.message, ""));
  }
}

export function enter() {
  refresh();
  byId("prompt").focus();
}
