// Finds the only element with an id, also in open shadow roots. To describe is to say how many
// there are if there are several.
(id, describes) => {
  // Documents with an attribute `bid` of their own are marked with another.
  const name = document.documentElement?.hasAttribute("data-sandbox-bid")
    ? "data-sandbox-bid"
    : "bid";
  const found = [];
  const search = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT);
    for (let node = walker.currentNode; node; node = walker.nextNode()) {
      if (!(node instanceof Element)) continue;
      if (attribute(node, name) === id) found.push(node);
      if (node.shadowRoot) search(node.shadowRoot);
    }
  };
  search(document);
  if (!describes) return found.length === 1 ? found[0] : null;
  if (found.length < 2) return null;
  const lines = found.slice(0, 10).map((node, at) => `    ${at + 1}) ${preview(node)}\n`);
  if (found.length > 10) lines.push("    ...\n");
  return `resolved to ${found.length} elements:\n${lines.join("")}`;
}
