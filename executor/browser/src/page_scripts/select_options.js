// Selects the options with these values or labels.
(element, wanted) => {
  const failure = lacking(element, ["visible", "enabled"]);
  if (failure) return failure;
  const select = control(element);
  if (nodeName(select) !== "SELECT") return refuse("Element is not a <select> element");
  const missing = new Set(wanted);
  const chosen = [];
  for (const option of select.options) {
    const names = [option.value, option.label].filter((name) => missing.has(name));
    if (!names.length) continue;
    // In a label it counts as the labelled control.
    if (isDisabled(control(option))) return retry("option being selected is not enabled");
    chosen.push(option);
    if (select.multiple) names.forEach((name) => missing.delete(name));
    else missing.clear();
  }
  if (missing.size) return retry("did not find some options");
  select.selectedIndex = -1;
  for (const option of chosen) option.selected = true;
  select.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  select.dispatchEvent(new Event("change", { bubbles: true }));
  return done();
}
