// Gives an element the focus. For keys, an input that did not have it is edited at its start.
(element, isForKeys) => {
  if (!isConnected(element)) return gone;
  const root = Node.prototype.getRootNode.call(element);
  const hadFocus = root.activeElement === element && document.hasFocus();
  if (element.isContentEditable && !hadFocus) root.activeElement?.blur?.();
  element.focus();
  // The first call may only give the focus to the document.
  element.focus();
  if (isForKeys && !hadFocus && nodeName(element) === "INPUT") {
    try {
      element.setSelectionRange(0, 0);
    } catch {
      // An input without a text.
    }
  }
  return done();
}
