// Gives each element of a document its id and writes what an observation needs into attributes
// (docs/specs/browser.md, section 2.5). Runs in the page's own world, where `onclick` set by
// scripts is visible. `prefix` is the id of the frame. Resolves to the name of the id attribute.
async (prefix) => {
  const KEY = Symbol.for("sandbox.marks");
  const MARK = "browsergym_id_";
  const all = (root) => {
    const found = [];
    // A stack of iterators: shadow roots are as deep as the page wants.
    const stack = [root.querySelectorAll("*")[Symbol.iterator]()];
    while (stack.length > 0) {
      const { value, done } = stack[stack.length - 1].next();
      if (done) {
        stack.pop();
        continue;
      }
      found.push(value);
      if (value.shadowRoot) stack.push(value.shadowRoot.querySelectorAll("*")[Symbol.iterator]());
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
    const taken = elements.some((element) => element.hasAttribute("bid"));
    state = { name: taken ? "data-sandbox-bid" : "bid", next: 0, nextFrame: 0, owners: new Map() };
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
  const isFrame = (element) => ["IFRAME", "FRAME"].includes(element.tagName);
  state.marked = [];
  const seen = new Set();
  for (const element of elements) {
    quietly(() => {
      // The attribute of a list item is its number, and would renumber the list.
      if (element.tagName === "LI") return;
      if (element.value !== undefined) element.setAttribute("value", element.value);
    });
    quietly(() => {
      if (element.checked === undefined) return;
      if (element.checked) element.setAttribute("checked", "");
      else element.removeAttribute("checked");
    });
    let id = element.getAttribute(state.name);
    const isOwn = id !== null && id.startsWith(prefix) && !seen.has(id);
    if (!isOwn) {
      id = prefix + (isFrame(element) ? letters(state.nextFrame++) : String(state.next++));
      element.setAttribute(state.name, id);
    }
    seen.add(id);
    for (const name of ["aria-roledescription", "aria-description"]) {
      element.setAttribute(name, `${MARK}${id} ${element.getAttribute(name) ?? ""}`);
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
    const root = element.getRootNode();
    const at = (root.elementFromPoint ? root : document).elementFromPoint(
      (box.left + box.right) / 2,
      (box.top + box.bottom) / 2,
    );
    return at !== null && (at === element || element.contains(at));
  };
  const holdsOthers = (element) => {
    const tag = element.tagName.toLowerCase();
    return (
      tag === "button" || tag === "a" ||
      (tag === "input" && element.getAttribute("type") === "button") ||
      (tag === "div" && element.getAttribute("role") === "button")
    );
  };
  const isMarked = (element) => element.getAttribute(MARKS) === "1";
  const deservesMark = (element, box) => {
    const tag = element.tagName.toLowerCase();
    if (!(box.width * box.height >= 20)) return false;
    const isControl =
      CONTROLS.includes(tag) || element.onclick != null ||
      getComputedStyle(element).cursor === "pointer";
    if (!isControl || !isTopmost(element, box)) return false;
    for (let above = element.parentElement; above; above = above.parentElement) {
      if (holdsOthers(above) && isMarked(above)) return false;
    }
    const parent = element.parentElement;
    const isOnlyChild =
      parent && parent.tagName === "SPAN" && parent.children.length === 1 &&
      parent.getAttribute("role") && isMarked(parent);
    return !isOnlyChild;
  };
  for (const element of elements) {
    const ratio = ratios.get(element) ?? 0;
    element.setAttribute("browsergym_visibility_ratio", String(Math.round(ratio * 100) / 100));
    element.setAttribute(MARKS, "0");
    // Also makes Chromium lay out what it has not shown yet.
    const box = quietly(() => element.getBoundingClientRect());
    const isNear =
      box && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
    if (isNear && quietly(() => deservesMark(element, box))) {
      for (let above = element.parentElement; above; above = above.parentElement) {
        if (isMarked(above)) above.setAttribute(MARKS, "0");
      }
      element.setAttribute(MARKS, "1");
    }
  }
  return state.name;
}
