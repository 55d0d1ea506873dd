// Id of the focused element of a document, through open shadow roots: null without an id, ""
// without an element (section 2.6).
() => {
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  if (!element) return "";
  return element.getAttribute("data-sandbox-bid") ?? element.getAttribute("bid");
}
