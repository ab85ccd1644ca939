//! What becomes of purchases after Redis has decided them.

use std::sync::Arc;

use super::attempt::Attempt;
use super::live::LiveSale;
use super::refuse;
use super::shortage::Short;
use super::writer::Group;
use crate::domain::{Refusal, Sale, Timestamp};
use crate::stock::scripts::{Answer, Decided};

impl LiveSale {
    /// Gives each purchase that was refused to whoever decides the rest of its way; those that were
    /// admitted come back, for the ledger.
    #[must_use]
    pub(super) fn hand_on(
        self: &Arc<Self>,
        segment: u32,
        sale: &Sale,
        decided: Decided,
        attempts: impl IntoIterator<Item = Attempt>,
    ) -> Option<Group> {
        let Decided {
            entry,
            sold_out,
            answers,
        } = decided;
        let mut group = Group {
            epoch: sale.epoch,
            segment,
            entry: None,
            attempts: vec![],
        };
        let mut units = 0;
        for (mut attempt, answer) in attempts.into_iter().zip(answers) {
            attempt.decided();
            match answer {
                Answer::Admitted => {
                    units += u64::from(attempt.purchase.quantity);
                    attempt.admit(false);
                    group.attempts.push(attempt);
                }
                Answer::Replay => {
                    attempt.admit(true);
                    group.attempts.push(attempt);
                }
                Answer::Short(_) if sold_out => refuse(self, attempt, Refusal::SoldOut),
                Answer::Short(available) => {
                    self.fall_short(Short {
                        attempt,
                        available,
                        epoch: sale.epoch,
                    });
                }
                Answer::LimitReached(left) => {
                    let limit = sale.terms.per_buyer_limit;
                    refuse(self, attempt, Refusal::LimitReached { limit, left });
                }
                Answer::KeyReused(quantity) => {
                    refuse(self, attempt, Refusal::KeyReused { quantity });
                }
                Answer::Void => refuse(self, attempt, Refusal::Void),
                Answer::Closed => refuse(self, attempt, Refusal::Closed),
                Answer::Paused => {
                    refuse(
                        self,
                        attempt,
                        Refusal::NotOpen {
                            opens_at: None,
                            paused: true,
                        },
                    );
                }
                Answer::NotOpen(opens_at_ms) => {
                    let opens_at = opens_at_ms.and_then(|ms| Timestamp::from_millis(ms).ok());
                    refuse(
                        self,
                        attempt,
                        Refusal::NotOpen {
                            opens_at,
                            paused: false,
                        },
                    );
                }
            }
        }
        group.entry = entry.map(|entry| (entry, units));
        (!group.attempts.is_empty()).then_some(group)
    }
}
