//! Random batches of purchases and returns: the scripts decide as a small model does.

use std::collections::{BTreeMap, BTreeSet};

use loadtest::servers::{RedisOptions, RedisServer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stockade::domain::{OrderId, Purchase};
use stockade::stock::SegmentKeys;
use stockade::stock::scripts::{self, Answer, Returned};

use super::{Segment, load, purchase, sale};

/// A segment as a person would think of it.
#[derive(Debug, Default)]
struct Model {
    available: u64,
    limit: u32,
    units: BTreeMap<String, u32>,
    marks: BTreeMap<OrderId, (u32, bool)>,
    void: BTreeSet<OrderId>,
}

impl Model {
    fn decide(&mut self, last: bool, purchase: &Purchase) -> Answer {
        if self.void.contains(&purchase.order) {
            return Answer::Void;
        }
        if let Some((quantity, _)) = self.marks.get(&purchase.order) {
            return match *quantity == purchase.quantity {
                true => Answer::Replay,
                false => Answer::KeyReused(*quantity),
            };
        }
        let units = self.units.entry(purchase.buyer.to_string()).or_default();
        let refusal = if *units + purchase.quantity > self.limit {
            Answer::LimitReached(self.limit - *units)
        } else if u64::from(purchase.quantity) > self.available {
            Answer::Short(self.available)
        } else {
            *units += purchase.quantity;
            self.available -= u64::from(purchase.quantity);
            self.marks.insert(purchase.order, (purchase.quantity, true));
            return Answer::Admitted;
        };
        if last {
            self.void.insert(purchase.order);
        }
        refusal
    }

    fn give_back(&mut self, order: OrderId, buyer: &str) -> Returned {
        let Some((quantity, active)) = self.marks.get_mut(&order) else {
            return Returned::Unmarked;
        };
        if std::mem::take(active) {
            self.available += u64::from(*quantity);
            *self.units.get_mut(buyer).unwrap() -= *quantity;
        }
        Returned::Back
    }
}

#[derive(Debug, Clone)]
enum Step {
    Buy {
        last: bool,
        batch: Vec<(u8, u8, u32)>,
    },
    GiveBack {
        buyer: u8,
        key: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let one = (0..5_u8, 0..4_u8, 1..=3_u32);
    prop_oneof![
        4 => (any::<bool>(), prop::collection::vec(one, 1..12))
            .prop_map(|(last, batch)| Step::Buy { last, batch }),
        1 => (0..5_u8, 0..4_u8).prop_map(|(buyer, key)| Step::GiveBack { buyer, key }),
    ]
}

#[test]
fn random_batches_and_returns_are_decided_as_the_model_decides_them() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let redis = runtime
        .block_on(RedisServer::start(&RedisOptions::default()))
        .unwrap();
    let epoch = std::cell::Cell::new(1_u64);
    let cases = 150;
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let inputs = (0..15_u64, 1..6_u32, prop::collection::vec(step(), 1..25));
    let outcome = runner.run(&inputs, |(available, limit, steps)| {
        epoch.set(epoch.get() + 1);
        let result: Result<(), TestCaseError> = runtime.block_on(async {
            let mut connection = redis.connection().await.unwrap();
            load(&mut connection, epoch.get(), available, limit).await;
            let keys = SegmentKeys::new(sale(), 0, epoch.get());
            let mut segment = Segment {
                connection,
                keys,
                _redis: None,
            };
            let mut model = Model {
                available,
                limit,
                ..Model::default()
            };
            for step in steps {
                match step {
                    Step::Buy { last, batch } => {
                        let batch: Vec<Purchase> = batch
                            .iter()
                            .map(|(b, k, n)| purchase(&format!("b{b}"), &format!("k{k}"), *n))
                            .collect();
                        let expected: Vec<Answer> =
                            batch.iter().map(|one| model.decide(last, one)).collect();
                        prop_assert_eq!(segment.buy(last, &batch).await, expected);
                    }
                    Step::GiveBack { buyer, key } => {
                        let one = purchase(&format!("b{buyer}"), &format!("k{key}"), 1);
                        let buyer = one.buyer.as_str();
                        let quantity = model.marks.get(&one.order).map_or(1, |mark| mark.0);
                        let expected = model.give_back(one.order, buyer);
                        let back = [(one.order, buyer, quantity)];
                        let call =
                            scripts::give_back(&mut segment.connection, &segment.keys, &back);
                        prop_assert_eq!(call.await.unwrap(), Ok(vec![expected]));
                    }
                }
                prop_assert_eq!(segment.available().await, model.available);
            }
            Ok(())
        });
        result
    });
    outcome.unwrap();
}
