// Runs in an isolated world of every document: reports that the page is in use
// (docs/specs/browser.md, section 2.6), at most once per 50 ms.
(() => {
  let last = -Infinity;
  const report = () => {
    const now = performance.now();
    if (now - last >= 50) {
      last = now;
      globalThis.sandboxReportUse?.("");
    }
  };
  const events = [
    "focus", "focusin", "load", "pageshow", "mousemove", "mouseup", "mousedown", "wheel",
    "keyup", "keydown", "input", "touchstart", "touchend",
  ];
  for (const name of events) {
    addEventListener(name, report, { capture: true, passive: true });
  }
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") report();
  });
  report();
})();
