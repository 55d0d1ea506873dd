// Resolves when two frames were painted and the document has not changed or scrolled for 50 ms, at
// the latest after the given time.
(limit) =>
  new Promise((resolve) => {
    let quiet = 0;
    const finish = () => {
      observer.disconnect();
      document.removeEventListener("scroll", restart, true);
      clearTimeout(quiet);
      clearTimeout(latest);
      resolve();
    };
    const restart = () => {
      clearTimeout(quiet);
      quiet = setTimeout(finish, 50);
    };
    const observer = new MutationObserver(restart);
    const latest = setTimeout(finish, limit);
    observer.observe(document, {
      subtree: true, childList: true, attributes: true, characterData: true,
    });
    document.addEventListener("scroll", restart, { capture: true, passive: true });
    requestAnimationFrame(() => requestAnimationFrame(restart));
  })
