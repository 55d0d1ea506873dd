// Brings an element to where the pointer can reach it.
async (element, states, attempt) => {
  const failure = lacking(element, states);
  if (failure) return failure;
  // Other alignments avoid bars that stay at an edge.
  const block = [undefined, "end", "center", "start"][attempt];
  if (!block) element.scrollIntoViewIfNeeded();
  else element.scrollIntoView({ block, inline: block, behavior: "instant" });
  // A page that is not painted has no frames. On a busy machine a frame may take more than 100 ms.
  const frame = () =>
    new Promise((resolve) => {
      requestAnimationFrame(resolve);
      setTimeout(resolve, 250);
    });
  const subject = inButton(element, "button, [role=button], [role=checkbox], [role=radio]");
  const before = rectangle(subject);
  await frame();
  if (!isConnected(element)) return gone;
  const after = rectangle(subject);
  const isStable = ["x", "y", "width", "height"].every((name) => before[name] === after[name]);
  return isStable ? done() : retry("element is not stable");
}
