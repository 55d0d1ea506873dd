// Calls of the server in a sandbox, below the origin of the console. Nothing that it answers is
// trusted: sizes are limited, and all of it is shown as text.

import { type Runtime, gateway, options } from "./api";
import { CallError, failure, readBody, repeat } from "./errors";
import { unzipSingle } from "./zip";

export interface ServerInfo {
  idle: number | null;
  uptime: number | null;
  /** Seconds that all programs in it have used. */
  cpuSeconds: number | null;
  /** In bytes, as the disk of the working directory. */
  memory: { used: number; limit: number | null } | null;
  disk: { used: number; total: number } | null;
  plugins: [name: string, health: string][];
}

/** Largest file that the editor opens, in bytes. */
export const MAX_TEXT = 4 << 20;
const MAX_ANSWER = 8 << 20;
/** Largest download: it is held in memory before the browser saves it. */
const MAX_DOWNLOAD = 1 << 30;
const MAX_NAMES = 10_000;
const TIMEOUT = 30_000;

/** Address of the sandbox server, without a slash at its end. */
export function serverUrl(id: string): string {
  return `${gateway}${id}/runtime`;
}

export class SandboxApi {
  constructor(
    readonly id: string,
    readonly key: string,
  ) {}

  private async send(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { "X-Session-API-Key": this.key, ...init.headers };
    const send = () => fetch(serverUrl(this.id) + path, { ...options, ...init, headers });
    const isRead = (init.method ?? "GET") === "GET" || path === "/list_files";
    const response = await (isRead ? repeat(send) : send());
    if (response.status === 404) throw new CallError(404, "the server in this sandbox does not offer this: it is not the executor");
    if (!response.ok) throw await failure(response);
    return response;
  }

  async json(path: string, method = "GET", body?: unknown): Promise<unknown> {
    const response = await this.send(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT),
    });
    if (response.status === 204) return null;
    const text = new TextDecoder().decode(await readBody(response, MAX_ANSWER));
    try {
      return JSON.parse(text);
    } catch {
      throw new CallError(response.status, "the server in the sandbox did not answer as the executor does");
    }
  }

  async info(): Promise<ServerInfo> {
    const info = object(await this.json("/server_info"));
    const sandbox = object(info.sandbox);
    const disk = object(sandbox.disk);
    const memory = object(sandbox.memory);
    const [used, total, memoryUsed] = [number(disk.used), number(disk.total), number(memory.used)];
    return {
      idle: number(info.idle_time),
      uptime: number(info.uptime),
      cpuSeconds: number(sandbox.cpu_seconds),
      memory: memoryUsed === null ? null : { used: memoryUsed, limit: number(memory.limit) },
      disk: used !== null && total ? { used, total } : null,
      plugins: Object.entries(object(info.plugins)).map(([name, health]) => [name, String(health)]),
    };
  }

  /** Names in a directory; those of directories end with a slash. */
  async list(path: string): Promise<string[]> {
    const names = await this.json("/list_files", "POST", { path });
    if (!Array.isArray(names)) throw new CallError(200, "the server in this sandbox lists no files: it is not the executor");
    return names.slice(0, MAX_NAMES).map(String);
  }

  /** Content of a file of at most `MAX_TEXT` bytes. */
  async read(path: string): Promise<Uint8Array> {
    const response = await this.send(`/download_files?path=${encodeURIComponent(path)}`, {
      signal: AbortSignal.timeout(TIMEOUT),
    });
    return unzipSingle(await readBody(response, MAX_TEXT + 4096));
  }

  /** Writes a whole file. */
  async write(path: string, content: Blob): Promise<void> {
    await repeat(() => this.upload(path, content, () => {}).done);
  }

  /** Sends a file with progress from 0 to 1. Archives (`.zip`) are unpacked by the server. */
  upload(path: string, content: Blob, progress: (part: number) => void): { done: Promise<void>; cancel(): void } {
    const slash = path.lastIndexOf("/");
    const request = new XMLHttpRequest();
    const done = new Promise<void>((resolve, reject) => {
      const form = multipart(path.slice(slash + 1), content);
      const destination = encodeURIComponent(path.slice(0, slash) || "/");
      request.open("POST", `${serverUrl(this.id)}/upload_file?destination=${destination}`);
      request.setRequestHeader("X-Session-API-Key", this.key);
      request.setRequestHeader("Content-Type", form.type);
      request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
      request.onload = () => (request.status === 200 ? resolve() : reject(uploadError(request)));
      request.onerror = () => reject(new CallError(0, "the connection broke"));
      request.onabort = () => reject(new CallError(0, "cancelled"));
      request.send(form.body);
    });
    return { done, cancel: () => request.abort() };
  }

  /** Downloads a directory as an archive, or one file. `seen` gets the bytes so far. */
  async download(path: string, isDirectory: boolean, signal: AbortSignal, seen: (bytes: number) => void): Promise<Blob> {
    const response = await this.send(`/download_files?path=${encodeURIComponent(path)}`, { signal });
    const archive = await readBody(response, MAX_DOWNLOAD, seen);
    return new Blob([(isDirectory ? archive : unzipSingle(archive)) as Uint8Array<ArrayBuffer>]);
  }

  /** Token of VS Code; `null` if the sandbox has none. */
  async vscodeToken(): Promise<string | null> {
    const { token } = object(await this.json("/vscode/connection_token"));
    return typeof token === "string" ? token : null;
  }
}

/** A form with one file. FormData would write a quote in its name as `%22`, which is another name. */
function multipart(name: string, content: Blob): { type: string; body: Blob } {
  if (/[\r\n\0]|\\"|\\$/.test(name)) throw new CallError(400, "a file of this name cannot be sent");
  const boundary = `----${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16)).join("-")}`;
  const head = `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name.replaceAll('"', '\\"')}"\r\n\r\n`;
  return { type: `multipart/form-data; boundary=${boundary}`, body: new Blob([head, content, `\r\n--${boundary}--\r\n`]) };
}

function uploadError(request: XMLHttpRequest): CallError {
  let detail: unknown;
  try {
    detail = JSON.parse(request.responseText).detail;
  } catch {
    // The status alone then.
  }
  const text = typeof detail === "string" ? detail.slice(0, 2000) : `the answer was ${request.status}`;
  return new CallError(request.status, text);
}

/** URL of a port or plugin of a sandbox, in the form in which the gateway gives its URL. */
export function portUrl(runtime: Runtime, name: string): string {
  const { runtime_id: id, url } = runtime;
  const host = new URL(url).host;
  if (host.startsWith(`${id}.`) || host.startsWith(`${id}-`)) return `${url.replace(id, `${name}-${id}`)}/`;
  return `${gateway}${id}/${name}/`;
}

function object(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
