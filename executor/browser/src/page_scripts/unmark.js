// Takes the ids out of the ARIA attributes again; the others stay (section 2.5).
() => {
  const state = document[Symbol.for("sandbox.marks")];
  for (const element of state?.marked ?? []) {
    for (const name of ["aria-roledescription", "aria-description"]) {
      const text = element.getAttribute(name)?.replace(/^browsergym_id_\S*\s/, "");
      if (text) element.setAttribute(name, text);
      else element.removeAttribute(name);
    }
  }
  if (state) state.marked = [];
}
