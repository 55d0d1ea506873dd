// Functions of the scripts of operations (docs/specs/browser.md, section 2.4). They run in the
// isolated world. Getters come from prototypes, because forms answer to names of their fields.

const getter = (prototype, name) => {
  const { get } = Object.getOwnPropertyDescriptor(prototype, name);
  return (node) => get.call(node);
};
const parentElement = getter(Node.prototype, "parentElement");
const parentNode = getter(Node.prototype, "parentNode");
const isConnected = getter(Node.prototype, "isConnected");
const nodeName = getter(Node.prototype, "nodeName");
const childNodes = getter(Node.prototype, "childNodes");
const attributesOf = getter(Element.prototype, "attributes");
const closest = (element, selector) => Element.prototype.closest.call(element, selector);
const matches = (element, selector) => Element.prototype.matches.call(element, selector);
const attribute = (element, name) => Element.prototype.getAttribute.call(element, name);
const rectangle = (node) => {
  const prototype = node instanceof Range ? Range.prototype : Element.prototype;
  return prototype.getBoundingClientRect.call(node);
};
const parent = (element) => {
  const above = parentElement(element) ?? parentNode(element);
  return above instanceof ShadowRoot ? above.host : above instanceof Element ? above : null;
};

// Answers to the driver.
const done = (value = null) => ({ done: value });
const retry = (reason) => ({ retry: reason });
const refuse = (reason) => ({ refuse: `Error: ${reason}` });
const gone = { gone: null };

// Opening tag, attributes of a few characters first, and a text if there is nothing else.
const preview = (element) => {
  const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
  const flags = ["checked", "disabled", "multiple", "readonly", "selected"];
  const attributes = [...attributesOf(element)]
    .filter(({ name }) => name !== "style")
    .map(({ name, value }) => (!value && flags.includes(name) ? ` ${name}` : ` ${name}="${value}"`))
    .sort((one, other) => one.length - other.length);
  const name = nodeName(element).toLowerCase();
  const start = `<${name}${cut(attributes.join(""), 500)}`;
  const voids =
    "area base br col command embed hr img input keygen link menuitem meta param source track wbr";
  const children = [...childNodes(element)];
  const isText = children.length <= 5 && children.every((child) => child instanceof Text);
  const text = isText ? children.map(({ data }) => data).join("") : "…";
  const all = voids.split(" ").includes(name) ? `${start}/>` : `${start}>${cut(text, 50)}</${name}>`;
  return all.replaceAll("\n", "↵").replaceAll("\t", "⇆");
};

const FIELDS = "input, textarea, select";
const isField = (element) => matches(element, FIELDS) || element.isContentEditable;

// The button that an element belongs to, or the element.
const inButton = (element, selector) => (!isField(element) && closest(element, selector)) || element;
// The element that gets the pointer.
const pointerTarget = (element) =>
  inButton(element, "button, [role=button], a, [role=link]");
// The control that an element stands for.
const control = (element) => {
  const found = inButton(element, "button, [role=button], [role=checkbox], [role=radio]");
  const controls =
    `a, button, ${FIELDS}, [role=link], [role=button], [role=checkbox], [role=radio]`;
  if (matches(found, controls) || found.isContentEditable) return found;
  return closest(found, "label")?.control ?? found;
};

const hasArea = (node) => {
  const { width, height } = rectangle(node);
  return width > 0 && height > 0;
};

const isVisible = (element) => {
  const { display, visibility } = getComputedStyle(element);
  if (display !== "contents") {
    const isShown = Element.prototype.checkVisibility.call(element) && visibility === "visible";
    return isShown && hasArea(element);
  }
  return [...childNodes(element)].some((child) => {
    if (child instanceof Element) return isVisible(child);
    const range = document.createRange();
    range.selectNode(child);
    return child instanceof Text && hasArea(range);
  });
};

// Elements that `aria-disabled` counts for, by their role or by what they are.
const DISABLEABLE_ROLES =
  "application button checkbox columnheader combobox composite grid gridcell group input link " +
  "listbox menu menubar menuitem menuitemcheckbox menuitemradio option radio radiogroup row " +
  "rowheader scrollbar searchbox select separator slider spinbutton switch tab tablist textbox " +
  "toolbar tree treegrid treeitem";
const DISABLEABLE =
  `button, ${FIELDS}, option, optgroup, a[href], area[href], fieldset, details, hr, tr, th`;
const READ_ONLY_ROLES =
  "checkbox columnheader combobox grid gridcell listbox radiogroup rowheader searchbox slider " +
  "spinbutton switch textbox treegrid";

const role = (element) => (attribute(element, "role") ?? "").trim().split(/\s+/)[0];
const hasRole = (element, roles) => roles.split(" ").includes(role(element));

const isDisabled = (element) => {
  if (matches(element, "button, input, select, textarea, option, optgroup")) {
    if (matches(element, "[disabled], optgroup[disabled] > option, select optgroup[disabled] option"))
      return true;
    const fieldset = closest(element, "fieldset[disabled]");
    const legend = fieldset && [...fieldset.children].find((child) => matches(child, "legend"));
    if (fieldset && !legend?.contains(element)) return true;
  }
  const counts = role(element) ? hasRole(element, DISABLEABLE_ROLES) : matches(element, DISABLEABLE);
  for (let above = counts ? element : null; above; above = parent(above)) {
    const value = (attribute(above, "aria-disabled") ?? "").toLowerCase();
    if (value === "true" || value === "false") return value === "true";
  }
  return false;
};

// Answer for the first state that an element lacks, if any.
const lacking = (element, states) => {
  if (!isConnected(element)) return gone;
  const subject = control(element);
  for (const state of states) {
    if (state === "visible" && !isVisible(element)) return retry("element is not visible");
    if (state === "enabled" && isDisabled(subject)) return retry("element is not enabled");
    if (state === "editable") {
      const isReadOnly = matches(subject, FIELDS)
        ? matches(subject, "[readonly]")
        : attribute(subject, "aria-readonly") === "true" && hasRole(subject, READ_ONLY_ROLES);
      if (isReadOnly) return retry("element is not editable");
      if (!isField(subject) && !hasRole(subject, READ_ONLY_ROLES)) {
        return refuse(
          "Element is not an <input>, <textarea>, <select> or [contenteditable] " +
            "and does not have a role allowing [aria-readonly]",
        );
      }
    }
  }
  return null;
};

// Answer if another element than the target, or one inside it, is on top at a point.
const covered = (target, x, y) => {
  const roots = [];
  for (let node = target; node instanceof Element; node = roots[0].host) {
    roots.unshift(Node.prototype.getRootNode.call(node));
  }
  let hit = null;
  for (const [index, root] of roots.entries()) {
    const prototype = root instanceof ShadowRoot ? ShadowRoot.prototype : Document.prototype;
    const inner = prototype.elementFromPoint.call(root, x, y);
    hit = inner ?? hit;
    if (!inner || inner !== roots[index + 1]?.host) break;
  }
  const above = [];
  for (; hit && hit !== target; hit = hit.assignedSlot ?? parent(hit)) above.push(hit);
  if (hit) return null;
  let cover = preview(above[0] ?? document.documentElement);
  for (let node = target; node; node = parent(node)) {
    const common = above.indexOf(node);
    if (common > 1) cover += ` from ${preview(above[common - 1])} subtree`;
    if (common >= 0) break;
  }
  return retry(`${cover} intercepts pointer events`);
};
