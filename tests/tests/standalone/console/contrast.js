// Texts whose contrast with what is behind them is less than WCAG 2, level AA, wants: 4.5, and 3 for large ones.
(() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, at) => part * a + under[at] * (1 - a));
  const parent = (element) => element.parentElement ?? element.getRootNode().host;
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(parent(element)) : 1);
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const [r, g, b, a] = rgba(getComputedStyle(element).backgroundColor);
    return over([r, g, b, a * opacity(element)], ground(parent(element)));
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  let checked = 0;
  const low = [];
  const check = (element, text, style) => {
    // Controls that cannot be used are excepted.
    const isShown = element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
    if (!text.trim() || !isShown || element.closest(":disabled")) return;
    checked += 1;
    const behind = ground(element);
    const [r, g, b, a] = rgba(style.color);
    const front = over([r, g, b, a * opacity(element)], behind);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(front, behind);
    if (ratio >= (isLarge ? 3 : 4.5)) return;
    const name = `${element.localName}.${[...element.classList].join(".")}`;
    low.push(`${ratio.toFixed(2)} ${name} ${JSON.stringify(text.trim().slice(0, 40))} rgb(${front}) on rgb(${behind})`);
  };
  const walk = (element) => {
    const style = getComputedStyle(element);
    if (/^(STYLE|SCRIPT|OPTION)$/.test(element.tagName)) return;
    if (element.matches("input, textarea")) {
      check(element, element.value, style);
      if (!element.value) check(element, element.placeholder, getComputedStyle(element, "::placeholder"));
    }
    for (const node of element.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) check(element, node.data, style);
    }
    for (const child of [...element.children, ...(element.shadowRoot?.children ?? [])]) walk(child);
  };
  // What is behind a dialog cannot be read while it is open.
  walk(document.querySelector("dialog[open]") ?? document.body);
  return { checked, low, page: luminance(ground(document.documentElement)) };
})()
