//! State of a page as Chromium reports it, reduced to the fields that observations need.

pub mod ax;
pub mod dom;
pub mod element;
pub mod marks;
pub mod table;

#[cfg(test)]
mod tests;
