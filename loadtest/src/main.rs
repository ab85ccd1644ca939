//! The load tool.

fn main() {}
