//! The SQL side: the authority over what was sold.
//!
//! One contract for every database, kept by the cases in [`conformance`]. The guarantees:
//!
//! * **Guard.** At every commit, the units in active orders are at most the sale's quantity.
//! * **Once.** An order id exists once; committing it again changes nothing.
//! * **Epoch.** Nothing admitted under an older epoch can commit after [`Ledger::fence`] returned.
//! * **One winner** between confirm, cancel and expiry; whoever loses is told who won.
//! * **Units come back once**: the row in `stock_return` appears in the transaction that ends the
//!   order.
//! * **Terms stand while they are sold from.** Quantity and number of segments change before the
//!   first load, or in a load, by its loader; the quantity only from the one that the caller names
//!   ([`StockChange`]), and never below what active orders hold.
//! * **Feed.** Every change of an order appears in one transaction with a number of the sale that
//!   only grows in commit order, so that a reader that has seen number n never misses a smaller
//!   one.
//!
//! Each function is one transaction, and cancel-safe: a future that is dropped changes all or
//! nothing. Every transaction that changes orders updates the sale's row last, or locks it before
//! it changes orders that were there: changes of one sale commit in the order of their numbers.

mod change;
pub mod conformance;
mod ending;
mod error;
mod group;
mod postgres;
mod row;
mod sql;
mod sqlite;
mod value;

use std::time::Duration;

use crate::domain::{BuyerId, NewSale, Order, OrderId, Purchase, Sale, SaleId};

pub use error::Error;
pub use value::{
    Adopted, Change, ChangeAnswer, Commit, Committed, Count, End, Ended, Limits, OrderPage,
    QuantityChange, ScheduledChange, Snapshot, SnapshotOrder, StockChange, StockReturn, Transition,
};

/// The most purchases that one transaction commits.
pub const COMMIT_MAX: usize = 1_000;
/// The most rows that one page of a list holds.
pub const PAGE_MAX: u32 = 1_000;

/// A ledger in one of the databases.
#[derive(Debug, Clone)]
pub enum Ledger {
    /// In a file of this machine; the default.
    Sqlite(sqlite::Sqlite),
    /// In a PostgreSQL server.
    Postgres(postgres::Postgres),
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
    /// [`Error::Unusable`] for another scheme, a malformed URL or a login that is refused,
    /// [`Error::Transient`] when the server cannot be reached.
    pub async fn connect(url: &str, limits: Limits) -> Result<Self, Error> {
        if url.starts_with("sqlite:") {
            Ok(Self::Sqlite(sqlite::Sqlite::connect(url, limits).await?))
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Ok(Self::Postgres(
                postgres::Postgres::connect(url, limits).await?,
            ))
        } else {
            Err(Error::Unusable(
                "the database URL must begin with sqlite: or postgres:".into(),
            ))
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
    /// [`Error::Transient`] when it does not answer, [`Error::Unusable`] when it must be migrated
    /// first.
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

    /// Pauses or resumes; repeatable. `control` grows only if something changed. Returns the sale
    /// as it is then; none if there is no such sale.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_paused(&self, id: SaleId, paused: bool) -> Result<Option<Sale>, Error> {
        each!(self, db => db.set_paused(id, paused).await)
    }

    /// Lets the sale sell from now on if `opens_at` is still to come or not set (sets it to the
    /// database's now); repeatable, as [`Ledger::set_paused`]. A sale that is closed, or whose
    /// `closes_at` has passed, stays as it is.
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

    /// Marks a closed sale as drained if it is loaded under `epoch`; true if it is drained now, by
    /// whomever. Its returns are dropped, and orders that end later leave none: nobody sells from
    /// that stock any more.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_drained(&self, id: SaleId, epoch: u64) -> Result<bool, Error> {
        each!(self, db => db.set_drained(id, epoch).await)
    }

    /// Commits purchases of one sale that Redis admitted under `epoch`: all or none. One whose id
    /// is there already is left as it is and not counted again; if that is so of all of them, they
    /// are answered whatever the epoch. At most [`COMMIT_MAX`]; ids may repeat.
    ///
    /// # Errors
    /// [`Error::Permanent`] when at least one of them can never be committed: bisect.
    /// [`Error::Corrupt`] when there is no such sale; the purchases are not at fault.
    pub async fn commit(
        &self,
        sale: SaleId,
        epoch: u64,
        purchases: &[Purchase],
    ) -> Result<Commit, Error> {
        each!(self, db => db.commit(sale, epoch, purchases).await)
    }

    /// Records a purchase as rejected unless its id is there already; returns the order as it
    /// stands. With `give_back`, units that Redis deducted under that epoch return, if this call
    /// inserted it and the epoch is still the sale's: a later load has counted them as free.
    ///
    /// # Errors
    /// [`Error::Permanent`] when the database refuses even that row; no order is made then.
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

    /// Those orders of the given ids that exist, in no particular order. At most [`COMMIT_MAX`]
    /// ids.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn orders(&self, ids: &[OrderId]) -> Result<Vec<Order>, Error> {
        each!(self, db => db.orders(ids).await)
    }

    /// Ends orders of one sale, in one transaction; what became of each, wish by wish. Of several
    /// wishes for one order the first counts. At most [`COMMIT_MAX`].
    ///
    /// Each such transaction keeps the sale's row until its commit is on disk, and commits of
    /// purchases wait for that row meanwhile. So end many orders together, not one by one.
    ///
    /// * Confirm: reserved → confirmed. A hold that is over by the database's clock expires instead,
    ///   here and now (then [`Transition::Final`], and a return).
    /// * Cancel: reserved → cancelled, with the return of its units under the sale's current epoch.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn end(&self, sale: SaleId, wishes: &[(OrderId, End)]) -> Result<Vec<Ended>, Error> {
        assert!(
            wishes.len() <= COMMIT_MAX,
            "{} orders in one call",
            wishes.len()
        );
        assert!(
            wishes.iter().all(|(id, _)| id.sale() == sale),
            "orders of other sales: {wishes:?}"
        );
        each!(self, db => db.end(sale, wishes).await)
    }

    /// Confirms one order: [`Ledger::end`].
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn confirm(&self, id: OrderId) -> Result<Ended, Error> {
        self.end_one(id, End::Confirm).await
    }

    /// Cancels one order: [`Ledger::end`].
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn cancel(&self, id: OrderId) -> Result<Ended, Error> {
        self.end_one(id, End::Cancel).await
    }

    async fn end_one(&self, id: OrderId, end: End) -> Result<Ended, Error> {
        let ended = self.end(id.sale(), &[(id, end)]).await?.pop();
        Ok(ended.expect("one answer to one wish"))
    }

    /// Sales with holds that are over by the database's clock, at most `limit`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn expiries_due(&self, limit: u32) -> Result<Vec<SaleId>, Error> {
        each!(self, db => db.expiries_due(limit).await)
    }

    /// Expires the sale's oldest holds that are over: those of one or more commits, at most
    /// [`COMMIT_MAX`] orders. None: nothing was due. An empty list: something was, but all its orders
    /// had ended.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn expire(&self, sale: SaleId) -> Result<Option<Vec<StockReturn>>, Error> {
        each!(self, db => db.expire(sale).await)
    }

    /// Returns that were not yet marked as done, at most `limit`, oldest first; of loaded sales
    /// only, under their current epoch.
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

    /// Begins a load: epoch `from` → `from + 1`, stage loading, with a lease by the database's
    /// clock. Only if the sale is not drained and either not loading or its loader's lease is over.
    /// Returns whether this caller is the loader. From then on nothing of `from` can commit.
    ///
    /// # Errors
    /// See [`Error`]; after [`Error::Unknown`] read the sale.
    pub async fn fence(&self, sale: SaleId, from: u64, lease: Duration) -> Result<bool, Error> {
        each!(self, db => db.fence(sale, from, lease).await)
    }

    /// As [`Ledger::fence`], of a sale whose load does not come to its end: only if it is loading and
    /// its loader's lease is over. Whoever has read `loading` calls this one: the load may have ended
    /// since, and a fence would make it vain.
    ///
    /// # Errors
    /// As [`Ledger::fence`].
    pub async fn overtake(&self, sale: SaleId, from: u64, lease: Duration) -> Result<bool, Error> {
        each!(self, db => db.overtake(sale, from, lease).await)
    }

    /// Lengthens the loader's lease; false if it was overtaken.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn renew_load(
        &self,
        sale: SaleId,
        epoch: u64,
        lease: Duration,
    ) -> Result<bool, Error> {
        each!(self, db => db.renew_load(sale, epoch, lease).await)
    }

    /// Takes purchases from a sealed journal of an older epoch while `epoch` is loading: as many as
    /// fit, in order; the others are recorded as rejected. None if this loader was overtaken. At
    /// most [`COMMIT_MAX`]; may be repeated.
    ///
    /// # Errors
    /// As [`Ledger::commit`].
    pub async fn adopt(
        &self,
        sale: SaleId,
        epoch: u64,
        purchases: &[Purchase],
    ) -> Result<Option<Adopted>, Error> {
        each!(self, db => db.adopt(sale, epoch, purchases).await)
    }

    /// Reads what is to be loaded under `epoch`, and absorbs (deletes) all returns: the snapshot's
    /// free units include them. None if this loader was overtaken.
    ///
    /// With a `change`, the terms are changed first, in the same transaction. One that is refused
    /// changes nothing, and the snapshot is of the old terms: the load goes on. The old epoch is
    /// fenced and adopted by then, so what active orders hold counts everything that was sold.
    ///
    /// Load one snapshot only: a second one of the same epoch may count units as free that a return
    /// brings to the first one's stock as well.
    ///
    /// # Errors
    /// See [`Error`]; after [`Error::Unknown`] take another one, of which nothing is loaded yet, and
    /// take it without the change, which is not repeatable: it would find the quantity that it has
    /// made itself, and call that stale. The terms in the second snapshot tell whether the change
    /// has happened, if the caller knows those before it: from its fence on nobody but the loader
    /// changes quantity and segments, unless it is overtaken. [`Error::Permanent`] or [`Error::Corrupt`] for a change beyond
    /// the bounds of a sale.
    pub async fn snapshot(
        &self,
        sale: SaleId,
        epoch: u64,
        change: Option<&StockChange>,
    ) -> Result<Option<Snapshot>, Error> {
        each!(self, db => db.snapshot(sale, epoch, change).await)
    }

    /// Changes the terms of a sale that was never loaded and is not closed: nobody has sold from
    /// them. None if there is no such sale.
    ///
    /// # Errors
    /// See [`Error`]; not repeatable, so after [`Error::Unknown`] read the sale. Bounds as in
    /// [`Ledger::snapshot`].
    pub async fn change_scheduled(
        &self,
        sale: SaleId,
        change: &StockChange,
    ) -> Result<Option<ScheduledChange>, Error> {
        each!(self, db => db.change_scheduled(sale, change).await)
    }

    /// Ends a load: stage loaded, with the number of segments that the terms have. False if this loader was overtaken.
    ///
    /// # Errors
    /// See [`Error`]; idempotent.
    pub async fn finish_load(&self, sale: SaleId, epoch: u64) -> Result<bool, Error> {
        each!(self, db => db.finish_load(sale, epoch).await)
    }

    /// Those of one sale under its current epoch, at most `limit`, oldest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn sale_returns(&self, sale: SaleId, limit: u32) -> Result<Vec<StockReturn>, Error> {
        each!(self, db => db.sale_returns(sale, limit).await)
    }

    /// Units on their way back to Redis under the sale's current epoch, those included that Redis has
    /// taken back a moment ago.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn returning(&self, sale: SaleId) -> Result<u64, Error> {
        each!(self, db => db.returning(sale).await)
    }

    /// Counts a sale's orders for the audit.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn count(&self, sale: SaleId) -> Result<Option<Count>, Error> {
        each!(self, db => db.count(sale).await)
    }
}
