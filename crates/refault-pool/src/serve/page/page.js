// The page of refault serve: one stream of events, charts, a heat map, tables, and a dialog to change a budget.
"use strict";
const KEPT = 600, MIB = 1048576, AGES = ["< 1 s", "< 10 s", "< 1 min", "< 10 min", "older"];
const at = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
// The token stands behind # in the address, which no browser sends, and is kept until the tab is closed.
const TOKEN = "refault-token";
function learn(token) {
  token ??= new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    sessionStorage.setItem(TOKEN, token.trim());
    window.history.replaceState(null, "", location.pathname + location.search);
  }
}
const authority = () => {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: "Bearer " + token } : {};
};
const dark = matchMedia("(prefers-color-scheme: dark)");
const hues = () => dark.matches
  ? ["#6db3f8", "#ffb454", "#7ddc9a", "#e79cf0", "#ff9188", "#9fd8e0", "#d8d27a", "#b8b4ff"]
  : ["#0b62b8", "#b35900", "#1b7a3d", "#8a2aa0", "#a3211b", "#12717c", "#6b6400", "#4b45b8"];
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

let history = [], pool = null, charts = {}, latest = [];

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes.toFixed(1)) + " " + units[unit];
}
const title = (member) => `${member.name} (${member.pid})`;
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
const time = (ns) => ns >= 1e6 ? (ns / 1e6).toFixed(1) + " ms" : (ns / 1e3).toFixed(0) + " µs";
const advice = (member) => {
  const bytes = member.would_stop_refaulting_at_bytes;
  return bytes == null ? "its grant" : bytes > member.grant_bytes ? size(bytes) : "its grant";
};

// The charts of a pool begin with what its daemon saw before.
async function begin() {
  const name = pool;
  history = [];
  drop();
  if (!name) return;
  const answer = await fetch("api/history", { headers: authority(), cache: "no-store" }).catch(() => null);
  const seen = answer?.ok ? (await answer.json()).pools.find((one) => one.pool === name) : null;
  if (!seen || pool !== name) return;
  const first = history[0]?.time ?? Infinity;
  const before = seen.looks.map((look) => ({
    time: Date.now() / 1000 - (seen.now - look.at) / 1e9,
    members: Object.entries(look.members).map(([pid, member]) => ({ pid: Number(pid), ...member })),
  })).filter((look) => look.time < first);
  history = [...before, ...history].slice(-KEPT);
}

function take(text) {
  latest = JSON.parse(text).pools;
  const names = latest.map((one) => one.pool);
  if (!names.includes(pool)) {
    const most = latest.reduce((best, one) => !best || one.charge_bytes > best.charge_bytes ? one : best, null);
    pool = names.includes(query.get("pool")) ? query.get("pool") : most?.pool ?? null;
    begin();
  }
  const choice = at("pool");
  if (names.join() !== [...choice.options].map((option) => option.value).join()) {
    choice.replaceChildren(...names.map((name) => new Option(name, name, false, name === pool)));
  }
  at("pool-choice").hidden = names.length < 2;
  const now = latest.find((one) => one.pool === pool);
  at("state").className = "";
  at("state").textContent = now ? "live" : "no pool is served: start one with refault pool --memory SIZE";
  if (!now) { at("sum").textContent = ""; at("members").replaceChildren(); return; }
  history.push({ time: Date.now() / 1000, members: now.members });
  history.splice(0, history.length - KEPT);
  at("sum").textContent = `Pool ${now.pool}: ${size(now.charge_bytes)} in use of ${size(now.memory_bytes)}, ${size(now.committed_bytes)} granted.`;
  table(now);
  heat(now);
  policies(now);
  draw();
}

// One column for each look: the parts of a member's memory, as dark or light as they were accessed.
function heat(now) {
  const seen = now.members.filter((member) => member.heat_percent?.length);
  const choice = at("heat-member"), before = choice.value;
  at("heat-choice").hidden = seen.length < 2;
  at("heat").hidden = at("heat-key").hidden = !seen.length;
  if (!seen.length) {
    at("heat-note").textContent = "No member is looked at. Start one with refault run --pool NAME --observe.";
    return;
  }
  if (seen.map((member) => member.pid).join() !== [...choice.options].map((option) => option.value).join()) {
    choice.replaceChildren(...seen.map((member) => new Option(title(member), member.pid)));
    if (seen.some((member) => String(member.pid) === before)) choice.value = before;
  }
  const pid = Number(choice.value), parts = seen.find((member) => member.pid === pid).heat_percent;
  const hot = parts.filter((percent) => percent >= 50).length, cold = parts.filter((percent) => percent === 0).length;
  at("heat-note").textContent = `${title(seen.find((member) => member.pid === pid))}: of ${parts.length} equal parts of the memory that it used in the last ten minutes, ${hot} are hot now (half of the pages or more) and ${cold} are idle.`;
  paint(pid);
}

function paint(pid) {
  const canvas = at("heat"), ratio = devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  context.fillStyle = color("--accent");
  const step = width / Math.max(60, history.length);
  history.forEach((one, index) => {
    const parts = one.members.find((member) => member.pid === pid)?.heat_percent ?? [];
    const left = Math.floor(width - (history.length - index) * step), right = Math.floor(width - (history.length - index - 1) * step);
    parts.forEach((percent, part) => {
      context.globalAlpha = percent / 100;
      const top = Math.floor(part * height / parts.length), bottom = Math.floor((part + 1) * height / parts.length);
      context.fillRect(left, top, right - left, bottom - top);
    });
  });
  context.globalAlpha = 1;
}

function policies(now) {
  const seen = now.members.filter((member) => member.policies?.length);
  at("policies-wide").hidden = !seen.length;
  at("policies-note").textContent = seen.length
    ? "For each fault of the member's own policy in the last minute, estimated from a sample of its pages. Above 1: the other would fault more often."
    : "Nothing to compare: no member that is looked at (--observe) missed pages in the last minute.";
  const names = [...new Set(seen.flatMap((member) => member.policies.map((one) => one.policy)))];
  const cell = (kind, text, scope) => {
    const made = document.createElement(kind);
    if (scope) made.scope = scope;
    made.textContent = text;
    return made;
  };
  at("policies-head").replaceChildren(...["Program", ...names].map((name) => cell("th", name, "col")));
  at("policies").replaceChildren(...seen.map((member) => {
    const row = document.createElement("tr");
    const times = (name) => member.policies.find((one) => one.policy === name)?.faults_ratio;
    row.append(cell("th", title(member), "row"),
      ...names.map((name) => cell("td", times(name) == null ? "its own" : times(name).toFixed(2) + " ×")));
    return row;
  }));
}

function table(now) {
  const body = at("members");
  const held = document.activeElement?.dataset?.pid;
  body.replaceChildren(...now.members.map((member) => {
    const row = document.createElement("tr");
    const name = document.createElement("th"), text = document.createElement("span"), button = document.createElement("button");
    name.scope = "row";
    text.className = "name";
    text.textContent = text.title = title(member);
    button.type = "button";
    button.dataset.pid = member.pid;
    button.textContent = "Budget";
    button.setAttribute("aria-label", `Change the budget of ${member.name}, process ${member.pid}`);
    button.onclick = () => ask(now, member);
    name.append(text, button);
    const marks = [[member.budget_bytes != null, "mark", "set by hand"], [!member.answers, "mark bad", "does not answer"]];
    for (const [, kind, words] of marks.filter(([isSo]) => isSo)) {
      const mark = document.createElement("span");
      mark.className = kind;
      mark.textContent = words;
      name.append(mark);
    }
    row.append(name);
    for (const text of [size(member.charge_bytes), size(member.grant_bytes), size(member.resident_bytes),
      size(member.compressed_bytes), size(member.stored_bytes), (member.pressure * 100).toFixed(2) + " %",
      advice(member), time(member.fault_p50_ns) + " / " + time(member.fault_p99_ns)]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
  if (held) body.querySelector(`[data-pid="${CSS.escape(held)}"]`)?.focus();
}

function ask(now, member) {
  const dialog = at("dialog");
  at("dialog-title").textContent = `Budget of ${title(member)}`;
  at("mib").value = Math.round(member.grant_bytes / MIB);
  at("mib").max = Math.floor(now.memory_bytes / MIB);
  at("problem").textContent = "";
  at("warning").textContent = `It uses ${size(member.charge_bytes)} now. With less, what does not fit is compressed or written to disk.`;
  at("lift").hidden = member.budget_bytes == null;
  at("lift").onclick = () => change(null);
  at("form").onsubmit = (event) => {
    event.preventDefault();
    change(Math.round(Number(at("mib").value)) * MIB);
  };
  const change = async (bytes) => {
    const answer = await fetch("api/budget", {
      method: "POST",
      headers: { "content-type": "application/json", ...authority() },
      body: JSON.stringify({ pool: now.pool, pid: member.pid, bytes }),
    }).catch(() => null);
    if (answer?.ok) dialog.close(); else at("problem").textContent = answer ? await answer.text() : "refault serve does not answer";
  };
  dialog.showModal();
}

function drop() {
  Object.values(charts).forEach((chart) => chart.plot.destroy());
  charts = {};
}

function plot(id, labels, data, options) {
  const key = labels.join("\n"), width = at(id).clientWidth;
  if (charts[id]?.key !== key) {
    charts[id]?.plot.destroy();
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const series = [{}, ...labels.map((label, index) => ({
      label, width: 2, stroke: hues()[index % 8], points: { show: false }, spanGaps: false,
      dash: index < 8 ? undefined : [6, 4],
      fill: options.filled ? hues()[index % 8] + "40" : undefined,
      value: (_, value) => value == null ? "–" : value.toFixed(1),
    }))];
    charts[id] = { key, plot: new uPlot({
      width, height: 220, series, axes: [{ ...axis, space: 90, values: (_, times) => times.map(clock) }, { ...axis, size: 56 }], scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.05] } },
      cursor: { drag: { x: false, y: false } },
    }, data, at(id)) };
  } else {
    if (charts[id].plot.width !== width) charts[id].plot.setSize({ width, height: 220 });
    charts[id].plot.setData(data);
  }
}

function draw() {
  const times = history.map((one) => one.time);
  const ids = new Map();
  history.forEach((one) => one.members.forEach((member) => ids.set(member.pid, title(member))));
  const shown = [...ids.keys()].filter((id) => history.at(-1).members.some((member) => member.pid === id)).slice(0, 16);
  const line = (figure) => shown.map((id) => history.map((one) => {
    const member = one.members.find((other) => other.pid === id);
    return member ? figure(member) : null;
  }));
  const names = shown.map((id) => ids.get(id));
  const uses = at("uses-figure").value, faults = at("faults-figure").value;
  plot("uses", names, [times, ...line((member) => member[uses] / MIB)], {});
  // Counts become rates: the difference to the look before.
  const rate = shown.map((id) => history.map((one, index) => {
    const find = (look) => look?.members.find((member) => member.pid === id);
    const now = find(one), before = find(history[index - 1]);
    return now && before ? Math.max(0, now[faults] - before[faults]) / Math.max(0.1, one.time - history[index - 1].time) : null;
  }));
  const isTime = faults.endsWith("_ns");
  plot("faults", names, [times, ...(isTime ? line((member) => member[faults] / 1000) : rate)], {});
  plot("waits", names, [times, ...line((member) => member.pressure * 100)], {});
  const ages = AGES.map((_, age) => history.map((one) =>
    one.members.reduce((sum, member) => sum + member.bytes_by_age.slice(0, age + 1).reduce((a, b) => a + b, 0), 0) / MIB));
  // The highest sum first, so that what lies below is drawn over it.
  plot("ages", AGES.toReversed(), [times, ...ages.toReversed()], { filled: true });
}

at("pool").onchange = () => { pool = at("pool").value; begin(); };
at("cancel").onclick = () => at("dialog").close();
dark.addEventListener("change", () => { drop(); if (history.length) draw(); });
for (const id of ["uses-figure", "faults-figure", "heat-member"]) {
  at(id).onchange = () => { if (history.length) { draw(); if (at("heat-member").value) paint(Number(at("heat-member").value)); } };
}
dark.addEventListener("change", () => { if (at("heat-member").value) paint(Number(at("heat-member").value)); });
addEventListener("resize", () => { if (history.length) draw(); });
function fail(words) {
  at("state").className = "bad";
  at("state").textContent = words;
}

// An EventSource could not send the token.
async function listen() {
  const answer = await fetch("api/events", { headers: authority(), cache: "no-store" });
  at("token-form").hidden = answer.status !== 401;
  if (answer.status === 401) {
    fail("the pools are shown to who has the token");
    at("token").focus();
    return new Promise((learnt) => { known = learnt; });
  }
  if (!answer.ok) return fail((await answer.text()).trim());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", end; ;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the stream has ended");
    text += value;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const line = text.slice(0, end);
      text = text.slice(end + 2);
      if (line.startsWith("data: ")) take(line.slice(6));
    }
  }
}
let known = () => {};
at("token-form").onsubmit = (event) => {
  event.preventDefault();
  learn(at("token").value);
  at("token").value = "";
  known();
};
addEventListener("hashchange", () => { learn(); known(); });
(async () => {
  learn();
  for (;;) {
    await listen().catch(() => fail("refault serve does not answer; the page goes on when it does"));
    await new Promise((later) => setTimeout(later, 1000));
  }
})();
