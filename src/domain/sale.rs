//! A sale: quantity, window, limits, and where it stands.

use super::{Invalid, SaleId, Timestamp};

/// The longest title or product name, in bytes.
pub const TITLE_LENGTH_MAX: usize = 200;
/// Letters of a currency code (ISO 4217).
pub const CURRENCY_LENGTH: usize = 3;
/// The largest quantity: one purchase or sale. Sums of it stay exact in Lua's doubles.
pub const QUANTITY_MAX: u32 = 1_000_000_000;
/// The dearest unit, in minor units: times [`QUANTITY_MAX`] it still fits 63 bits.
pub const PRICE_MINOR_MAX: i64 = 1_000_000_000;
/// The longest hold: thirty days.
pub const HOLD_SECONDS_MAX: u32 = 30 * 24 * 3600;
/// The most segments that a sale may have.
pub const SEGMENTS_MAX: u32 = 256;

/// How a sale deducts stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Segments, vectorised scripts, a journal and group commit: the recommended way.
    Segmented,
}

impl Strategy {
    /// The name used in the API and in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Segmented => "segmented",
        }
    }

    /// The strategy of this name.
    ///
    /// # Errors
    /// [`Invalid`] with the list of those that exist.
    pub fn parse(word: &str) -> Result<Self, Invalid> {
        match word {
            "segmented" => Ok(Self::Segmented),
            _ => Err(Invalid::new(format!(
                "strategy {word:?} is unknown; there is: segmented"
            ))),
        }
    }
}

/// How far a sale's stock has come. Window, pause and close are not stages: a sale is loaded the same
/// way whether it may sell or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Created; nothing of it is in Redis.
    Scheduled,
    /// Someone is writing its stock into Redis under a new epoch.
    Loading,
    /// Its stock is in Redis under the current epoch.
    Loaded,
}

impl Stage {
    /// The word used in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
        }
    }

    /// The stage of this name.
    ///
    /// # Errors
    /// [`Invalid`] for any other word.
    pub fn parse(word: &str) -> Result<Self, Invalid> {
        [Self::Scheduled, Self::Loading, Self::Loaded]
            .into_iter()
            .find(|stage| stage.as_str() == word)
            .ok_or_else(|| Invalid::new(format!("no stage of a sale is called {word:?}")))
    }
}

/// What an admin gives to create a sale. Only [`NewSale::checked`] values reach the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSale {
    /// The product's name or number in the shop (SKU).
    pub product: String,
    /// What buyers read.
    pub title: String,
    /// Price of a unit in minor units (cents, 分).
    pub price_minor: i64,
    /// ISO 4217 code, upper case.
    pub currency: String,
    /// Units for sale.
    pub quantity: u32,
    /// Segments that the stock is split into.
    pub segments: u32,
    /// Units that one buyer may hold or own.
    pub per_buyer_limit: u32,
    /// When selling begins; none: when an admin opens it.
    pub opens_at: Option<Timestamp>,
    /// When selling ends; none: when an admin closes it.
    pub closes_at: Option<Timestamp>,
    /// Seconds that units are held for payment; 0: confirmed at once.
    pub hold_seconds: u32,
    /// How stock is deducted.
    pub strategy: Strategy,
}

impl NewSale {
    /// The same sale, if every value is within its bounds.
    ///
    /// # Errors
    /// [`Invalid`] for the first value that is not, with its bounds.
    pub fn checked(self) -> Result<Self, Invalid> {
        text("product", &self.product)?;
        text("title", &self.title)?;
        range("price_minor", self.price_minor, 0, PRICE_MINOR_MAX)?;
        range("quantity", self.quantity.into(), 1, QUANTITY_MAX.into())?;
        range("segments", self.segments.into(), 1, SEGMENTS_MAX.into())?;
        range(
            "per_buyer_limit",
            self.per_buyer_limit.into(),
            1,
            QUANTITY_MAX.into(),
        )?;
        range(
            "hold_seconds",
            self.hold_seconds.into(),
            0,
            HOLD_SECONDS_MAX.into(),
        )?;
        let letters = self.currency.bytes().all(|b| b.is_ascii_uppercase());
        if self.currency.len() != CURRENCY_LENGTH || !letters {
            return Err(Invalid::new("currency is three upper-case letters, as CNY"));
        }
        match (self.opens_at, self.closes_at) {
            (Some(opens), Some(closes)) if closes <= opens => {
                Err(Invalid::new("closes_at must be later than opens_at"))
            }
            _ => Ok(self),
        }
    }
}

fn text(name: &str, value: &str) -> Result<(), Invalid> {
    if value.is_empty() || value.len() > TITLE_LENGTH_MAX || value.chars().any(char::is_control) {
        return Err(Invalid::new(format!(
            "{name} is 1 to {TITLE_LENGTH_MAX} bytes of text without control characters"
        )));
    }
    Ok(())
}

fn range(name: &str, value: i64, least: i64, most: i64) -> Result<(), Invalid> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Invalid::new(format!(
            "{name} is a whole number from {least} to {most}"
        )))
    }
}

/// A sale as the ledger stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    /// Its number.
    pub id: SaleId,
    /// What was agreed at creation. `opens_at` moves when an admin opens it early; quantity and
    /// segments when stock is added or withdrawn or split anew, before the first load or by a load.
    pub terms: NewSale,
    /// How far its stock has come.
    pub stage: Stage,
    /// Whether the shop has paused it.
    pub paused: bool,
    /// Whether it is over: what was admitted is still committed, orders still live.
    pub closed: bool,
    /// Number of the current load of its stock into Redis; 0 before the first.
    pub epoch: u64,
    /// The newest epoch whose load was finished: what it admitted may not be in the ledger yet.
    pub loaded_epoch: u64,
    /// The number of segments under `loaded_epoch`, whatever the terms want by now: the next load seals
    /// these, and adopts what they hold. 1 before the first load was finished.
    pub loaded_segments: u32,
    /// Grows with every change of window, pause or close; Redis applies only newer ones.
    pub control: u64,
    /// Units in active orders: reserved + confirmed.
    pub taken: u64,
    /// Units in confirmed orders.
    pub confirmed: u64,
    /// When it was created, by the database's clock.
    pub created_at: Timestamp,
    /// Whether a closed sale has nothing left in Redis that the ledger needs.
    pub drained: bool,
}

impl Sale {
    /// Units in orders that wait for payment.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.taken - self.confirmed
    }

    /// Units that no active order holds.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.terms.quantity as u64 - self.taken
    }

    /// Whether every unit is confirmed, so that no refusal for lack of stock can ever become wrong.
    #[must_use]
    pub const fn is_sold_out(&self) -> bool {
        self.confirmed == self.terms.quantity as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sale() -> NewSale {
        NewSale {
            product: "sku-1".into(),
            title: "A phone".into(),
            price_minor: 9_900,
            currency: "CNY".into(),
            quantity: 100,
            segments: 1,
            per_buyer_limit: 1,
            opens_at: None,
            closes_at: None,
            hold_seconds: 0,
            strategy: Strategy::Segmented,
        }
    }

    #[test]
    fn a_sale_within_its_bounds_is_taken() {
        assert!(sale().checked().is_ok());
    }

    #[test]
    fn a_sale_beyond_any_bound_is_refused_with_the_bound() {
        let instant = Timestamp::from_millis(5).ok();
        let broken = [
            (
                "product",
                NewSale {
                    product: String::new(),
                    ..sale()
                },
            ),
            (
                "title",
                NewSale {
                    title: "a\nb".into(),
                    ..sale()
                },
            ),
            (
                "title",
                NewSale {
                    title: "x".repeat(TITLE_LENGTH_MAX + 1),
                    ..sale()
                },
            ),
            (
                "price_minor",
                NewSale {
                    price_minor: -1,
                    ..sale()
                },
            ),
            (
                "quantity",
                NewSale {
                    quantity: 0,
                    ..sale()
                },
            ),
            (
                "quantity",
                NewSale {
                    quantity: QUANTITY_MAX + 1,
                    ..sale()
                },
            ),
            (
                "segments",
                NewSale {
                    segments: 257,
                    ..sale()
                },
            ),
            (
                "per_buyer_limit",
                NewSale {
                    per_buyer_limit: 0,
                    ..sale()
                },
            ),
            (
                "hold_seconds",
                NewSale {
                    hold_seconds: HOLD_SECONDS_MAX + 1,
                    ..sale()
                },
            ),
            (
                "currency",
                NewSale {
                    currency: "cny".into(),
                    ..sale()
                },
            ),
            (
                "closes_at",
                NewSale {
                    opens_at: instant,
                    closes_at: instant,
                    ..sale()
                },
            ),
        ];
        for (field, sale) in broken {
            let why = sale.checked().expect_err(field).to_string();
            assert!(why.contains(field), "{field}: {why}");
        }
    }
}
