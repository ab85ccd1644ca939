//! Random calls with purchases of two segments, and returns: the scripts decide as a small model does.

use std::collections::{BTreeMap, BTreeSet};

use loadtest::servers::{RedisOptions, RedisServer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use stockade::domain::{OrderId, Purchase};
use stockade::stock::SegmentKeys;
use stockade::stock::scripts::{self, Answer, Batch, Copies, Decision, Returned};

use super::{load_segment, purchase, sale};

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

/// The segment of a buyer.
fn home(buyer: u8) -> usize {
    usize::from(buyer % 2)
}

/// Buys at both segments with one call; the answers of each.
async fn buy(
    connection: &mut MultiplexedConnection,
    keys: &[SegmentKeys; 2],
    last: bool,
    wishes: &[Vec<Purchase>; 2],
) -> Vec<Vec<Answer>> {
    let purchases = wishes.each_ref().map(|own| own.iter().collect::<Vec<_>>());
    let batches = [0, 1].map(|n| Batch {
        keys: &keys[n],
        purchases: &purchases[n],
    });
    let copies = if last { Copies::LastWord } else { Copies::One };
    let decision = scripts::purchase(connection, copies, 0, &batches).await;
    let Decision::Decided { batches, .. } = decision.unwrap() else {
        panic!("too late")
    };
    batches
        .into_iter()
        .map(|one| one.unwrap().answers)
        .collect()
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
            let keys = [0, 1].map(|n| SegmentKeys::new(sale(), n, epoch.get()));
            for keys in &keys {
                load_segment(&mut connection, keys, available, limit).await;
            }
            let mut models = [0, 1].map(|_| Model {
                available,
                limit,
                ..Model::default()
            });
            for step in steps {
                match step {
                    Step::Buy { last, batch } => {
                        let mut wishes = [vec![], vec![]];
                        for (buyer, key, quantity) in batch {
                            let one = purchase(&format!("b{buyer}"), &format!("k{key}"), quantity);
                            wishes[home(buyer)].push(one);
                        }
                        let expected = models.iter_mut().zip(&wishes).map(|(model, wishes)| {
                            let answers = wishes.iter().map(|one| model.decide(last, one));
                            answers.collect::<Vec<_>>()
                        });
                        let expected: Vec<_> = expected.collect();
                        let answers = buy(&mut connection, &keys, last, &wishes).await;
                        prop_assert_eq!(answers, expected);
                    }
                    Step::GiveBack { buyer, key } => {
                        let (keys, model) = (&keys[home(buyer)], &mut models[home(buyer)]);
                        let one = purchase(&format!("b{buyer}"), &format!("k{key}"), 1);
                        let buyer = one.buyer.as_str();
                        let quantity = model.marks.get(&one.order).map_or(1, |mark| mark.0);
                        let expected = model.give_back(one.order, buyer);
                        let back = [(one.order, buyer, quantity)];
                        let call = scripts::give_back(&mut connection, keys, &back);
                        prop_assert_eq!(call.await.unwrap(), Ok(vec![expected]));
                    }
                }
                for (keys, model) in keys.iter().zip(&models) {
                    let figures = scripts::figures(&mut connection, keys).await.unwrap();
                    prop_assert_eq!(figures.available, model.available);
                }
            }
            Ok(())
        });
        result
    });
    outcome.unwrap();
}
