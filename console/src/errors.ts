// Failures as sentences for people.

/** A response that is no success. `status` 0: there was no response. */
export class CallError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The text of an error as a sentence. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (!trimmed) return "";
  const start = trimmed[0]!.toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(start) ? start : start + ".";
}

export function describe(error: unknown): string {
  if (error instanceof CallError) return sentence(error.message);
  if (error instanceof DOMException && error.name === "TimeoutError") return "There was no answer in time.";
  if (error instanceof TypeError) return "The gateway cannot be reached.";
  return sentence(error instanceof Error ? error.message : String(error));
}

/** Reads at most `limit` bytes of a body: a sandbox may send any amount. */
export async function readBody(response: Response, limit: number, seen?: (bytes: number) => void): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > limit) {
      void reader.cancel();
      throw new CallError(413, `the answer is larger than ${Math.floor(limit / (1 << 20))} MiB`);
    }
    parts.push(value);
    seen?.(size);
  }
  const body = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    body.set(part, at);
    at += part.length;
  }
  return body;
}

/** The `detail` of an error response, or words for its status. */
export async function failure(response: Response): Promise<CallError> {
  const body = await readBody(response, 64 << 10).catch(() => new Uint8Array());
  let detail: unknown;
  try {
    detail = JSON.parse(new TextDecoder().decode(body)).detail;
  } catch {
    // The status alone then.
  }
  const text = typeof detail === "string" && detail ? detail.slice(0, 2000) : `the answer was ${response.status}`;
  return new CallError(response.status, text);
}

const ATTEMPTS = 3;
const PAUSE = 300;

/** Repeats a call that may be repeated if its connection breaks: browsers break all requests when a network interface of
 * their machine comes or goes, as it does where containers run. */
export async function repeat<T>(task: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await task();
    } catch (error) {
      const broke = error instanceof TypeError || (error instanceof CallError && error.status === 0);
      if (!broke || attempt === ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}
