// True if a drag has started that the page does not prevent.
(element) =>
  new Promise((resolve) => {
    setTimeout(() => resolve(globalThis.sandboxDrag?.defaultPrevented === false), 0);
  })
