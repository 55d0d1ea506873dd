// The API key, for as long as this page lives and its tab is reloaded.
//
// Pages of sandboxes in URL form `path` have the origin of the console. If the user opens one in
// this very tab, it can read sessionStorage. So the key there is masked with random bytes that are
// part of the history entry of the console, which no other page can read.

const ITEM = "console";

function mask(bytes: Uint8Array, pad: Uint8Array): Uint8Array {
  return bytes.map((byte, at) => byte ^ (pad[at] ?? 0));
}

/** Returns the key that this history entry and sessionStorage hold together, if any. */
export function storedKey(): string | null {
  const stored = sessionStorage.getItem(ITEM);
  const pad: unknown = history.state?.pad;
  if (stored === null || !Array.isArray(pad)) return null;
  const bytes = Uint8Array.from(stored.split(",").map(Number));
  return new TextDecoder().decode(mask(bytes, Uint8Array.from(pad)));
}

/** Stores the key, with a new mask in the present history entry. */
export function storeKey(key: string): void {
  const bytes = new TextEncoder().encode(key);
  const pad = crypto.getRandomValues(new Uint8Array(bytes.length));
  sessionStorage.setItem(ITEM, mask(bytes, pad).join(","));
  history.replaceState({ pad: Array.from(pad) }, "");
}

export function forgetKey(): void {
  sessionStorage.removeItem(ITEM);
  history.replaceState(null, "");
}
