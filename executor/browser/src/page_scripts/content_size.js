// Width and height of the content of an element, before transformations.
(element) => {
  const style = getComputedStyle(element);
  const length = (name) => parseFloat(style[name]) || 0;
  const size = (name, start, end) =>
    style.boxSizing === "border-box"
      ? length(name) - length(`padding${start}`) - length(`padding${end}`) -
        length(`border${start}Width`) - length(`border${end}Width`)
      : length(name);
  return [size("width", "Left", "Right"), size("height", "Top", "Bottom")];
}
