//! Redis loses its data, or part of it, or comes back older, in the middle of a sale: the sale
//! fences what was begun, loads itself again from the ledger and goes on, and nobody lays a hand on
//! it.

mod data;
mod drowsy;
mod loaders;
mod processes;
mod promises;
mod scene;
