"use strict";

// A heading's button sorts its table: rising, falling, then as it was, with its sections.
for (const table of document.querySelectorAll("main table")) {
  const headings = [...[...table.tHead.rows].at(-1).cells];
  const before = [...table.tBodies].map((body) => [body, [...body.rows]]);
  const rows = before.flatMap(([, of]) => of);

  const rank = (row, column) => {
    const cell = row.cells[column];
    if (!headings[column].classList.contains("number")) return cell.textContent;
    return parseFloat(cell.dataset.value ?? cell.textContent);
  };

  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);

  const sort = (column, direction) => {
    headings.forEach((heading, i) => heading.setAttribute("aria-sort", i === column ? direction : "none"));
    if (direction === "none") {
      for (const [body, of] of before) body.append(...of);
      return;
    }
    const sign = direction === "ascending" ? 1 : -1;
    const ranked = rows.map((row) => [rank(row, column), row]);
    const known = ranked.filter(([value]) => !Number.isNaN(value));
    const unknown = ranked.filter(([value]) => Number.isNaN(value)); // last, whichever way
    known.sort(([a], [b]) => sign * compare(a, b));
    before[0][0].append(...[...known, ...unknown].map(([, row]) => row));
  };

  const next = { none: "ascending", ascending: "descending", descending: "none" };
  headings.forEach((heading, column) => {
    const turn = () => sort(column, rows.length ? next[heading.getAttribute("aria-sort")] : "none");
    heading.firstElementChild.addEventListener("click", turn);
  });
}

// A figure opens at full size; Esc, the button or a click on it closes it.
const dialog = document.getElementById("enlarged");
const image = dialog.querySelector("img");
for (const button of document.querySelectorAll(".enlarge")) {
  button.addEventListener("click", () => {
    const figure = button.querySelector("img");
    image.src = figure.src;
    image.alt = figure.alt;
    image.style.setProperty("--pixels", figure.naturalWidth);
    dialog.showModal();
  });
}
dialog.addEventListener("click", () => dialog.close());

// What is folded away is printed too.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
