// One file: text in an editor, a picture, or words for others.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { CallError, describe } from "./errors";
import { bytes, visible } from "./format";
import type { SandboxApi } from "./sandbox_api";
import { Problem, useTask } from "./ui";

const PICTURES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  bmp: "image/bmp",
};

interface Props {
  sandbox: SandboxApi;
  path: string;
  saved(): void;
  download(): void;
}

type Content = { kind: "text"; text: string } | { kind: "picture"; url: string } | { kind: "other"; words: string };

/** Equal texts have equal bytes: the editor keeps line ends, and a file that is not UTF-8 is not text. */
function classify(path: string, content: Uint8Array): Content {
  const media = PICTURES[path.slice(path.lastIndexOf(".") + 1).toLowerCase()];
  if (media) return { kind: "picture", url: `data:${media};base64,${base64(content)}` };
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    if (!text.includes("\0")) return { kind: "text", text };
  } catch {
    // Not UTF-8.
  }
  return { kind: "other", words: `This is not a text file (${bytes(content.length)}).` };
}

function base64(content: Uint8Array): string {
  let text = "";
  for (let at = 0; at < content.length; at += 8192) text += String.fromCharCode(...content.subarray(at, at + 8192));
  return btoa(text);
}

async function load(sandbox: SandboxApi, path: string): Promise<Content> {
  try {
    return classify(path, await sandbox.read(path));
  } catch (error) {
    if (error instanceof CallError && error.status === 413) return { kind: "other", words: "This file is too large to show here." };
    throw error;
  }
}

export function Editor({ sandbox, path, saved, download }: Props) {
  const [content, setContent] = useState<Content | null>(null);
  const [error, setError] = useState("");
  const read = () => {
    setError("");
    load(sandbox, path).then(setContent, (failed) => setError(describe(failed)));
  };
  useEffect(read, [sandbox, path]);
  const name = path.slice(path.lastIndexOf("/") + 1);
  return (
    <section class="editor" aria-label={name}>
      {error && (
        <Problem text={error}>
          <button type="button" onClick={read}>
            Try again
          </button>
        </Problem>
      )}
      {!content && !error && <div class="skeleton" aria-label="Loading" />}
      {content?.kind === "text" && <TextFile key={content.text} {...{ sandbox, path, saved, download, name }} text={content.text} reread={read} />}
      {content && content.kind !== "text" && (
        <>
          <FileBar name={name}>
            <button type="button" class="small" onClick={download}>
              Download
            </button>
          </FileBar>
          {content.kind === "picture" ? <img class="picture" src={content.url} alt={name} /> : <p class="muted pad">{content.words}</p>}
        </>
      )}
    </section>
  );
}

function FileBar({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="tools file-bar">
      <span class="file-name" title={name}>
        {visible(name)}
      </span>
      {children}
    </div>
  );
}

function TextFile(props: Props & { name: string; text: string; reread(): void }) {
  const { sandbox, path, text, name } = props;
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<{ text(): string; focus(): void; close(): void } | null>(null);
  /** Text of the file as this page last read or wrote it. */
  const base = useRef(text);
  const [dirty, setDirty] = useState(false);
  const [conflict, setConflict] = useState(false);
  const { busy, error, run } = useTask();

  const save = (force: boolean) =>
    run(async () => {
      const written = editor.current?.text();
      if (written === undefined) return;
      const present = force ? null : await load(sandbox, path);
      if (present && !(present.kind === "text" && present.text === base.current)) {
        setConflict(true);
        return;
      }
      await sandbox.write(path, new Blob([written]));
      base.current = written;
      setConflict(false);
      setDirty(editor.current?.text() !== written);
      props.saved();
    });
  const saveNow = useRef(save);
  saveNow.current = save;

  useEffect(() => {
    let closed = false;
    void import("./code_editor").then(({ openEditor }) => {
      if (closed || !place.current) return;
      editor.current = openEditor(place.current, name, text, () => setDirty(true), () => void saveNow.current(false));
    });
    return () => {
      closed = true;
      editor.current?.close();
    };
  }, []);
  useEffect(() => {
    if (!dirty) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [dirty]);

  return (
    <>
      <FileBar name={name}>
        {dirty && <span class="muted">changed</span>}
        <button type="button" class="small primary" disabled={busy || !dirty} onClick={() => void save(false)} title="Ctrl+S">
          Save
        </button>
        <button type="button" class="small" onClick={props.download}>
          Download
        </button>
      </FileBar>
      <Problem text={error} />
      {conflict && (
        <Problem text="The file has changed in the sandbox since it was opened.">
          <button type="button" onClick={() => void save(true)}>
            Replace it
          </button>
          <button type="button" onClick={props.reread}>
            Load it, without my changes
          </button>
        </Problem>
      )}
      <div class="code" ref={place} />
    </>
  );
}
