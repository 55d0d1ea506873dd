// CodeMirror, in a chunk of its own. It is in a shadow tree, where it uses constructed style sheets:
// the content security policy forbids style elements.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  HighlightStyle,
  type StreamParser,
  StreamLanguage,
  bracketMatching,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension } from "@codemirror/state";
import {
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { css } from "@codemirror/legacy-modes/mode/css";
import { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
import { go } from "@codemirror/legacy-modes/mode/go";
import { javascript, json, typescript } from "@codemirror/legacy-modes/mode/javascript";
import { python } from "@codemirror/legacy-modes/mode/python";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { xml } from "@codemirror/legacy-modes/mode/xml";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";

const LANGUAGES: [RegExp, StreamParser<unknown>][] = [
  [/\.(py|pyi)$/, python],
  [/\.(js|mjs|cjs|jsx)$/, javascript],
  [/\.(ts|mts|cts|tsx)$/, typescript],
  [/\.(json|ipynb)$/, json],
  [/\.ya?ml$/, yaml],
  [/\.(sh|bash|zsh)$|^\.(bashrc|profile|env)$/, shell],
  [/\.toml$|^Cargo\.lock$/, toml],
  [/\.rs$/, rust],
  [/\.go$/, go],
  [/\.(xml|html|svg)$/, xml],
  [/\.css$/, css],
  [/^Dockerfile|\.dockerfile$/i, dockerFile],
];

// The colors are variables of the page, which differ in light and dark.
const COLORS = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.comment, tags.meta], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.function(tags.variableName), tags.definition(tags.variableName), tags.propertyName], color: "var(--code-name)" },
  { tag: [tags.typeName, tags.className, tags.tagName], color: "var(--code-type)" },
  { tag: tags.heading, fontWeight: "600" },
  { tag: tags.link, textDecoration: "underline" },
]);

const THEME = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "transparent", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--accent)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "var(--selection)",
  },
  ".cm-panels": { backgroundColor: "var(--surface)", color: "var(--text)", borderTop: "1px solid var(--line)" },
  ".cm-textfield, .cm-button": {
    background: "var(--page)",
    color: "var(--text)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
  },
});

/** Longest document with colors, in characters. */
const MAX_COLORED = 512 << 10;

export function openEditor(
  place: HTMLElement,
  name: string,
  text: string,
  changed: () => void,
  save: () => void,
): { text(): string; focus(): void; close(): void } {
  const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
  const separator = text.includes("\r\n") && !/(^|[^\r])\n/.test(text) ? "\r\n" : "\n";
  const language = text.length > MAX_COLORED ? undefined : LANGUAGES.find(([pattern]) => pattern.test(name))?.[1];
  const extensions: Extension[] = [
    lineNumbers(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    highlightSpecialChars(),
    highlightSelectionMatches(),
    drawSelection(),
    history(),
    indentOnInput(),
    bracketMatching(),
    search(),
    indentUnit.of(/\t/.test(text) ? "\t" : "    "),
    // Other line ends are part of the text, so that it is saved as it was.
    EditorState.lineSeparator.of(separator),
    syntaxHighlighting(COLORS),
    THEME,
    keymap.of([{ key: "Mod-s", run: () => (save(), true) }, ...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
    // After the others, for which Esc closes a panel or ends a selection. Tab indents, so a key has to leave the editor.
    keymap.of([{ key: "Escape", run: ({ contentDOM }) => (contentDOM.blur(), true) }]),
    EditorView.contentAttributes.of({ "aria-label": name, spellcheck: "false" }),
    ...(language ? [StreamLanguage.define(language)] : []),
  ];
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [...extensions, EditorView.updateListener.of((update) => update.docChanged && changed())],
    }),
  });
  return { text: () => view.state.sliceDoc(), focus: () => view.focus(), close: () => view.destroy() };
}
