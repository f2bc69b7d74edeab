// The page of the host: a table of control groups that sorts by any column, a line of usage for each, a curve on demand.
"use strict";
const at = (id) => document.getElementById(id);
const TOKEN = "refault-token", EVERY_MS = 5000;
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(TOKEN, given.trim());
  window.history.replaceState(null, "", location.pathname);
}
let latest = null, order = { column: 1, down: true }, chosen = null;

function size(bytes) {
  if (bytes == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (unit === 0 || bytes >= 100 ? bytes.toFixed(0) : bytes.toFixed(1)) + " " + units[unit];
}
const figure = (value, digits) => value == null ? "–" : value.toFixed(digits);
const age = (seconds) => seconds >= 3600 ? `${seconds / 3600} h` : seconds >= 60 ? `${seconds / 60} min` : `${seconds} s`;

// Title, value to sort by, and text.
function columns(report) {
  const bytes = (title, value) => ({ title, value, text: (group) => size(value(group)) });
  return [
    { title: "Group", value: (group) => group.path, text: (group) => group.path },
    bytes("Usage", (group) => group.usage_bytes),
    bytes("Anonymous", (group) => group.anonymous_bytes),
    bytes("Files", (group) => group.file_bytes),
    bytes("Shared", (group) => group.shared_bytes),
    ...report.ages_seconds.map((seconds, index) => bytes("Within " + age(seconds), (group) => group.working_sets[index]?.bytes)),
    { title: "Refaults/s", value: (group) => group.refaults_per_second, text: (group) => figure(group.refaults_per_second, 0) },
    { title: "Waits, %", value: (group) => group.pressure, text: (group) => figure(group.pressure == null ? null : group.pressure * 100, 1) },
    bytes("Limit that would do", (group) => group.proposal?.high_bytes),
    bytes("Saves", (group) => group.proposal?.saves_bytes),
  ];
}

// Names come from other users: they are text, never markup.
function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function line(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const most = Math.max(1, ...values), step = 100 / Math.max(1, values.length - 1);
  path.setAttribute("points", values.map((value, index) => `${(index * step).toFixed(1)},${(20 - value / most * 18).toFixed(1)}`).join(" "));
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", "currentColor");
  svg.setAttribute("viewBox", "0 0 100 22");
  svg.setAttribute("width", "100");
  svg.setAttribute("height", "22");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "usage in the last hour, at most " + size(most));
  svg.append(path);
  return svg;
}

function compare(one, two) {
  if (one == null || two == null) return (one == null) - (two == null);
  return typeof one === "string" ? one.localeCompare(two) : one - two;
}

function show() {
  const { report, usage } = latest, all = columns(report);
  at("source").textContent = `Working sets: ${report.source}; looks take ${(report.processor_share * 100).toFixed(2)} % of a processor.`;
  at("columns").replaceChildren(...all.map((column, index) => {
    const head = element("th", ""), button = element("button", column.title);
    head.scope = "col";
    if (index === order.column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    button.addEventListener("click", () => {
      order = { column: index, down: index === order.column ? !order.down : index > 0 };
      show();
    });
    head.append(button);
    return head;
  }), element("th", "Last hour"));
  const value = all[order.column].value, sign = order.down ? -1 : 1;
  const groups = [...report.groups].sort((one, two) => sign * compare(value(one), value(two)) || compare(one.path, two.path));
  at("groups").replaceChildren(...groups.map((group) => {
    const row = document.createElement("tr");
    row.append(...all.map((column, index) => {
      const cell = element(index === 0 ? "th" : "td", "");
      if (index === 0) {
        const button = element("button", column.text(group));
        button.title = group.text + (group.program ? ` (${group.program})` : "");
        button.className = "name";
        button.addEventListener("click", () => { chosen = group.path; show(); });
        cell.append(button);
      } else cell.textContent = column.text(group);
      return cell;
    }));
    const cell = document.createElement("td");
    cell.append(line(usage[group.path] ?? []));
    row.append(cell);
    return row;
  }));
  const group = report.groups.find((group) => group.path === chosen);
  at("curve").hidden = !group;
  if (!group) return;
  at("curve-title").textContent = "Limits of " + group.path;
  at("points").replaceChildren(...group.curve.map((point) => {
    const row = document.createElement("tr");
    row.append(element("td", size(point.limit_bytes)), ...[point.refaults_per_second, point.min_refaults_per_second, point.max_refaults_per_second].map((rate) => element("td", figure(rate, 1))));
    return row;
  }));
}

async function look() {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch("api/host", { headers: token ? { authorization: "Bearer " + token } : {}, cache: "no-store" }).catch(() => null);
  if (answer?.ok) {
    latest = await answer.json();
    show();
  }
  const state = at("state");
  state.textContent = answer?.ok ? "live" : answer?.status === 404 ? "start refault serve with --host" : answer ? "open the address that refault serve printed" : "no connection";
  state.className = answer?.ok ? "" : "bad";
  setTimeout(look, EVERY_MS);
}
look();
