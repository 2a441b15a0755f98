"use strict";

// -- copying

function copyByHand(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.setAttribute("readonly", "");
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No permission, or a page that is not served securely.
    return copyByHand(text);
  }
}

for (const button of document.querySelectorAll("button[data-copies]")) {
  const status = document.getElementById("copied");
  button.hidden = false;
  button.addEventListener("click", async () => {
    const done = await copied(document.getElementById(button.dataset.copies).textContent);
    button.focus();
    status.textContent = done ? "Copied" : "Could not copy: select the command";
    setTimeout(() => { status.textContent = ""; }, 4000);
  });
}

// -- search; the rule is that of find.py

const SHOWN = 50;

function findErrors(rows, query) {
  const parts = [...new Set(query.toLowerCase().split(/\s+/).filter(Boolean))];
  const phrase = query.toLowerCase().trim().replace(/\s+/g, " ");
  let most = 0;
  const counts = rows.map((row) => {
    const count = parts.reduce((sum, part) => sum + (row.text.includes(part) || part === row.package ? 1 : 0), 0);
    most = Math.max(most, count);
    return count;
  });
  if (!most || 2 * most < parts.length) return { found: [], all: false };
  const rank = (row) =>
    (row.code.toLowerCase() === phrase || row.id === phrase ? 0 : 4) +
    (row.message.toLowerCase().startsWith(phrase) ? 0 : 2) + (row.text.includes(phrase) ? 0 : 1);
  const found = rows.filter((_, number) => counts[number] === most);
  found.sort((one, two) => rank(one) - rank(two) || one.number - two.number);
  return { found, all: most === parts.length };
}

function shownItem(row, page) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = page.replace("ID", row.id);
  link.textContent = row.title;
  const about = document.createElement("span");
  about.className = "soft";
  about.textContent = [row.code, row.errorClass, row.package].filter(Boolean).join(", ");
  item.append(link, " ", about);
  return item;
}

function startSearch(box) {
  const list = document.getElementById("results");
  const count = document.getElementById("count");
  const own = document.getElementById("own");
  const rows = window.sizewiseErrors.map(([id, code, errorClass, from, message, title], number) => ({
    id, code, errorClass, package: from, message, title: title || message, number,
    text: `${code} ${id} ${errorClass} ${message}`.toLowerCase(),
  }));
  const show = () => {
    const asked = box.value.trim() !== "";
    const { found, all } = asked ? findErrors(rows, box.value) : { found: [], all: true };
    list.replaceChildren(...found.slice(0, SHOWN).map((row) => shownItem(row, list.dataset.page)));
    own.hidden = asked;
    if (!asked) count.textContent = "";
    else if (!found.length) count.textContent = "No error has these words";
    else {
      const more = found.length > SHOWN ? `, the first ${SHOWN} shown` : "";
      count.textContent = all ? `${found.length} found${more}` : `No error has all these words; ${found.length} have most${more}`;
    }
  };
  const asked = new URLSearchParams(location.search).get("q");
  if (asked && !box.value) box.value = asked;
  box.addEventListener("input", show);
  box.form.addEventListener("submit", (event) => event.preventDefault());
  if (box.value) show();
}

addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("query");
  if (box && window.sizewiseErrors) startSearch(box);
});
