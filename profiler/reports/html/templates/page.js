"use strict";
(function () {
  const tree = document.getElementById("modules");
  const bar = document.querySelector(".sorting");
  if (tree && bar) {
    bar.hidden = false;
    const sortLists = function (key) {
      tree.querySelectorAll("ul").forEach(function (list) {
        const rows = Array.from(list.children);
        rows.sort(function (a, b) {
          if (key === "name") {
            return a.dataset.name.localeCompare(b.dataset.name, "en", { numeric: true });
          }
          const difference = Number(a.dataset[key]) - Number(b.dataset[key]);
          return key === "order" ? difference : -difference || Number(a.dataset.order) - Number(b.dataset.order);
        });
        rows.forEach(function (row) { list.appendChild(row); });
      });
    };
    const rows = Array.from(tree.querySelectorAll("li"));
    const field = document.getElementById("find-module");
    const found = document.getElementById("found-modules");
    field.addEventListener("input", function () {
      const text = field.value.trim().toLowerCase();
      let count = 0;
      // Children stand behind their parents in the page, so that from the end each row knows of those inside it.
      rows.slice().reverse().forEach(function (row) {
        const named = row.dataset.path.toLowerCase().includes(text);
        const inside = Array.from(row.querySelectorAll("li")).some(function (one) { return !one.hidden; });
        row.hidden = !(named || inside);
        count += named ? 1 : 0;
        const details = row.querySelector("details");
        if (text && inside && details && details.parentElement === row) {
          details.open = true;
        }
      });
      found.textContent = text ? count + " of " + rows.length : "";
    });
    bar.addEventListener("click", function (event) {
      const button = event.target.closest("button");
      if (!button) {
        return;
      }
      if (button.dataset.open) {
        tree.querySelectorAll("details").forEach(function (one) { one.open = button.dataset.open === "true"; });
        return;
      }
      bar.querySelectorAll("button[data-sort]").forEach(function (one) {
        one.setAttribute("aria-pressed", String(one === button));
      });
      sortLists(button.dataset.sort);
    });
  }
})();
