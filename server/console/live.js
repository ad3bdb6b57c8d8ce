// What the server does now, from its own /metrics each second.
const byId = (id) => document.getElementById(id);
const kPeriodMs = 1000;
const kHistory = 120;  // scrapes
const kSvg = "http://www.w3.org/2000/svg";

let api;
let timer = null;
let paused = false;
let last = null;  // {at, samples}
const history = new Map();  // by card

// name → [{labels, value}]
export function parseMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(
             /(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value;
    }
    const list = samples.get(found[1]) ?? [];
    list.push({labels, value: Number(found[3].replace("Inf", "Infinity"))});
    samples.set(found[1], list);
  }
  return samples;
}

const chosen = () => byId("live-model").value;

function sum(samples, name, wanted = {}) {
  let total = 0;
  for (const {labels, value} of samples.get(name) ?? []) {
    if (chosen() && "model" in labels && labels.model !== chosen()) continue;
    if (Object.entries(wanted).every(([k, v]) => labels[k] === v)) total += value;
  }
  return total;
}

// {bounds, counts (not cumulative), count, sum}; null: nothing was observed.
function histogram(samples, name) {
  const byBound = new Map();
  for (const {labels, value} of samples.get(`${name}_bucket`) ?? []) {
    if (chosen() && "model" in labels && labels.model !== chosen()) continue;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    byBound.set(bound, (byBound.get(bound) ?? 0) + value);
  }
  const bounds = [...byBound.keys()].sort((a, b) => a - b);
  let before = 0;
  const counts = bounds.map((bound) => {
    const count = byBound.get(bound) - before;
    before = byBound.get(bound);
    return count;
  });
  return before > 0 ? {bounds, counts, count: before} : null;
}

// Linear within a bucket, as Prometheus' histogram_quantile.
function quantile({bounds, counts, count}, q) {
  let left = q * count;
  for (let i = 0; i < counts.length; ++i) {
    if (left <= counts[i] && counts[i] > 0) {
      const low = i === 0 ? 0 : bounds[i - 1];
      if (bounds[i] === Infinity) return low;
      return low + (bounds[i] - low) * left / counts[i];
    }
    left -= counts[i];
  }
  return 0;
}

function seconds(value) {
  if (value === Infinity) return "more";
  const short = (number) => number.toFixed(number < 10 ? 1 : 0);
  return value < 1 ? `${short(value * 1e3)} ms` : `${short(value)} s`;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  return made;
}

function sparkline(values) {
  const svg = shape("svg", {viewBox: `0 0 ${kHistory} 24`, height: 24,
                            preserveAspectRatio: "none",
                            "aria-hidden": "true"});
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, i) =>
      `${kHistory - values.length + i},${23 - 22 * value / most}`);
  svg.append(shape("polyline", {class: "line", points: points.join(" ")}));
  return svg;
}

function card(name, value, shown) {
  const values = history.get(name) ?? [];
  values.push(value);
  if (values.length > kHistory) values.shift();
  history.set(name, values);
  const made = element("div", "card");
  made.append(element("div", "name", name), element("div", "value", shown),
              sparkline(values));
  return made;
}

function drawCards(samples, passed) {
  const rate = (name, wanted) => last === null ? 0 : Math.max(0,
      (sum(samples, name, wanted) - sum(last.samples, name, wanted)) / passed);
  const amount = (value) => value.toFixed(value < 10 ? 1 : 0);
  const percent = (value) => `${(100 * value).toFixed(0)} %`;
  const steps = rate("millrace_batch_size_count");
  const together = steps > 0 ? rate("millrace_batch_size_sum") / steps : 0;
  const requests = rate("millrace_completions_total") +
                   rate("millrace_inference_requests_total");
  const gauge = (name) => sum(samples, name);
  const rows = [
    ["Running", gauge("millrace_requests_running"), String],
    ["In the queue", gauge("millrace_requests_waiting"), String],
    ["Requests/s", requests, amount],
    ["Output tokens/s", rate("millrace_generation_tokens_total"), amount],
    ["Prompt tokens/s", rate("millrace_prompt_tokens_total"), amount],
    ["Steps and batches/s", steps, amount],
    ["Batch size", together, amount],
    ["Refused/s", rate("millrace_admission_refusals_total"), amount],
    ["Cores of the machine", gauge("millrace_host_cpu_utilization_ratio"),
     percent],
    ["Memory of the process", gauge("process_resident_memory_bytes"),
     (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`],
  ];
  byId("cards").replaceChildren(
      ...rows.map(([name, value, show]) => card(name, value, show(value))));
}

function drawPages(samples) {
  const box = byId("pages");
  const [used, cached, free] = ["used", "cached", "free"].map(
      (state) => sum(samples, "millrace_kv_pages", {state}));
  const total = used + cached + free;
  if (total === 0) {
    box.replaceChildren(element("p", "muted", "no language model is loaded"));
    return;
  }
  const words = `${used} used, ${cached} kept by the prefix cache, ${free} ` +
                `free of ${total}`;
  const bar = element("div", "pages");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", words);
  for (const [name, value] of [["used", used], ["cached", cached]]) {
    const part = element("div", name);
    part.style.width = `${100 * value / total}%`;
    bar.append(part);
  }
  box.replaceChildren(bar, element("p", "muted", words));
}

function drawHistograms(samples) {
  const rows = [
    ["Time to the first token", "millrace_time_to_first_token_seconds", seconds],
    ["Time between tokens", "millrace_inter_token_latency_seconds", seconds],
    ["Time in the queue", "millrace_queue_time_seconds", seconds],
    ["Time of a completion", "millrace_completion_time_seconds", seconds],
    ["Time of a graph's batch", "millrace_compute_time_seconds", seconds],
    ["Batch size", "millrace_batch_size", (value) => value.toFixed(0)],
  ];
  byId("histograms").replaceChildren(...rows.flatMap(([title, name, show]) => {
    const told = histogram(samples, name);
    if (told === null) return [];
    const made = element("div", "card");
    const words = `p50 ${show(quantile(told, 0.5))}, ` +
                  `p99 ${show(quantile(told, 0.99))}, ${told.count} in all`;
    const svg = shape("svg", {viewBox: `0 0 ${told.counts.length * 10} 60`,
                              height: 60, preserveAspectRatio: "none",
                              role: "img", "aria-label": `${title}: ${words}`});
    const most = Math.max(...told.counts);
    told.counts.forEach((count, i) => {
      const height = 58 * count / most;
      const bar = shape("rect", {class: "mark", x: i * 10 + 1, width: 8,
                                 y: 59 - height, height: height + 1});
      const label = shape("title", {});
      label.textContent = `up to ${show(told.bounds[i])}: ${count}`;
      bar.append(label);
      svg.append(bar);
    });
    made.append(element("div", "name", title), svg, element("div", "", words));
    return [made];
  }));
}

function drawModels(samples) {
  const names = [...new Set((samples.get("millrace_requests_running") ?? [])
      .map(({labels}) => labels.model))].sort();
  const picker = byId("live-model");
  const known = [...picker.options].map((option) => option.value);
  if (["", ...names].join("\n") === known.join("\n")) return;
  const value = picker.value;
  picker.replaceChildren(new Option("all", ""),
                         ...names.map((name) => new Option(name)));
  picker.value = names.includes(value) ? value : "";
}

async function drawCores() {
  try {
    const {cores} = await (await api("/debug/cores")).json();
    byId("cores").replaceChildren(...cores.map((core) => {
      const made = element("div", core.models.length > 0 ? "core taken" : "core");
      made.append(`core ${core.cpus[0]}`);
      const where = `socket ${core.socket}, node ${core.numa_node}`;
      made.append(element("small", "", core.models.join(", ") || "not pinned"),
                  element("small", "", where));
      return made;
    }));
  } catch (error) {
    byId("cores").replaceChildren(element("p", "muted", error.message));
  }
}

// Of captures. Why there are no figures stands beside it, in live-missed.
function note(text, bad = false) {
  byId("live-note").textContent = text;
  byId("live-note").classList.toggle("bad", bad);
}

function tellMissed(text) {
  const line = byId("live-missed");
  if (line.textContent !== text) line.textContent = text;
}

async function tick() {
  if (paused) return;
  try {
    const samples = parseMetrics(await (await api("/metrics")).text());
    const at = performance.now();
    drawModels(samples);
    drawCards(samples, last === null ? 1 : (at - last.at) / 1000);
    drawPages(samples);
    drawHistograms(samples);
    last = {at, samples};
    tellMissed("");
  } catch (error) {
    tellMissed(error.message);
  }
}

async function capture() {
  byId("capture").disabled = true;
  note("capturing for 5 seconds");
  try {
    const answer = await api("/debug/trace?seconds=5", {body: {}});
    const text = await answer.text();
    const words = byId("words");
    words.textContent = JSON.parse(text).otherData.breakdown.join("\n");
    words.hidden = false;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type: "application/json"}));
    link.download = "trace.json";
    link.click();
    URL.revokeObjectURL(link.href);
    note("saved as trace.json: open it at ui.perfetto.dev");
  } catch (error) {
    note(error.message, true);
  }
  byId("capture").disabled = false;
}

export function start(call) {
  api = call;
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
  });
  byId("live-model").addEventListener("change", () => {
    history.clear();
    last = null;
    tick();
  });
  byId("capture").addEventListener("click", capture);
}

export function refresh() {
  drawCores();
}

export function enter() {
  leave();
  tick();
  drawCores();
  timer = setInterval(tick, kPeriodMs);
}

export function leave() {
  clearInterval(timer);
  timer = null;
}
