// Remembers whether a drag starts, for `has_drag_started`.
(element) => {
  globalThis.sandboxDrag = null;
  const remember = (event) => (globalThis.sandboxDrag = event);
  addEventListener("dragstart", remember, { capture: true, once: true });
}
