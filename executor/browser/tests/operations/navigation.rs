//! Navigation.
