// Gives each element of a document its id and writes what an observation needs into attributes
// (docs/specs/browser.md, section 2.5). Runs in the isolated world, which a page cannot disturb;
// `find_handlers.js` has marked the elements whose `onclick` only the page's world shows. `prefix`
// is the id of the frame. Resolves to the name of the id attribute.
async (prefix) => {
  const KEY = Symbol.for("sandbox.marks");
  const MARK = "browsergym_id_";
  const HANDLER = "data-sandbox-onclick";
  // Controls of a form can hide its methods.
  const own = (name) => (element, ...args) => Element.prototype[name].call(element, ...args);
  const [get, set, has, remove] =
    ["getAttribute", "setAttribute", "hasAttribute", "removeAttribute"].map(own);
  const tagOf = Object.getOwnPropertyDescriptor(Element.prototype, "tagName").get;
  const tagName = (element) => tagOf.call(element);
  const parentGetter = Object.getOwnPropertyDescriptor(Node.prototype, "parentElement").get;
  const parentOf = (element) => parentGetter.call(element);
  const rootOf = Object.getOwnPropertyDescriptor(Element.prototype, "shadowRoot").get;
  const below = (root) => {
    const { prototype } = root instanceof Document ? Document : DocumentFragment;
    return prototype.querySelectorAll.call(root, "*")[Symbol.iterator]();
  };
  const all = (root) => {
    const found = [];
    // A stack of iterators: shadow roots are as deep as the page wants.
    const stack = [below(root)];
    while (stack.length > 0) {
      const { value, done } = stack[stack.length - 1].next();
      if (done) {
        stack.pop();
        continue;
      }
      found.push(value);
      const shadow = rootOf.call(value);
      if (shadow) stack.push(below(shadow));
    }
    return found;
  };
  const quietly = (work) => {
    try {
      return work();
    } catch {
      return undefined;
    }
  };

  const elements = all(document);
  let state = document[KEY];
  if (!state) {
    // A page with attributes of that name keeps them.
    const taken = elements.some((element) => has(element, "bid"));
    state = { name: taken ? "data-sandbox-bid" : "bid", next: 0, nextFrame: 0 };
    Object.defineProperty(document, KEY, { value: state, configurable: true });
  }
  const letters = (number) => {
    // a…z, then aA, aB and so on: all but the first letter upper-case.
    let text = "";
    do {
      text = String.fromCharCode(97 + (number % 26)) + text;
      number = Math.floor(number / 26) - 1;
    } while (number >= 0);
    return text[0] + text.slice(1).toUpperCase();
  };
  const isFrame = (element) => ["IFRAME", "FRAME"].includes(tagName(element));
  const handlers = new Set(elements.filter((element) => has(element, HANDLER)));
  for (const element of handlers) remove(element, HANDLER);
  state.marked = [];
  const seen = new Set();
  for (const element of elements) {
    quietly(() => {
      // The attribute of a list item is its number, and would renumber the list.
      if (tagName(element) === "LI") return;
      if (element.value !== undefined) set(element, "value", element.value);
    });
    quietly(() => {
      if (element.checked === undefined) return;
      if (element.checked) set(element, "checked", "");
      else remove(element, "checked");
    });
    let id = get(element, state.name);
    const isOwn = id !== null && id.startsWith(prefix) && !seen.has(id);
    if (!isOwn) {
      id = prefix + (isFrame(element) ? letters(state.nextFrame++) : String(state.next++));
      set(element, state.name, id);
    }
    seen.add(id);
    for (const name of ["aria-roledescription", "aria-description"]) {
      set(element, name, `${MARK}${id} ${get(element, name) ?? ""}`);
    }
    state.marked.push(element);
  }

  const ratios = await new Promise((resolve) => {
    const found = new Map();
    if (elements.length === 0) return resolve(found);
    const timeout = setTimeout(() => finish(), 1000);
    const finish = () => {
      clearTimeout(timeout);
      observer.disconnect();
      resolve(found);
    };
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) found.set(entry.target, entry.intersectionRatio);
      if (found.size >= elements.length) finish();
    });
    for (const element of elements) observer.observe(element);
  });

  const MARKS = "browsergym_set_of_marks";
  const CONTROLS = [
    "input", "textarea", "select", "button", "a", "iframe", "video", "li", "td", "option",
  ];
  const isTopmost = (element, box) => {
    const root = Node.prototype.getRootNode.call(element);
    const at = (root.elementFromPoint ? root : document).elementFromPoint(
      (box.left + box.right) / 2,
      (box.top + box.bottom) / 2,
    );
    return at !== null && (at === element || Node.prototype.contains.call(element, at));
  };
  const holdsOthers = (element) => {
    const tag = tagName(element).toLowerCase();
    return (
      tag === "button" || tag === "a" ||
      (tag === "input" && get(element, "type") === "button") ||
      (tag === "div" && get(element, "role") === "button")
    );
  };
  const isMarked = (element) => get(element, MARKS) === "1";
  const deservesMark = (element, box) => {
    const tag = tagName(element).toLowerCase();
    if (!(box.width * box.height >= 20)) return false;
    const isControl =
      CONTROLS.includes(tag) || element.onclick != null || handlers.has(element) ||
      getComputedStyle(element).cursor === "pointer";
    if (!isControl || !isTopmost(element, box)) return false;
    for (let above = parentOf(element); above; above = parentOf(above)) {
      if (holdsOthers(above) && isMarked(above)) return false;
    }
    const parent = parentOf(element);
    const isOnlyChild =
      parent && tagName(parent) === "SPAN" && parent.childElementCount === 1 &&
      get(parent, "role") && isMarked(parent);
    return !isOnlyChild;
  };
  for (const element of elements) {
    const ratio = ratios.get(element) ?? 0;
    set(element, "browsergym_visibility_ratio", String(Math.round(ratio * 100) / 100));
    set(element, MARKS, "0");
    // Also makes Chromium lay out what it has not shown yet.
    const box = quietly(() => Element.prototype.getBoundingClientRect.call(element));
    const isNear =
      box && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
    if (isNear && quietly(() => deservesMark(element, box))) {
      for (let above = parentOf(element); above; above = parentOf(above)) {
        if (isMarked(above)) set(above, MARKS, "0");
      }
      set(element, MARKS, "1");
    }
  }
  return state.name;
}
