// What happens on a page of a test, in the list of the top window.
const entries = [];
function log(...parts) {
  const text = parts.join(" ");
  if (parent === window) entries.push(text);
  else top.postMessage(text, "*");
}
addEventListener("message", (event) => entries.push(event.data));
addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll("[data-log]")) {
    for (const name of element.dataset.log.split(" ")) {
      element.addEventListener(name, () => log(element.id ? `${element.id}.${name}` : name));
    }
  }
});
