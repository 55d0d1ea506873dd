// The files of a sandbox: a directory, and one file in an editor.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Runtime } from "./api";
import { describe } from "./errors";
import { Editor } from "./file_editor";
import { visible } from "./format";
import { go, link, route } from "./route";
import type { SandboxApi } from "./sandbox_api";
import { useStore } from "./store";
import { Empty, Problem, useAnswer } from "./ui";
import { Transfers, useTransfers } from "./transfers";

/** Path of the route, absolute; directories end with a slash. */
function usePath(runtime: Runtime): string {
  const rest = useStore(route).rest;
  const home = runtime.working_dir?.startsWith("/") ? runtime.working_dir : "/workspace";
  return rest ? `/${rest}` : `${home.replace(/\/$/, "")}/`;
}

export function Files({ runtime, sandbox }: { runtime: Runtime; sandbox: SandboxApi }) {
  const path = usePath(runtime);
  const transfers = useTransfers();
  const isDirectory = path.endsWith("/");
  const directory = path.slice(0, path.lastIndexOf("/") + 1);
  const { value: names, error, reload } = useAnswer(() => sandbox.list(directory), `${sandbox.id} ${sandbox.key} ${directory}`);
  return (
    <div class={`files ${isDirectory ? "browsing" : "editing"}`}>
      <Places id={sandbox.id} path={path} />
      <Directory {...{ sandbox, directory, path, names, error, reload, transfers }} />
      {isDirectory ? (
        <div class="file-none muted">Choose a file, or drop files here to upload them.</div>
      ) : (
        <Editor key={path} sandbox={sandbox} path={path} saved={reload} download={() => transfers.download(sandbox, path, false)} />
      )}
      <Transfers list={transfers.list} dismiss={transfers.dismiss} />
    </div>
  );
}

/** The path as links to its directories. */
function Places({ id, path }: { id: string; path: string }) {
  const parts = path.split("/").filter(Boolean);
  return (
    <nav class="places" aria-label="Path">
      <a href={link("sandboxes", id, "files", "/")}>/</a>
      {parts.map((part, at) => {
        const last = at === parts.length - 1;
        const target = parts.slice(0, at + 1).join("/") + (last && !path.endsWith("/") ? "" : "/");
        return (
          <span key={target}>
            <a href={link("sandboxes", id, "files", target)} aria-current={last ? "page" : undefined}>
              {visible(part)}
            </a>
            {last ? "" : " / "}
          </span>
        );
      })}
    </nav>
  );
}

interface DirectoryProps {
  sandbox: SandboxApi;
  directory: string;
  path: string;
  names: string[] | null;
  error: string;
  reload(): void;
  transfers: ReturnType<typeof useTransfers>;
}

/** Rows that are shown at once; a directory may have thousands. */
const SHOWN = 500;

function Directory({ sandbox, directory, path, names, error, reload, transfers }: DirectoryProps) {
  const chooser = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [shown, setShown] = useState(SHOWN);
  const [filter, setFilter] = useState("");
  useEffect(() => (setShown(SHOWN), setFilter("")), [directory]);
  const id = sandbox.id;
  const send = (list: FileList | null) => {
    for (const file of Array.from(list ?? [])) void transfers.upload(sandbox, directory + file.name, file).then(reload);
  };
  const create = () => {
    const name = prompt(`Name of the new file in ${directory}`)?.trim();
    if (!name) return;
    sandbox.write(directory + name, new Blob()).then(
      () => (reload(), go("sandboxes", id, "files", (directory + name).slice(1))),
      (failed) => alert(describe(failed)),
    );
  };
  const word = filter.toLowerCase();
  const found = names?.filter((name) => name.toLowerCase().includes(word));
  return (
    <section
      class={`directory ${over ? "over" : ""}`}
      aria-label={directory}
      onDragOver={(event) => (event.preventDefault(), setOver(true))}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        send(event.dataTransfer?.files ?? null);
      }}
    >
      <div class="tools">
        <button type="button" class="small" onClick={() => chooser.current?.click()}>
          Upload
        </button>
        <button type="button" class="small" onClick={create}>
          New file
        </button>
        <button type="button" class="small" onClick={() => transfers.download(sandbox, directory, true)}>
          Download
        </button>
        <button type="button" class="small quiet" aria-label="Read the directory again" title="Read again" onClick={reload}>
          ↻
        </button>
        <input
          ref={chooser}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            send(event.currentTarget.files);
            // So that the same file can be chosen again.
            event.currentTarget.value = "";
          }}
        />
      </div>
      {names && names.length > 20 && (
        <input
          type="search"
          aria-label="Filter names"
          placeholder="Filter names"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      )}
      <Problem text={error} />
      {found && (
        <ul class="names">
          {directory !== "/" && (
            <li>
              <a href={link("sandboxes", id, "files", parent(directory))}>..</a>
            </li>
          )}
          {found.slice(0, shown).map((name) => (
            <li key={name}>
              <a
                class={name.endsWith("/") ? "folder" : ""}
                href={link("sandboxes", id, "files", (directory + name).slice(1))}
                aria-current={directory + name === path ? "page" : undefined}
              >
                {visible(name)}
              </a>
            </li>
          ))}
        </ul>
      )}
      {found && found.length > shown && (
        <button type="button" class="small" onClick={() => setShown(shown + SHOWN)}>
          {found.length - shown} more
        </button>
      )}
      {names?.length === 0 && <Empty title="Empty">There is nothing in this directory, or it cannot be read.</Empty>}
    </section>
  );
}

function parent(directory: string): string {
  const above = directory.replace(/[^/]+\/$/, "");
  return above === "/" ? "/" : above.slice(1);
}
