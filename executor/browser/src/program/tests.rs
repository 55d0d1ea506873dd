mod binding;
mod parser;
mod properties;
