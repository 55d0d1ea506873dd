// Id of the focused element of a document, through open shadow roots: null without an id, ""
// without an element (section 2.6).
() => {
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  if (!element) return "";
  const { getAttribute } = Element.prototype;
  return getAttribute.call(element, "data-sandbox-bid") ?? getAttribute.call(element, "bid");
}
