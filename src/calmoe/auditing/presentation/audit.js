// Explanations stay inside the window; Esc closes them.
for (const term of document.querySelectorAll(".term")) {
  const tip = term.lastElementChild;
  const place = () => {
    tip.style.translate = "";
    const over = tip.getBoundingClientRect().right - document.documentElement.clientWidth + 12;
    if (over > 0) tip.style.translate = `${-over}px`;
  };
  term.addEventListener("mouseenter", () => { term.classList.remove("closed"); place(); });
  term.addEventListener("focusin", () => { term.classList.remove("closed"); place(); });
  term.addEventListener("keydown", (event) => { if (event.key === "Escape") term.classList.add("closed"); });
}

// A command is copied where the browser allows it.
for (const button of document.querySelectorAll(".copy")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
  });
}

// A link to a folded part opens it.
const unfold = () => {
  const part = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = part && part.querySelector("details.part");
  if (details) details.open = true;
};
addEventListener("hashchange", unfold);
unfold();
