// Uploads and downloads with their progress.

import { useRef, useState } from "preact/hooks";
import { describe } from "./errors";
import { bytes, visible } from "./format";
import type { SandboxApi } from "./sandbox_api";

interface Transfer {
  number: number;
  name: string;
  state: "running" | "done" | "failed";
  /** Bytes so far, and in all where that is known. */
  done: number;
  total: number;
  error: string;
  cancel(): void;
}

/** Time for which a finished transfer is shown, in milliseconds. */
const SHOWN_FOR = 4_000;

export function useTransfers() {
  const [list, setList] = useState<Transfer[]>([]);
  const next = useRef(0);

  const dismiss = (number: number) => setList((all) => all.filter((transfer) => transfer.number !== number));
  const begin = (name: string, total: number, cancel: () => void) => {
    const number = next.current++;
    setList((all) => [...all, { number, name, state: "running", done: 0, total, error: "", cancel }]);
    return (part: Partial<Transfer>) =>
      setList((all) => all.map((transfer) => (transfer.number === number ? { ...transfer, ...part } : transfer)));
  };
  const follow = async (update: (part: Partial<Transfer>) => void, task: Promise<void>) => {
    try {
      await task;
      update({ state: "done" });
      setTimeout(() => setList((all) => all.filter((transfer) => transfer.state !== "done")), SHOWN_FOR);
    } catch (error) {
      update({ state: "failed", error: describe(error) });
    }
  };

  return {
    list,
    dismiss,
    upload(sandbox: SandboxApi, path: string, file: File): Promise<void> {
      let update: (part: Partial<Transfer>) => void = () => {};
      const sent = sandbox.upload(path, file, (part) => update({ done: part * file.size }));
      update = begin(file.name, file.size, sent.cancel);
      return follow(update, sent.done);
    },
    download(sandbox: SandboxApi, path: string, isDirectory: boolean): void {
      const name = path.split("/").filter(Boolean).at(-1) ?? "root";
      const stop = new AbortController();
      const update = begin(name, 0, () => stop.abort());
      const received = sandbox.download(path, isDirectory, stop.signal, (done) => update({ done }));
      void follow(
        update,
        received.then((blob) => save(blob, isDirectory ? `${name}.zip` : name)),
      );
    },
  };
}

/** Lets the browser save a file. */
function save(blob: Blob, name: string): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60_000);
}

export function Transfers({ list, dismiss }: { list: Transfer[]; dismiss(number: number): void }) {
  if (list.length === 0) return null;
  return (
    <ul class="transfers" role="status">
      {list.map((transfer) => (
        <li key={transfer.number} class={transfer.state}>
          <span class="text">{describeTransfer(transfer)}</span>
          {transfer.state === "running" && transfer.total > 0 && <progress value={transfer.done} max={transfer.total} />}
          <button
            type="button"
            class="quiet small"
            onClick={() => (transfer.state === "running" ? transfer.cancel() : dismiss(transfer.number))}
          >
            {transfer.state === "running" ? "Cancel" : "✕"}
          </button>
        </li>
      ))}
    </ul>
  );
}

function describeTransfer({ name: given, done, total, error, state }: Transfer): string {
  const name = visible(given);
  if (state === "failed") return `${name}: ${error}`;
  if (state === "done") return `${name}: done`;
  return total ? `${name}: ${Math.floor((100 * done) / total)} %` : `${name}: ${bytes(done)}`;
}
