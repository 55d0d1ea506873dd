// An observable value. Listeners run at most once per frame, so that a burst of changes costs one
// rendering.

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private listeners = new Set<() => void>();
  private scheduled = false;

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    if (this.scheduled) return;
    this.scheduled = true;
    frame(() => {
      this.scheduled = false;
      for (const listener of this.listeners) listener();
    });
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** Calls `task` at the next frame, or soon if the page is hidden and has no frames. */
export function frame(task: () => void): void {
  if (document.hidden) setTimeout(task, 100);
  else requestAnimationFrame(task);
}

/** Returns the value of a store, or a part of it, and renders again when it differs. */
export function useStore<T, U = T>(store: Store<T>, select?: (value: T) => U): U {
  const read = () => (select ? select(store.get()) : (store.get() as unknown as U));
  const [, render] = useState({});
  const value = read();
  useEffect(() => {
    let shown = value;
    const update = () => {
      const next = read();
      if (Object.is(next, shown)) return;
      shown = next;
      render({});
    };
    update();
    return store.subscribe(update);
  });
  return value;
}
