// Resolves when two frames were painted and the document has not changed or scrolled for 50 ms, at
// the latest after the given time.
(limit) =>
  new Promise((resolve) => {
    const signal = new AbortController();
    let quiet = 0;
    let isPainted = false;
    const finish = () => {
      observer.disconnect();
      signal.abort();
      clearTimeout(quiet);
      clearTimeout(latest);
      resolve();
    };
    const restart = () => {
      clearTimeout(quiet);
      quiet = setTimeout(() => {
        quiet = 0;
        if (isPainted) finish();
      }, 50);
    };
    const painted = () => {
      isPainted = true;
      if (!quiet) finish();
    };
    const observer = new MutationObserver(restart);
    const latest = setTimeout(finish, limit);
    observer.observe(document, {
      subtree: true, childList: true, attributes: true, characterData: true,
    });
    document.addEventListener("scroll", restart, {
      capture: true, passive: true, signal: signal.signal,
    });
    restart();
    requestAnimationFrame(() => requestAnimationFrame(painted));
  })
