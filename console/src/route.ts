// Routes in the fragment of the address, so that the page works below any path prefix:
// `#/sandboxes`, `#/sandboxes/ID/files/workspace/a.py`.

import { Store } from "./store";

export interface Route {
  page: string;
  /** Runtime id, if the page has one. */
  id: string;
  tab: string;
  /** Rest of the route: path of a file, or id of a terminal. */
  rest: string;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function parse(hash: string): Route {
  const [page, id, tab, ...rest] = hash.replace(/^#\/?/, "").split("/").map(decode);
  return { page: page || "sandboxes", id: id ?? "", tab: tab ?? "", rest: rest.join("/") };
}

export const route = new Store(parse(location.hash));
addEventListener("hashchange", () => route.set(parse(location.hash)));

/** Link to a page; `parts` may contain any characters, slashes only in the last. */
export function link(...parts: string[]): string {
  return "#/" + parts.map((part) => part.split("/").map(encodeURIComponent).join("/")).join("/");
}

export function go(...parts: string[]): void {
  location.hash = link(...parts);
}
