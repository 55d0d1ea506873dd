// Small parts that several pages use.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { describe } from "./errors";

const STATUS_MARK: Record<string, string> = {
  running: "●",
  starting: "◐",
  paused: "◌",
  error: "▲",
  stopped: "○",
  ready: "●",
  saving: "◐",
  pending: "◐",
  failed: "▲",
};

/** A status as text, sign and color. */
export function Status({ value }: { value: string }) {
  return (
    <span class={`status ${value}`}>
      <span aria-hidden="true">{STATUS_MARK[value] ?? "○"}</span> {value}
    </span>
  );
}

export function Problem({ text, children }: { text: string; children?: ComponentChildren }) {
  if (!text) return null;
  return (
    <div class="problem" role="alert">
      <p>{text}</p>
      {children}
    </div>
  );
}

/** Words in place of content that is not there. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Runs a task, with its failure as a sentence and whether it is running. */
export function useTask(): { busy: boolean; error: string; clear(): void; run(task: () => Promise<void>): Promise<void> } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const run = async (task: () => Promise<void>) => {
    setBusy(true);
    setError("");
    try {
      await task();
    } catch (failed) {
      setError(describe(failed));
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, clear: () => setError(""), run };
}

/** The answer of `load`, again whenever `key` changes and at `interval` milliseconds while the page is visible. */
export function useAnswer<T>(load: () => Promise<T>, key: string, interval = 0): { value: T | null; error: string; reload(): void } {
  const [state, setState] = useState<{ key: string; value: T | null; error: string }>({ key, value: null, error: "" });
  const [round, setRound] = useState(0);
  useEffect(() => {
    let current = true;
    const once = async () => {
      try {
        const value = await load();
        if (current) setState({ key, value, error: "" });
      } catch (failed) {
        if (current) setState((last) => ({ key, value: last.key === key ? last.value : null, error: describe(failed) }));
      }
    };
    void once();
    const timer = interval ? setInterval(() => document.hidden || void once(), interval) : 0;
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, [key, round]);
  const fresh = state.key === key;
  return { value: fresh ? state.value : null, error: fresh ? state.error : "", reload: () => setRound((last) => last + 1) };
}

/** A modal dialog; Esc closes it. */
export function Dialog({ title, close, children }: { title: string; close(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={close} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <button class="quiet" type="button" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** Asks before something that cannot be undone. */
export function Confirm(props: { title: string; text: string; verb: string; close(): void; act(): void }) {
  return (
    <Dialog title={props.title} close={props.close}>
      <p>{props.text}</p>
      <footer>
        <button type="button" onClick={props.close}>
          Cancel
        </button>
        <button
          type="button"
          class="danger"
          onClick={() => {
            props.close();
            props.act();
          }}
        >
          {props.verb}
        </button>
      </footer>
    </Dialog>
  );
}

/** Names and values in two columns. */
export function Facts({ rows }: { rows: [name: string, value: ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  if (!navigator.clipboard) return null;
  return (
    <button class="quiet small" type="button" onClick={() => void copy()} aria-label={label}>
      {done ? "Copied" : "Copy"}
    </button>
  );
}

/** Keys of a page that count while the user does not type text. */
export function usePageKey(handle: (event: KeyboardEvent) => void): void {
  // Before the page is shown: a key that follows at once counts.
  useLayoutEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const target = event.composedPath()[0];
      const typing = target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (!typing) handle(event);
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  });
}
