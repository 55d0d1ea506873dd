//! Operations on pages of all kinds. Most cases are data: a page, a program, and what happens.

mod case_file;
mod cases;
mod navigation;
mod tab_list;
