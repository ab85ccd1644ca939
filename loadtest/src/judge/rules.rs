//! The rules, one function each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use time::Duration;
use uuid::Uuid;

use super::{Evidence, Finding, Violation};
use crate::api::{AuditVerdict, Order, OrderState};
use crate::outcome::Outcome;
use crate::worker::Purchase;

/// An expired hold may wait this long for somebody to end it.
const EXPIRY_GRACE: Duration = Duration::seconds(10);
/// Refusals that say that there is not enough stock.
const STOCK_REASONS: [&str; 3] = ["sold-out", "insufficient", "held"];

/// The evidence, sorted for looking up, and what was found in it.
pub(super) struct Case<'a> {
    evidence: &'a Evidence<'a>,
    orders: HashMap<Uuid, &'a Order>,
    findings: Vec<Finding>,
}

impl<'a> Case<'a> {
    pub(super) fn new(evidence: &'a Evidence<'a>) -> Self {
        let mut case = Self {
            evidence,
            orders: HashMap::new(),
            findings: Vec::new(),
        };
        for order in &evidence.books.orders {
            if case.orders.insert(order.id, order).is_some() {
                case.find(
                    Violation::Duplicate,
                    format!("order {} is listed twice", order.id),
                );
            }
        }
        case
    }

    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|finding| finding.violation);
        self.findings
    }

    fn find(&mut self, violation: Violation, detail: String) {
        self.findings.push(Finding { violation, detail });
    }

    /// Units in orders of one state.
    fn units(&self, state: OrderState) -> i64 {
        let orders = self.orders.values().filter(|order| order.state == state);
        orders.map(|order| i64::from(order.quantity)).sum()
    }

    /// Units in active orders.
    pub(super) fn sold(&self) -> i64 {
        self.units(OrderState::Reserved) + self.units(OrderState::Confirmed)
    }

    /// Every accepting answer has its own order, and it is what was asked for.
    pub(super) fn check_promises(&mut self) {
        let mut promised = BTreeSet::new();
        for purchase in self.evidence.purchases {
            let Some(id) = purchase.outcome.order() else {
                continue;
            };
            let lost = match purchase.outcome {
                Outcome::Admitted { .. } => Violation::LostAdmitted,
                _ => Violation::Lost,
            };
            let buyer = &purchase.wish.buyer;
            if purchase.orders.len() > 1 {
                let detail = format!("{buyer} was told of {:?} for one purchase", purchase.orders);
                self.find(Violation::Duplicate, detail);
            }
            if !promised.insert(id) {
                self.find(lost, format!("order {id} was promised to two purchases"));
            }
            match self.orders.get(&id) {
                None => self.find(
                    lost,
                    format!("{buyer} was told of order {id}; there is none"),
                ),
                Some(order) if order.state == OrderState::Rejected => {
                    self.find(
                        lost,
                        format!("{buyer} was told of order {id}; it was rejected"),
                    );
                }
                Some(order) => {
                    if let Some(difference) = self.difference(purchase, order) {
                        self.find(Violation::Altered, difference);
                    }
                }
            }
        }
    }

    fn difference(&self, purchase: &Purchase, order: &Order) -> Option<String> {
        let sale = &self.evidence.books.sale;
        let wish = &purchase.wish;
        let asked = (sale.id, &wish.buyer, wish.quantity);
        let got = (order.sale, &order.buyer, order.quantity);
        let price = sale.price_minor * u64::from(wish.quantity);
        if asked != got {
            return Some(format!("order {}: asked {asked:?}, got {got:?}", order.id));
        }
        (order.amount_minor != price).then(|| {
            format!(
                "order {} costs {}, not {price}",
                order.id, order.amount_minor
            )
        })
    }

    /// Every order was promised to somebody, or is that of a purchase whose outcome is unknown.
    pub(super) fn check_unclaimed_orders(&mut self) {
        let claimed: BTreeSet<Uuid> = self
            .evidence
            .purchases
            .iter()
            .flat_map(|purchase| &purchase.orders)
            .copied()
            .collect();
        let mut by_buyer: BTreeMap<&str, Vec<&Purchase>> = BTreeMap::new();
        for purchase in self.evidence.purchases {
            by_buyer
                .entry(&purchase.wish.buyer)
                .or_default()
                .push(purchase);
        }
        let orders = &self.evidence.books.orders;
        // A rejected order takes nothing and promises nothing.
        let unclaimed = orders
            .iter()
            .filter(|order| !claimed.contains(&order.id) && order.state != OrderState::Rejected);
        for order in unclaimed {
            let purchases = by_buyer.entry(&order.buyer).or_default();
            let explains = |purchase: &&Purchase| {
                let unknown = matches!(purchase.outcome, Outcome::Unknown { .. });
                unknown && purchase.wish.quantity == order.quantity
            };
            if let Some(index) = purchases.iter().position(explains) {
                // One purchase explains one order.
                purchases.swap_remove(index);
                continue;
            }
            let accepted = purchases
                .iter()
                .any(|purchase| purchase.outcome.order().is_some());
            let denied = purchases
                .iter()
                .find(|purchase| purchase.outcome.order().is_none());
            let (violation, told) = match denied {
                Some(purchase) => (Violation::Phantom, purchase.outcome.to_string()),
                None if accepted => (Violation::Duplicate, "of another order".to_owned()),
                None => (
                    Violation::Phantom,
                    "nothing, and asked for nothing".to_owned(),
                ),
            };
            let detail = format!("{} has order {}; was told {told}", order.buyer, order.id);
            self.find(violation, detail);
        }
    }

    /// An accepted purchase, sent once more, names the same order.
    pub(super) fn check_replays(&mut self) {
        let purchases = self.evidence.purchases.iter();
        let first: HashMap<&str, Option<Uuid>> = purchases
            .map(|purchase| (purchase.wish.key.as_str(), purchase.outcome.order()))
            .collect();
        for replay in self.evidence.replays {
            let wish = &replay.wish;
            let before = first.get(wish.key.as_str()).copied().flatten();
            match (before, replay.outcome.order()) {
                (Some(before), Some(after)) if before != after => {
                    let detail = format!("{} was told of {before}, then {after}", wish.buyer);
                    self.find(Violation::Duplicate, detail);
                }
                (Some(before), None) if replay.outcome.is_final() => {
                    let outcome = &replay.outcome;
                    let detail = format!("{} was told of {before}, then {outcome}", wish.buyer);
                    self.find(Violation::Contradiction, detail);
                }
                _ => {}
            }
        }
    }

    /// Nobody has more than one may have.
    pub(super) fn check_limit(&mut self) {
        let limit = self.evidence.books.sale.per_buyer_limit;
        for (buyer, units) in self.units_by_buyer() {
            if units > limit {
                let detail = format!("{buyer} has {units} units, more than {limit}");
                self.find(Violation::LimitExceeded, detail);
            }
        }
    }

    fn units_by_buyer(&self) -> BTreeMap<&'a str, u32> {
        let mut units = BTreeMap::new();
        let orders = self.evidence.books.orders.iter();
        for order in orders.filter(|order| order.state.is_active()) {
            *units.entry(order.buyer.as_str()).or_default() += order.quantity;
        }
        units
    }

    /// The audit's terms add up, to the quantity and to what the orders say.
    pub(super) fn check_books(&mut self) {
        let books = self.evidence.books;
        let terms = &books.audit.terms;
        if books.audit.verdict == AuditVerdict::Unbalanced {
            let detail = format!("the audit says so: {}", books.audit.findings.join("; "));
            self.find(Violation::Unbalanced, detail);
        }
        if terms.sum() != terms.quantity || terms.quantity != i64::from(books.sale.quantity) {
            let detail = format!("{} units on sale; {terms}", books.sale.quantity);
            self.find(Violation::Unbalanced, detail);
        }
        let confirmed = self.units(OrderState::Confirmed);
        if confirmed != terms.confirmed {
            let detail = format!(
                "orders say {confirmed} confirmed, books {}",
                terms.confirmed
            );
            self.find(Violation::Unbalanced, detail);
        }
        let held = self.units(OrderState::Reserved);
        if held != terms.held {
            let detail = format!("orders say {held} held, books {}", terms.held);
            self.find(Violation::HoldLeaked, detail);
        }
        for order in books
            .orders
            .iter()
            .filter(|order| order.state == OrderState::Reserved)
        {
            if order
                .hold_expires_at
                .is_some_and(|at| at + EXPIRY_GRACE < books.sale.server_time)
            {
                let detail = format!("the hold of order {} has expired, nobody ends it", order.id);
                self.find(Violation::HoldLeaked, detail);
            }
        }
    }

    /// Units in active orders beyond the quantity; none may be.
    pub(super) fn check_oversold(&mut self) -> i64 {
        let quantity = i64::from(self.evidence.books.sale.quantity);
        let oversold = (self.sold() - quantity)
            .max(self.evidence.books.audit.oversold)
            .max(0);
        if oversold > 0 {
            let detail = format!("{} sold of {quantity}, {oversold} too many", self.sold());
            self.find(Violation::Oversold, detail);
        }
        oversold
    }

    /// Free units that buyers who were refused for good would have taken; none may be.
    ///
    /// Units that came back were not there when most were refused. So if any did, only those count
    /// who were told `sold-out`, which says that nothing will ever come back.
    pub(super) fn check_undersold(&mut self) -> i64 {
        let books = self.evidence.books;
        let available = books.audit.terms.available;
        let returned = books.orders.iter().any(|order| !order.state.is_active());
        let reasons = if returned {
            &STOCK_REASONS[..1]
        } else {
            &STOCK_REASONS[..]
        };
        let mut quantities = Vec::new();
        for purchase in self.evidence.purchases {
            if let Outcome::Refused { code } = &purchase.outcome
                && reasons.contains(&code.as_str())
            {
                quantities.push(i64::from(purchase.wish.quantity));
            }
        }
        quantities.sort_unstable();
        let mut undersold = 0;
        for quantity in quantities {
            if undersold + quantity <= available {
                undersold += quantity;
            }
        }
        if undersold > 0 {
            let detail = format!("{available} units are free; refused buyers wanted {undersold}");
            self.find(Violation::Undersold, detail);
        }
        undersold
    }

    /// The reason of a refusal is true, where that can still be seen at the end.
    pub(super) fn check_refusals(&mut self) {
        let sale = &self.evidence.books.sale;
        let confirmed = self.units(OrderState::Confirmed);
        let units = self.units_by_buyer();
        // Their units may have been counted when the limit was reached, and be gone since.
        let orders = self.evidence.books.orders.iter();
        let returned = orders.filter(|order| !order.state.is_active());
        let mut excused: BTreeSet<&str> = returned.map(|order| order.buyer.as_str()).collect();
        let unsure = self
            .evidence
            .purchases
            .iter()
            .filter(|one| !one.outcome.is_final());
        excused.extend(unsure.map(|purchase| purchase.wish.buyer.as_str()));
        let mut false_sold_out = 0;
        for purchase in self.evidence.purchases {
            let Outcome::Refused { code } = &purchase.outcome else {
                continue;
            };
            let wish = &purchase.wish;
            let buyer = wish.buyer.as_str();
            match code.as_str() {
                "sold-out" if confirmed < i64::from(sale.quantity) => false_sold_out += 1,
                "limit-reached" if !excused.contains(buyer) => {
                    let has = units.get(buyer).copied().unwrap_or_default();
                    if has + wish.quantity <= sale.per_buyer_limit {
                        let limit = sale.per_buyer_limit;
                        let detail = format!("{buyer} has {has} of {limit}: limit-reached");
                        self.find(Violation::FalseRefusal, detail);
                    }
                }
                "key-reused" => {
                    let detail = format!("{buyer} used a new key and was told key-reused");
                    self.find(Violation::FalseRefusal, detail);
                }
                _ => {}
            }
        }
        if false_sold_out > 0 {
            let quantity = sale.quantity;
            let detail =
                format!("{false_sold_out} buyers: sold-out at {confirmed} confirmed of {quantity}");
            self.find(Violation::FalseRefusal, detail);
        }
    }
}
