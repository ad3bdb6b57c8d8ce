// The model repository: states, load and unload.
const byId = (id) => document.getElementById(id);
let api;
let missed = false;  // the note tells why there is no list

function note(text, bad = false) {
  missed = false;
  byId("models-note").textContent = text;
  byId("models-note").classList.toggle("bad", bad);
}

function button(label, name, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.setAttribute("aria-label", `${label} ${name}`);
  made.addEventListener("click", act);
  return made;
}

async function change(name, what) {
  note(`${what}ing ${name}`);
  try {
    await api(`/v2/repository/models/${encodeURIComponent(name)}/${what}`,
              {body: {}});
    note(`${name}: ${what}ed`);
  } catch (error) {
    note(error.message, true);
  }
  list();
}

async function list() {
  try {
    const models =
        await (await api("/v2/repository/index", {body: {}})).json();
    byId("repository").replaceChildren(...models.map((model) => {
      const row = document.createElement("tr");
      for (const text of [model.name, model.version, model.state,
                          model.reason]) {
        const cell = document.createElement("td");
        cell.textContent = text ?? "";
        row.append(cell);
      }
      const actions = document.createElement("td");
      const ready = model.state === "READY";
      actions.append(
          button(ready ? "Reload" : "Load", model.name,
                 () => change(model.name, "load")));
      if (ready) {
        actions.append(" ", button("Unload", model.name,
                                   () => change(model.name, "unload")));
      }
      row.append(actions);
      return row;
    }));
    if (missed) note("");
  } catch (error) {
    note(error.message, true);
    missed = true;
  }
}

export function start(call) {
  api = call;
  byId("refresh").addEventListener("click", () => {
    note("");
    list();
  });
}

export function refresh() {
  list();
}

export function enter() {
  list();
}
