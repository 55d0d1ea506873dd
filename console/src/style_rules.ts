// `<style-rules>`: takes CSS as text, as `<style>` does, and applies it as a constructed style sheet,
// which the content security policy allows. The build makes xterm.js use it.

class StyleRules extends HTMLElement {
  private readonly sheet = new CSSStyleSheet();

  override set textContent(text: string) {
    this.sheet.replaceSync(text);
  }

  connectedCallback(): void {
    document.adoptedStyleSheets.push(this.sheet);
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== this.sheet);
  }
}

customElements.define("style-rules", StyleRules);
