//! Giving up a call that waits, from another thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Gives up what waits for a project: because the user closes the window, or the program ends. Clones are the same.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    is_cancelled: bool,
    last: u64,
    /// What to do for each call that waits.
    calls: BTreeMap<u64, Box<dyn Fn() + Send>>,
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

impl Cancel {
    /// One that has not been used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up every call that was given this, and every one that will be. A lease that was got already stays.
    pub fn cancel(&self) {
        let mut inside = self.inside();
        inside.is_cancelled = true;
        inside.calls.values().for_each(|give_up| give_up());
    }

    /// Whether it was used.
    pub fn is_cancelled(&self) -> bool {
        self.inside().is_cancelled
    }

    /// Has `give_up` done when it is used, for as long as the answer lives. `None` if it was used already.
    pub(crate) fn listen(&self, give_up: impl Fn() + Send + 'static) -> Option<Listening> {
        let mut inside = self.inside();
        if inside.is_cancelled {
            return None;
        }
        inside.last += 1;
        let number = inside.last;
        inside.calls.insert(number, Box::new(give_up));
        Some(Listening { cancel: self.clone(), number })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Nothing that could panic is done while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Listening {
    cancel: Cancel,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.cancel.inside().calls.remove(&self.number);
    }
}
