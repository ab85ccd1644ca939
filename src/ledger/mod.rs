//! The SQL side: the authority over what was sold.
//!
//! One contract for every database, kept by the conformance suite in [`conformance`]. The guarantees:
//!
//! * **Guard.** At every commit, the units in active orders are at most the sale's quantity.
//! * **Once.** An order id exists once; committing it again changes nothing.
//! * **Epoch.** Nothing admitted under an older epoch can commit after [`Ledger::fence`] returned.
//! * **One winner** between confirm, cancel and expiry; whoever loses is told who won.
//! * **Units come back once**: the row in `stock_return` appears in the transaction that ends the order.
//! * **Feed.** Every change of an order appears in one transaction with a number of the sale that only
//!   grows in commit order, so that a reader that has seen number n never misses a smaller one.
//!
//! Each function is one transaction. Every transaction that changes orders ends by updating the sale's
//! row, or begins by locking it: changes of one sale commit in the order of its change numbers.

pub mod conformance;
mod postgres;
mod sqlite;

use std::time::Duration;

use crate::domain::{BuyerId, NewSale, Order, OrderId, Purchase, Sale, SaleId, Timestamp};

/// The most purchases that one transaction commits.
pub const COMMIT_MAX: usize = 1_000;
/// The most rows that one page of a list holds.
pub const PAGE_MAX: u32 = 500;

/// A ledger in one of the databases.
#[derive(Debug, Clone)]
pub enum Ledger {
    /// In a file of this machine; the default.
    Sqlite(sqlite::Sqlite),
    /// In a PostgreSQL server.
    Postgres(postgres::Postgres),
}

/// Limits of a ledger's connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections that one instance opens at the most.
    pub connections_max: u32,
    /// How long a caller waits for a free connection, or to reach the server.
    pub connect_timeout: Duration,
    /// How long one statement may take, lock waits included.
    pub statement_timeout: Duration,
}

/// What a ledger could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed, and the same call may succeed later: no connection, deadlock, timeout
    /// before the commit.
    #[error("the ledger did not answer: {0}")]
    Transient(#[source] sqlx::Error),
    /// The commit was sent and its answer was lost: the change may have happened. Calls are idempotent:
    /// repeat them.
    #[error("the ledger's answer to a commit was lost: {0}")]
    Unknown(#[source] sqlx::Error),
    /// The database refuses this change however often it is tried.
    #[error("the ledger refuses: {0}")]
    Permanent(#[source] sqlx::Error),
    /// A stored value is outside its type: the schema was changed by hand.
    #[error("the ledger holds an impossible value: {0}")]
    Corrupt(String),
    /// The URL or the server cannot be used at all.
    #[error("{0}")]
    Unusable(String),
}

/// What became of a group of purchases.
#[derive(Debug)]
pub enum Commit {
    /// All of them are in the ledger, in the order given.
    Committed(Vec<Committed>),
    /// None is: the sale has another epoch than the purchases.
    Fenced(Sale),
    /// None is: the epoch is right, but there is no room for all of them. Redis admitted units that the
    /// sale does not have.
    Full(Sale),
}

/// A purchase that is in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The order as it stands now.
    pub order: Order,
    /// Whether this call inserted it.
    pub fresh: bool,
}

/// What became of a confirmation or cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// The order is in the state asked for, by this call or an earlier one.
    Done(Order),
    /// Another final state came first.
    Final(Order),
    /// No such order.
    Missing,
}

/// Units of an ended order on their way back to the sale's stock in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockReturn {
    /// The order that ended.
    pub order: OrderId,
    /// Whose allowance is restored.
    pub buyer: BuyerId,
    /// Units.
    pub quantity: u32,
    /// The sale's epoch when the order ended; a load absorbs the returns of older epochs.
    pub epoch: u64,
}

/// What a load into Redis is made from.
#[derive(Debug)]
pub struct Snapshot {
    /// The sale under the epoch of the load.
    pub sale: Sale,
    /// Every order of the sale, ended ones too.
    pub orders: Vec<SnapshotOrder>,
}

/// An order in a [`Snapshot`].
#[derive(Debug, Clone)]
pub struct SnapshotOrder {
    /// Its id.
    pub id: OrderId,
    /// Whose it is.
    pub buyer: BuyerId,
    /// Units.
    pub quantity: u32,
    /// Whether its units count as taken.
    pub active: bool,
}

/// What became of purchases found in a sealed journal.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// Newly committed.
    pub committed: u64,
    /// Recorded as rejected: no room.
    pub rejected: u64,
    /// In the ledger before.
    pub known: u64,
}

/// What happened to orders, in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Number within the sale, growing in commit order without gaps.
    pub number: u64,
    /// The state that the orders took.
    pub state: crate::domain::OrderState,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The orders that took it, at most [`COMMIT_MAX`].
    pub orders: Vec<OrderId>,
}

/// The ledger's side of the books, read in one transaction by counting orders, not from the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The sale's row, with its counters.
    pub sale: Sale,
    /// Units in reserved orders.
    pub reserved: u64,
    /// Units in confirmed orders.
    pub confirmed: u64,
    /// Units in returns that Redis has not taken back under the current epoch.
    pub returning: u64,
    /// Buyers whose active orders exceed the limit.
    pub buyers_over_limit: u64,
}

/// A page of orders and where the next one begins.
#[derive(Debug, Default)]
pub struct OrderPage {
    /// At most as many as were asked for.
    pub orders: Vec<Order>,
    /// Ask again with this to go on; none at the end.
    pub next: Option<OrderId>,
}

/// Sends a call to the database that this ledger is in.
macro_rules! each {
    ($ledger:expr, $inner:ident => $call:expr) => {
        match $ledger {
            Ledger::Sqlite($inner) => $call,
            Ledger::Postgres($inner) => $call,
        }
    };
}

impl Ledger {
    /// Opens the ledger that `url` names: `sqlite:///path/to/file.db` (created if absent) or
    /// `postgres://user@host/database`.
    ///
    /// # Errors
    /// [`Error::Unusable`] for another scheme or a malformed URL, [`Error::Transient`] when the server
    /// cannot be reached.
    pub async fn connect(url: &str, limits: Limits) -> Result<Self, Error> {
        if url.starts_with("sqlite:") {
            Ok(Self::Sqlite(sqlite::Sqlite::connect(url, limits).await?))
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Ok(Self::Postgres(postgres::Postgres::connect(url, limits).await?))
        } else {
            Err(Error::Unusable("the database URL must begin with sqlite: or postgres:".into()))
        }
    }

    /// Which database this is, for logs and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Brings the schema up to date; harmless twice and from several processes at once.
    ///
    /// # Errors
    /// [`Error::Unusable`] when the schema is of a newer release.
    pub async fn migrate(&self) -> Result<(), Error> {
        each!(self, db => db.migrate().await)
    }

    /// Answers if the database does and the schema is there.
    ///
    /// # Errors
    /// [`Error::Transient`] when it does not answer, [`Error::Unusable`] when it must be migrated first.
    pub async fn ping(&self) -> Result<(), Error> {
        each!(self, db => db.ping().await)
    }

    /// Closes all connections after their current statement.
    pub async fn close(&self) {
        each!(self, db => db.close().await);
    }

    /// Writes down a new sale: scheduled, epoch 0.
    ///
    /// # Errors
    /// See [`Error`]; not idempotent, so after [`Error::Unknown`] look at the list.
    pub async fn create_sale(&self, terms: &NewSale) -> Result<Sale, Error> {
        each!(self, db => db.create_sale(terms).await)
    }

    /// The sale of this number.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale(&self, id: SaleId) -> Result<Option<Sale>, Error> {
        each!(self, db => db.sale(id).await)
    }

    /// Sales by number, after `after`, at most `limit` (and [`PAGE_MAX`]).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sales(&self, after: Option<SaleId>, limit: u32) -> Result<Vec<Sale>, Error> {
        each!(self, db => db.sales(after, limit.min(PAGE_MAX)).await)
    }

    /// Sales that background work must look at: every one that is not drained; by number, as
    /// [`Ledger::sales`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn live_sales(&self, after: Option<SaleId>, limit: u32) -> Result<Vec<Sale>, Error> {
        each!(self, db => db.live_sales(after, limit.min(PAGE_MAX)).await)
    }

    /// Pauses or resumes; repeatable. `control` grows only if something changed. Returns the sale as it
    /// is then; none if there is no such sale.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_paused(&self, id: SaleId, paused: bool) -> Result<Option<Sale>, Error> {
        each!(self, db => db.set_paused(id, paused).await)
    }

    /// Lets the sale sell from now on if `opens_at` is still to come or not set (sets it to the
    /// database's now); repeatable, as [`Ledger::set_paused`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn open_now(&self, id: SaleId) -> Result<Option<Sale>, Error> {
        each!(self, db => db.open_now(id).await)
    }

    /// Ends the sale for good; repeatable, as [`Ledger::set_paused`]. One that was never loaded is
    /// drained at once.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn close_sale(&self, id: SaleId) -> Result<Option<Sale>, Error> {
        each!(self, db => db.close_sale(id).await)
    }

    /// Ends every sale whose `closes_at` has passed by the database's clock; returns how many.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn close_due(&self) -> Result<u64, Error> {
        each!(self, db => db.close_due().await)
    }

    /// Marks a closed sale as drained if it is loaded under `epoch`; true if it is drained now.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_drained(&self, id: SaleId, epoch: u64) -> Result<bool, Error> {
        each!(self, db => db.set_drained(id, epoch).await)
    }

    /// Commits purchases of one sale that Redis admitted under `epoch`: all or none. One whose id is
    /// there already is left as it is and not counted again. At most [`COMMIT_MAX`]; ids may repeat.
    ///
    /// # Errors
    /// [`Error::Permanent`] when at least one of them can never be committed: bisect.
    pub async fn commit(
        &self,
        sale: SaleId,
        epoch: u64,
        purchases: &[Purchase],
    ) -> Result<Commit, Error> {
        each!(self, db => db.commit(sale, epoch, purchases).await)
    }

    /// Records a purchase as rejected unless its id is there already; returns the order as it stands.
    /// With `give_back`, units that Redis deducted under that epoch return (if this call inserted it).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn reject(
        &self,
        sale: SaleId,
        purchase: &Purchase,
        give_back: Option<u64>,
    ) -> Result<Order, Error> {
        each!(self, db => db.reject(sale, purchase, give_back).await)
    }

    /// The order of this id.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn order(&self, id: OrderId) -> Result<Option<Order>, Error> {
        Ok(self.orders(&[id]).await?.pop())
    }

    /// Those orders of the given ids that exist, in no particular order. At most [`COMMIT_MAX`] ids.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn orders(&self, ids: &[OrderId]) -> Result<Vec<Order>, Error> {
        each!(self, db => db.orders(ids).await)
    }

    /// Reserved → confirmed. A hold that is over by the database's clock expires instead, here and now
    /// (then [`Transition::Final`], and a return).
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn confirm(&self, id: OrderId) -> Result<(Transition, Option<StockReturn>), Error> {
        each!(self, db => db.confirm(id).await)
    }

    /// Reserved → cancelled, with the return of its units under the sale's current epoch.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn cancel(&self, id: OrderId) -> Result<(Transition, Option<StockReturn>), Error> {
        each!(self, db => db.cancel(id).await)
    }

    /// Sales with holds that are over by the database's clock, at most `limit`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn expiries_due(&self, limit: u32) -> Result<Vec<SaleId>, Error> {
        each!(self, db => db.expiries_due(limit).await)
    }

    /// Expires the sale's oldest group of holds if it is over: those of one commit, at most
    /// [`COMMIT_MAX`]. None: no group was due.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn expire(&self, sale: SaleId) -> Result<Option<Vec<StockReturn>>, Error> {
        each!(self, db => db.expire(sale).await)
    }

    /// Returns that were not yet marked as done, at most `limit`, oldest first; of loaded sales only,
    /// under their current epoch.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn returns(&self, limit: u32) -> Result<Vec<StockReturn>, Error> {
        each!(self, db => db.returns(limit).await)
    }

    /// Deletes the rows of returns that Redis has taken back.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn returns_done(&self, orders: &[OrderId]) -> Result<(), Error> {
        each!(self, db => db.returns_done(orders).await)
    }

    /// A buyer's orders, those of the newest sale first (descending id), after `after`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        limit: u32,
    ) -> Result<OrderPage, Error> {
        each!(self, db => db.buyer_orders(buyer, after, limit.min(PAGE_MAX)).await)
    }

    /// A sale's orders by ascending id, after `after`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale_orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: u32,
    ) -> Result<OrderPage, Error> {
        each!(self, db => db.sale_orders(sale, after, limit.min(PAGE_MAX)).await)
    }

    /// Changes of the sale's orders with numbers from `from` on, at most `limit`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn changes(&self, sale: SaleId, from: u64, limit: u32) -> Result<Vec<Change>, Error> {
        each!(self, db => db.changes(sale, from, limit.min(PAGE_MAX)).await)
    }

    /// Begins a load: epoch `from` → `from + 1`, stage loading, with a lease by the database's clock. Only
    /// if the sale is not drained and either not loading or its loader's lease is over. Returns whether
    /// this caller is the loader. From then on nothing of `from` can commit.
    ///
    /// # Errors
    /// See [`Error`]; after [`Error::Unknown`] read the sale.
    pub async fn fence(&self, sale: SaleId, from: u64, lease: Duration) -> Result<bool, Error> {
        each!(self, db => db.fence(sale, from, lease).await)
    }

    /// Lengthens the loader's lease; false if it was overtaken.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn renew_load(&self, sale: SaleId, epoch: u64, lease: Duration) -> Result<bool, Error> {
        each!(self, db => db.renew_load(sale, epoch, lease).await)
    }

    /// Takes purchases from a sealed journal of an older epoch while `epoch` is loading: as many as fit, in
    /// order; the others are recorded as rejected. None if this loader was overtaken. At most
    /// [`COMMIT_MAX`].
    ///
    /// # Errors
    /// [`Error::Permanent`] as for [`Ledger::commit`].
    pub async fn adopt(
        &self,
        sale: SaleId,
        epoch: u64,
        purchases: &[Purchase],
    ) -> Result<Option<Adopted>, Error> {
        each!(self, db => db.adopt(sale, epoch, purchases).await)
    }

    /// Reads what is to be loaded under `epoch`, and absorbs (deletes) all returns: the snapshot's free
    /// units include them. None if this loader was overtaken.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn snapshot(&self, sale: SaleId, epoch: u64) -> Result<Option<Snapshot>, Error> {
        each!(self, db => db.snapshot(sale, epoch).await)
    }

    /// Ends a load: stage loaded. False if this loader was overtaken.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn finish_load(&self, sale: SaleId, epoch: u64) -> Result<bool, Error> {
        each!(self, db => db.finish_load(sale, epoch).await)
    }

    /// Counts a sale's orders for the audit.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn count(&self, sale: SaleId) -> Result<Option<Count>, Error> {
        each!(self, db => db.count(sale).await)
    }
}
