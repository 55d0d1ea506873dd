// Marks elements whose `onclick` is a function of the page, which only the page's own world shows. A
// page that replaces what this calls loses nothing but that.
() => {
  const visit = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.onclick) element.setAttribute("data-sandbox-onclick", "");
      if (element.shadowRoot) visit(element.shadowRoot);
    }
  };
  visit(document);
}
