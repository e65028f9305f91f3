//! How people are called in what the command line shows: by their names, and with their ids where two have the same name.

use std::collections::BTreeMap;

use leasehold_core::wire::documents::{DocumentEvent, Holder, LockState};

use crate::out::one_line;

/// How many names are remembered. A watcher may run for months.
const REMEMBERED: usize = 10_000;

/// The people that were heard of.
#[derive(Debug, Default)]
pub(crate) struct People {
    /// Names by id.
    names: BTreeMap<String, String>,
}

impl People {
    /// Remembers the people in a document's state.
    pub(crate) fn learn_state(&mut self, state: &LockState) {
        if let Some(lock) = &state.lock {
            self.learn(&lock.holder);
            lock.request.iter().for_each(|request| self.learn(&request.by));
        }
    }

    /// Remembers the people in an event.
    pub(crate) fn learn_event(&mut self, event: &DocumentEvent) {
        self.learn(&event.holder);
        other_party(event).iter().for_each(|by| self.learn(by));
    }

    fn learn(&mut self, person: &Holder) {
        if self.names.len() >= REMEMBERED {
            self.names.clear();
        }
        self.names.insert(person.id.clone(), person.name.clone());
    }

    /// The name, on one line.
    pub(crate) fn name(&self, person: &Holder) -> String {
        let Holder { id, name } = person;
        let is_shared = self.names.iter().any(|(other, same)| other != id && same == name);
        if is_shared && name != id { one_line(&format!("{name} ({id})")) } else { one_line(name) }
    }
}

/// The user beside the holder that an event is about.
pub(crate) fn other_party(event: &DocumentEvent) -> Option<Holder> {
    let id = event.by.clone()?;
    let name = event.by_name.clone().unwrap_or_else(|| id.clone());
    Some(Holder { id, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(id: &str, name: &str) -> Holder {
        Holder { id: id.into(), name: name.into() }
    }

    #[test]
    fn the_id_is_shown_where_two_people_have_the_same_name() {
        let mut people = People::default();
        let (anna, other, ben) = (person("a1", "Anna"), person("a2", "Anna"), person("b", "Ben"));
        people.learn(&anna);
        people.learn(&ben);
        assert_eq!((people.name(&anna), people.name(&ben)), ("Anna".into(), "Ben".into()));
        people.learn(&other);
        assert_eq!((people.name(&anna), people.name(&other)), ("Anna (a1)".into(), "Anna (a2)".into()));
        people.learn(&person("a2", "Annika"));
        assert_eq!(people.name(&anna), "Anna", "she has another name now");
        assert_eq!(people.name(&person("x", "x\ny")), "x y");
    }
}
