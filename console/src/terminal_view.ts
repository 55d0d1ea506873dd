// xterm.js, in a chunk of its own.

import "./style_rules";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import type { TerminalLink } from "./terminal_link";

const THEME = {
  background: "#14151a",
  foreground: "#e4e5ea",
  cursor: "#a5a8ff",
  selectionBackground: "#4b4f7a",
  black: "#2b2d36",
  red: "#f28b82",
  green: "#7fd1a0",
  yellow: "#e6c07b",
  blue: "#82aaff",
  magenta: "#d7a1f9",
  cyan: "#7fd6e0",
  white: "#d8dae2",
  brightBlack: "#8b8fa0",
  brightRed: "#ffa8a0",
  brightGreen: "#a4e8bf",
  brightYellow: "#ffdc9c",
  brightBlue: "#a9c5ff",
  brightMagenta: "#e9c3ff",
  brightCyan: "#a5ecf3",
  brightWhite: "#ffffff",
};
const SCROLLBACK = 10_000;
/** Silence after which what a terminal had printed before has arrived, in milliseconds. */
const REPLAY_SILENCE = 300;

export interface TerminalView {
  write(bytes: Uint8Array, shown: () => void): void;
  note(text: string): void;
  resize(columns: number, rows: number): void;
  /** Tells the link the present size. */
  announce(): void;
  focus(): void;
  close(): void;
}

/**
 * Shows a terminal. `link` is asked for with each input. `replays` says that the first output was
 * printed earlier: queries in it were answered then, and are not answered again.
 */
export function openTerminal(place: HTMLElement, canType: boolean, replays: boolean, link: () => TerminalLink | null): TerminalView {
  const terminal = new Terminal({
    theme: THEME,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
    fontSize: 13,
    lineHeight: 1.2,
    scrollback: SCROLLBACK,
    cursorBlink: canType,
    cursorInactiveStyle: canType ? "outline" : "none",
    disableStdin: !canType,
    minimumContrastRatio: 4.5,
    linkHandler: { activate: (_, address) => openLink(address) },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  answerQueriesAfterReplay(terminal, replays);
  terminal.attachCustomKeyEventHandler((event) => !isCopy(event, terminal) && !leaves(event, terminal));
  terminal.textarea?.setAttribute("aria-label", "Terminal. Ctrl+Shift+L leaves it.");
  if (canType) {
    terminal.onData((text) => link()?.type(text));
    terminal.onBinary((text) => link()?.typeBinary(text));
    terminal.onResize(({ cols, rows }) => fitting && link()?.resize(cols, rows));
  }
  let fitting = true;
  const adapt = () => place.clientWidth > 0 && fit.fit();
  const observer = new ResizeObserver(adapt);
  observer.observe(place);
  adapt();
  return {
    announce: () => canType && link()?.resize(terminal.cols, terminal.rows),
    write: (bytes, shown) => terminal.write(bytes, shown),
    note: (text) => terminal.write(`\r\n\x1b[2m[${text}]\x1b[0m\r\n`),
    resize(columns, rows) {
      fitting = false;
      terminal.resize(columns, rows);
      fitting = true;
    },
    focus: () => terminal.focus(),
    close() {
      observer.disconnect();
      terminal.dispose();
    },
  };
}

/** A program may name any address: the user sees it before it opens, in a tab of its own. */
function openLink(address: string): void {
  const url = URL.canParse(address) ? new URL(address) : null;
  // As the browser understands it: names of hosts in ASCII, nothing that controls the text.
  if (url && /^https?:$/.test(url.protocol) && confirm(`Open this address?\n\n${url.href.slice(0, 500)}`)) {
    open(url, "_blank", "noopener,noreferrer");
  }
}

/** Ctrl+Shift+C copies, as in other terminals: Ctrl+C is for the program. */
function isCopy(event: KeyboardEvent, terminal: Terminal): boolean {
  if (!(event.ctrlKey && event.shiftKey && event.code === "KeyC" && terminal.hasSelection())) return false;
  event.preventDefault();
  if (event.type === "keydown") void navigator.clipboard?.writeText(terminal.getSelection());
  return true;
}

/** Ctrl+Shift+L leaves the terminal, which gets all other keys, Tab and Esc among them. */
function leaves(event: KeyboardEvent, terminal: Terminal): boolean {
  if (!(event.ctrlKey && event.shiftKey && event.code === "KeyL")) return false;
  event.preventDefault();
  if (event.type === "keydown") terminal.blur();
  return true;
}

function answerQueriesAfterReplay(terminal: Terminal, replays: boolean): void {
  let replaying = replays;
  let timer = 0;
  const wait = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => (replaying = false), REPLAY_SILENCE);
  };
  terminal.onWriteParsed(() => replaying && wait());
  terminal.onKey(() => (replaying = false));
  const ignore = () => replaying;
  for (const id of [{ final: "c" }, { prefix: ">", final: "c" }, { final: "n" }, { prefix: "?", final: "n" }]) {
    terminal.parser.registerCsiHandler(id, ignore);
  }
  terminal.parser.registerCsiHandler({ prefix: "?", intermediates: "$", final: "p" }, ignore);
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, ignore);
  for (const code of [4, 10, 11, 12]) {
    terminal.parser.registerOscHandler(code, (text) => replaying && text.includes("?"));
  }
}
