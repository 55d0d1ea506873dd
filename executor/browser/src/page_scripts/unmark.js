// Takes the ids out of the ARIA attributes again; the others stay (section 2.5).
() => {
  const state = document[Symbol.for("sandbox.marks")];
  for (const element of state?.marked ?? []) {
    for (const name of ["aria-roledescription", "aria-description"]) {
      const { getAttribute, setAttribute, removeAttribute } = Element.prototype;
      const text = getAttribute.call(element, name)?.replace(/^browsergym_id_\S*\s/, "");
      if (text) setAttribute.call(element, name, text);
      else removeAttribute.call(element, name);
    }
  }
  if (state) state.marked = [];
}
