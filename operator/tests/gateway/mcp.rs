//! The Model Context Protocol at `/mcp` (`docs/mcp.md`).

mod tools;
mod transport;
