// The connection to a terminal of a sandbox: a WebSocket whose messages begin with a channel
// (`docs/specs/executor.md`). It continues after a break where it ended.

const INPUT = 0;
const OUTPUT = 1;
const ERROR = 2;
const STATUS = 3;
const SIZE = 4;

/** Longest piece of input that the server takes, in bytes. */
const MAX_INPUT = 64 << 10;
/** Output that the page has not shown yet, in bytes, at which it lets the connection go. */
const MAX_UNSHOWN = 4 << 20;
/** Messages that wait for a connection that is being opened, or was let go. */
const MAX_EARLY = 256;
/** Largest number of columns or rows that another viewer may set. */
const MAX_SIZE = 1000;
const BACKOFF = { first: 500, last: 10_000 };

export interface TerminalEvents {
  /** Shows output, and calls `shown` when it has. */
  output(bytes: Uint8Array, shown: () => void): void;
  /** Another viewer has changed the size. */
  size(columns: number, rows: number): void;
  note(text: string): void;
  /** The program has ended; `text` says how. */
  ended(text: string): void;
  /** The connection is open or broken. */
  connected(open: boolean): void;
}

export class TerminalLink {
  private socket: WebSocket | null = null;
  /** Offset of the next byte of output; `null` before the first connection. */
  private offset: number | null = null;
  private unshown = 0;
  /** Let go because the page could not keep up. */
  private dropped = false;
  private sizes = 0;
  private size: [columns: number, rows: number] | null = null;
  private backoff = BACKOFF.first;
  private early: Uint8Array<ArrayBuffer>[] = [];
  private timer = 0;
  private closed = false;

  /** `mayConnect` says before each further attempt whether it makes sense: `gone` ends the link. */
  constructor(
    private readonly url: (after: number | null) => string,
    private readonly events: TerminalEvents,
    private readonly mayConnect: () => Promise<"yes" | "later" | "gone">,
  ) {
    this.connect();
  }

  type(text: string): void {
    const bytes = new TextEncoder().encode(text);
    for (let at = 0; at < bytes.length; at += MAX_INPUT) this.send(INPUT, bytes.subarray(at, at + MAX_INPUT));
  }

  /** Input that is not UTF-8: each character is a byte. */
  typeBinary(text: string): void {
    this.send(INPUT, Uint8Array.from(text, (letter) => letter.charCodeAt(0)));
  }

  resize(columns: number, rows: number): void {
    this.size = [columns, rows];
    this.send(SIZE, new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows })));
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  private send(channel: number, content: Uint8Array): void {
    const message = new Uint8Array(content.length + 1);
    message[0] = channel;
    message.set(content, 1);
    const state = this.socket?.readyState;
    if (state === WebSocket.OPEN) this.socket?.send(message);
    else if ((state === WebSocket.CONNECTING || this.dropped) && channel === INPUT && this.early.length < MAX_EARLY)
      this.early.push(message);
  }

  private connect(): void {
    const socket = new WebSocket(this.url(this.offset));
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.sizes = 0;
    this.dropped = false;
    socket.onopen = () => {
      this.backoff = BACKOFF.first;
      this.events.connected(true);
      if (this.size) this.resize(...this.size);
      for (const message of this.early.splice(0)) socket.send(message);
    };
    socket.onmessage = ({ data }) => data instanceof ArrayBuffer && socket === this.socket && this.receive(new Uint8Array(data));
    socket.onclose = ({ code, reason }) => socket === this.socket && this.lost(code, reason);
  }

  private receive(message: Uint8Array): void {
    const content = message.subarray(1);
    if (message[0] === OUTPUT || message[0] === ERROR) this.show(content);
    else if (message[0] === STATUS) this.status(JSON.parse(new TextDecoder().decode(content)));
  }

  private show(bytes: Uint8Array): void {
    this.offset = (this.offset ?? 0) + bytes.length;
    this.unshown += bytes.length;
    this.events.output(bytes, () => {
      this.unshown -= bytes.length;
      if (this.unshown === 0 && this.dropped && !this.closed) this.connect();
    });
    // A browser cannot stop a WebSocket. The server skips output for a viewer that is away.
    if (this.unshown > MAX_UNSHOWN && !this.dropped) this.drop();
  }

  /** Lets the connection go until all output is shown. */
  private drop(): void {
    const socket = this.socket;
    this.socket = null;
    this.dropped = true;
    socket?.close();
  }

  private status(status: Record<string, unknown>): void {
    const { offset, skipped, size, exit } = status as {
      offset?: number;
      skipped?: number;
      size?: { Width: number; Height: number };
      exit?: { code?: number; signal?: string };
    };
    if (typeof offset === "number") {
      const missed = this.offset === null ? 0 : offset - this.offset;
      if (missed > 0) this.events.note(`${missed} bytes of output were missed`);
      this.offset = offset;
    }
    if (typeof skipped === "number") {
      this.offset = (this.offset ?? 0) + skipped;
      this.events.note(`${skipped} bytes of output were skipped`);
    }
    // The first is the size before this page said its own.
    if (size && ++this.sizes > 1 && isSize(size.Width) && isSize(size.Height)) this.events.size(size.Width, size.Height);
    if (exit) {
      this.closed = true;
      const how = exit.signal ? `by signal ${exit.signal}` : `with code ${exit.code}`;
      this.events.ended(`The program has ended ${how}.`);
    }
  }

  private lost(code: number, reason: string): void {
    this.socket = null;
    this.early = [];
    if (this.closed) return;
    this.events.connected(false);
    // Normal closure, a violation of the protocol or of a rule: the same would happen again.
    if (code === 1000 || (code >= 1002 && code <= 1009 && code !== 1006)) {
      this.closed = true;
      this.events.ended(reason || "The connection has ended.");
      return;
    }
    this.retry();
  }

  private retry(): void {
    this.timer = window.setTimeout(async () => {
      const answer = await this.mayConnect().catch(() => "later" as const);
      if (this.closed) return;
      if (answer === "yes") this.connect();
      else if (answer === "later") this.retry();
      else {
        this.closed = true;
        this.events.ended("This terminal no longer exists.");
      }
    }, this.backoff);
    this.backoff = Math.min(this.backoff * 2, BACKOFF.last);
  }
}

/** The server in a sandbox may be anyone's. */
function isSize(count: unknown): count is number {
  return Number.isInteger(count) && 1 <= (count as number) && (count as number) <= MAX_SIZE;
}
