"use strict";
// Tables: a click on a column's name sorts by it, a second one the other way round; the field above keeps the
// rows that have all its words.
for (const box of document.querySelectorAll(".table")) {
  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("th")];
  heads.forEach((head, column) => {
    const cells = [...body.rows].map(row => row.cells[column]);
    if (cells.length && cells.every(cell => !cell || cell.className === "number" || cell.textContent === "")) head.className = "number";
    head.firstChild.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const key = row => { const cell = row.cells[column]; return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value); };
      const order = (a, b) => { const x = key(a), y = key(b);
        return typeof x === "number" && typeof y === "number" ? x - y : typeof x === typeof y ? x.localeCompare(y) : typeof x === "number" ? -1 : 1; };
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    });
  });
  const field = box.querySelector("input");
  if (field) field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of body.rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  });
}
// Timelines: made wider and narrower, about the middle of what is seen.
for (const figure of document.querySelectorAll("figure.zoom")) {
  const image = figure.querySelector("img"), view = figure.querySelector(".scroll"), buttons = document.createElement("div");
  let zoom = 1;
  const show = factor => {
    const middle = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth;
    zoom = factor === 0 ? 1 : Math.min(16, Math.max(1, zoom * factor));
    image.style.width = 100 * zoom + "%";
    view.scrollLeft = middle * view.scrollWidth - view.clientWidth / 2;
  };
  for (const [name, factor] of [["Wider", 2], ["Narrower", 0.5], ["Whole", 0]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => show(factor));
    buttons.append(button);
  }
  figure.prepend(buttons);
}
