// Which page is shown, the theme, the API key, and whether the server is ready.
import {api, setKey} from "/console/api.js";
import * as chat from "/console/chat.js";
import * as live from "/console/live.js";
import * as models from "/console/models.js";

const pages = {chat, live, models};
const byId = (id) => document.getElementById(id);
let shown = null;

function show() {
  let name = location.hash.slice(1) || "chat";
  if (!Object.hasOwn(pages, name)) {
    // Such as "#main", with which the skip link moves the focus in this page.
    if (shown) return;
    name = "chat";
  }
  if (name === shown) return;
  if (shown) pages[shown].leave?.();
  shown = name;
  for (const each of Object.keys(pages)) {
    byId(`${each}-page`).hidden = each !== name;
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  pages[name].enter?.();
}

async function tellState() {
  const state = byId("state");
  let text = "no answer";
  try {
    const answer = await fetch("/health");
    const health = await answer.json();
    text = answer.ok ? "ready" : health.status ?? "not ready";
  } catch {
    // The text says it.
  }
  state.classList.toggle("bad", text !== "ready");
  if (state.textContent === text) return;
  state.textContent = text;
  // What was asked for before may have failed, or told of fewer models.
  if (text === "ready") pages[shown].refresh?.();
}

function setTheme(theme) {
  if (theme) {
    document.documentElement.dataset.theme = theme;
  } else {
    delete document.documentElement.dataset.theme;
  }
}

byId("theme").value = localStorage.getItem("millrace-theme") ?? "";
setTheme(byId("theme").value);
byId("theme").addEventListener("change", (event) => {
  localStorage.setItem("millrace-theme", event.target.value);
  setTheme(event.target.value);
});

byId("key-button").addEventListener("click", () => {
  const form = byId("key-form");
  form.hidden = !form.hidden;
  byId("key-button").setAttribute("aria-expanded", String(!form.hidden));
  if (!form.hidden) byId("key").focus();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(byId("key").value);
  byId("key-form").hidden = true;
  byId("key-button").setAttribute("aria-expanded", "false");
  pages[shown].enter?.();
});

addEventListener("hashchange", show);
chat.start(api);
live.start(api);
models.start(api);
show();
tellState();
setInterval(tellState, 3000);
