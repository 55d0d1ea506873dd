// Ends the checks of `check_pointer`, once tasks that the events caused have run.
() =>
  new Promise((resolve) => {
    const answer = globalThis.sandboxPointer?.release() ?? done();
    globalThis.sandboxPointer = null;
    setTimeout(resolve, 0, answer);
  })
