// What the API key uses of its limits.

import { useEffect } from "preact/hooks";
import { type Usage as UsageInfo, type Used, api } from "./api";
import { CallError } from "./errors";
import { bytes } from "./format";
import { Store, useStore } from "./store";

/** Answer of `/usage`; `null` where the gateway has no such path. */
export const usage = new Store<UsageInfo | null>(null);

const INTERVAL = 10_000;

export async function loadUsage(): Promise<void> {
  try {
    usage.set(await api.usage());
  } catch (error) {
    if (error instanceof CallError && error.status === 404) usage.set(null);
  }
}

const cores = (millicores: number) => `${Number((millicores / 1000).toFixed(1))} cores`;

const AMOUNTS: [name: string, read: (info: UsageInfo) => Used | undefined, text: (value: number) => string][] = [
  ["Sandboxes with compute", (info) => info.sandboxes, String],
  ["CPU", (info) => info.cpu_millicores, cores],
  ["Memory", (info) => info.memory_bytes, bytes],
  ["Starts that wait for quota", (info) => info.waiting_starts, String],
  ["Sandboxes, paused ones included", (info) => info.total_sandboxes, String],
  ["Their commands and environments", (info) => info.stored_bytes, bytes],
  ["Snapshots", (info) => info.snapshots, String],
  ["Image builds", (info) => info.image_builds, String],
];

export function Usage() {
  const info = useStore(usage);
  useEffect(() => {
    void loadUsage();
    const timer = setInterval(() => document.hidden || void loadUsage(), INTERVAL);
    return () => clearInterval(timer);
  }, []);
  return (
    <>
      <div class="bar">
        <h1>Usage</h1>
      </div>
      {info ? (
        <div class="usage">
          {AMOUNTS.map(([name, read, text]) => (
            <Amount key={name} name={name} value={read(info)} text={text} />
          ))}
          {info.calls_per_second != null && (
            <Amount name="Calls per second" value={{ used: null, limit: info.calls_per_second }} text={String} />
          )}
        </div>
      ) : (
        <div class="skeleton" aria-label="Loading" />
      )}
    </>
  );
}

function Amount({ name, value, text }: { name: string; value: Used | undefined; text(value: number): string }) {
  if (!value) return null;
  const { used, limit } = value;
  return (
    <section class="card">
      <h2 class="muted">{name}</h2>
      <p class="amount">
        {used !== null && <strong>{text(used)}</strong>}
        <span class="muted">{limit === null ? "no limit" : used === null ? `at most ${text(limit)}` : `of ${text(limit)}`}</span>
      </p>
      {used !== null && limit !== null && <meter value={used} max={limit} aria-label={name} />}
    </section>
  );
}
