// Checks that the pointer hits an element at a point. With names of events, those are then
// checked too when they come, and kept from the page on a miss, until `release_pointer`.
(element, x, y, events) => {
  if (!isConnected(element)) return gone;
  const target = events ? pointerTarget(element) : element;
  const failure = covered(target, x, y);
  if (failure || !events) return failure ?? done();
  globalThis.sandboxPointer?.release();
  let missed;
  const check = (event) => {
    if (!event.isTrusted) return;
    // What the page does in answer to the first event is its own affair.
    missed ??= { failure: covered(target, event.clientX, event.clientY) };
    if (missed.failure) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  };
  const options = { capture: true, passive: false };
  for (const name of events) addEventListener(name, check, options);
  const release = () => {
    for (const name of events) removeEventListener(name, check, options);
    return missed?.failure ?? done();
  };
  globalThis.sandboxPointer = { release };
  // For a driver that has given up.
  setTimeout(release, 2000);
  return done();
}
