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
