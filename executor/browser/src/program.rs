//! The action language (`docs/specs/browser.md`, section 2.1).
