// Builds the console into dist/. With --check it builds into memory and compares, so that a
// forgotten build is found. Names have a hash of the content, and index.html has no other scripts.
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(fileURLToPath(import.meta.url));
const dist = join(root, "dist");

/** Changes the text of a package, and fails if an update of the package made that impossible. */
function edit(text, from, to) {
  const parts = text.split(from);
  if (parts.length === 1) throw new Error(`the package no longer contains ${from}`);
  return parts.join(to);
}

// The content security policy forbids style elements and style attributes. xterm.js makes both; it
// gets an element that applies its text as a constructed style sheet (src/style_rules.ts), and
// properties in place of attributes.
const withoutInlineStyles = {
  name: "without-inline-styles",
  setup(context) {
    context.onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, ({ path }) => {
      let text = readFileSync(path, "utf8");
      text = edit(text, 'createElement("style")', 'createElement("style-rules")');
      text = text.replace(/([\w$]+)\.setAttribute\("style",(`[^`]*`)\)/g, "$1.style.cssText=$2");
      if (text.includes('setAttribute("style"')) throw new Error("xterm.js sets style attributes");
      return { contents: text, loader: "js" };
    });
  },
};

async function bundle() {
  const result = await build({
    absWorkingDir: root,
    entryPoints: { console: "src/main.tsx", page: "src/style.css" },
    bundle: true,
    format: "esm",
    splitting: true,
    minify: true,
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    legalComments: "none",
    outdir: dist,
    metafile: true,
    write: false,
    logLevel: "warning",
    plugins: [withoutInlineStyles],
  });
  const files = new Map(result.outputFiles.map((file) => [basename(file.path), file.text]));
  const named = (prefix, suffix) =>
    [...files.keys()].find((name) => name.startsWith(prefix) && name.endsWith(suffix));
  const page = readFileSync(join(root, "src/index.html"), "utf8")
    .replace("SCRIPT", named("console-", ".js"))
    .replace("STYLE", named("page-", ".css"));
  files.set("index.html", page);
  files.set("icon.svg", readFileSync(join(root, "src/icon.svg"), "utf8"));
  files.set("licenses.txt", licenses(result.metafile));
  return files;
}

/** License texts of the packages that are part of the output. */
function licenses(metafile) {
  const packages = Object.keys(metafile.inputs).flatMap((path) => {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    return found ? [found[1]] : [];
  });
  const text = (name) => {
    const folder = join(root, "node_modules", name);
    const file = readdirSync(folder).find((file) => /^licen[sc]e/i.test(file));
    if (!file) throw new Error(`${name} has no license file`);
    return `${name}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  };
  return [...new Set(packages)].sort().map(text).join("\n----\n\n");
}

const files = await bundle();
if (process.argv.includes("--check")) {
  const found = readdirSync(dist).sort();
  const differs = (name) => !files.has(name) || readFileSync(join(dist, name), "utf8") !== files.get(name);
  const stale = [...files.keys()].filter((name) => !found.includes(name)).concat(found.filter(differs));
  if (stale.length > 0) {
    console.error(`console/dist is not what \`make console\` builds: ${[...new Set(stale)].sort().join(", ")}`);
    process.exit(1);
  }
} else {
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist);
  for (const [name, text] of files) writeFileSync(join(dist, name), text);
  const bytes = [...files.values()].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  console.log(`console/dist: ${files.size} files, ${bytes} bytes`);
}
