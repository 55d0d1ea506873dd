// Sets the value of an input that has no text (done: false), or selects the text that is to be
// replaced (done: true).
async (element, text) => {
  const failure = lacking(element, ["visible", "enabled", "editable"]);
  if (failure) return failure;
  const field = control(element);
  const name = nodeName(field);
  if (name === "INPUT") {
    const type = field.type;
    const isText = "email number password search tel text url".split(" ").includes(type);
    const isSet = "color date datetime-local month range time week".split(" ").includes(type);
    if (!isText && !isSet) return refuse(`Input of type "${type}" cannot be filled`);
    if (type === "number" && isNaN(Number(text.trim()))) {
      return refuse("Cannot type text into input[type=number]");
    }
    if (isSet) {
      const value = text.trim();
      field.focus();
      field.value = value;
      if (field.value !== value) return refuse("Malformed value");
      field.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
      field.dispatchEvent(new Event("change", { bubbles: true }));
      return done(false);
    }
  } else if (name !== "TEXTAREA" && !field.isContentEditable) {
    return refuse("Element is not an <input>, <textarea> or [contenteditable] element");
  }
  if (name === "INPUT" || name === "TEXTAREA") {
    // The event of the selection comes before those of the text, but later than the call.
    const selected = new Promise((resolve) => {
      if (field.value) field.addEventListener("select", resolve, { once: true });
      setTimeout(resolve, field.value ? 50 : 0);
    });
    field.select();
    field.focus();
    await selected;
  } else {
    getSelection().selectAllChildren(field);
    field.focus();
  }
  return done(true);
}
