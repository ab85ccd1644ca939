//! An answer that gets lost: it has happened, and the client does not know.

use std::sync::{Arc, Mutex};

use stockade::lock::gate::Steps;

/// Lets everything pass but the one answer that is to be lost next.
#[derive(Debug, Clone, Default)]
pub(super) struct Loss(Arc<Mutex<Option<&'static str>>>);

impl Loss {
    /// The next call that begins with `call` happens, and its answer is lost.
    pub(super) fn next(&self, call: &'static str) {
        *self.0.lock().unwrap() = Some(call);
    }

    /// A fault that left no trace was not injected.
    pub(super) fn has_happened(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }

    fn is(&self, command: &str) -> bool {
        let mut next = self.0.lock().unwrap();
        let is = next.is_some_and(|call| command.starts_with(call));
        if is {
            *next = None;
        }
        is
    }

    pub(super) async fn stand_at(self, mut steps: Steps) {
        while let Some(step) = steps.next().await {
            match self.is(step.command()) {
                true => step.lose_answer().await,
                false => step.pass().await,
            };
        }
    }
}
