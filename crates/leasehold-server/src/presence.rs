//! Who is present on which channel: the users whose connections this server has, and those of other servers.
//!
//! Pure. A user with several connections, here or elsewhere, is one member: it joins with the first and leaves with the
//! last. Each server tells the others about its own users only, so that a server that is gone takes its users along.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use serde_json::value::RawValue;

/// The id of a user, as the application knows it.
pub(crate) type UserId = Box<str>;

/// The members of all channels. `C` names a channel, `N` another server.
pub(crate) struct Presence<C, N> {
    channels: HashMap<C, BTreeMap<UserId, Member<N>>>,
}

/// A user who is present on a channel.
struct Member<N> {
    /// What the application says about the user.
    info: Box<RawValue>,
    /// How many connections of this server subscribe to the channel for this user.
    here: usize,
    /// The other servers that have such connections.
    elsewhere: HashSet<N>,
}

/// What changed when a user came or went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The user came to, or left, the channel: its subscribers are told.
    pub(crate) of_channel: bool,
    /// The user came to, or left, this server: the other servers are told.
    pub(crate) of_server: bool,
}

impl<C, N> Default for Presence<C, N> {
    fn default() -> Self {
        Self { channels: HashMap::new() }
    }
}

impl<C: Clone + Eq + Hash, N: Copy + Eq + Hash> Presence<C, N> {
    /// A connection of this server subscribes for the user.
    pub(crate) fn join(&mut self, channel: &C, user: &str, info: &RawValue) -> Change {
        let is_new = !self.is_member(channel, user);
        let member = self.member(channel, user, info);
        member.here += 1;
        Change { of_channel: is_new, of_server: member.here == 1 }
    }

    /// A connection of this server subscribes no longer.
    pub(crate) fn leave(&mut self, channel: &C, user: &str) -> Change {
        let Some(member) = self.channels.get_mut(channel).and_then(|users| users.get_mut(user)) else {
            return Change::default();
        };
        member.here = member.here.saturating_sub(1);
        let of_server = member.here == 0;
        Change { of_server, of_channel: self.remove_absent(channel, user) }
    }

    /// Another server has a connection of the user. Returns whether the user is new to the channel.
    pub(crate) fn came_elsewhere(&mut self, node: N, channel: &C, user: &str, info: &RawValue) -> bool {
        let is_new = !self.is_member(channel, user);
        self.member(channel, user, info).elsewhere.insert(node);
        is_new
    }

    /// Another server has no connection of the user any more. Returns whether the user has left the channel.
    pub(crate) fn left_elsewhere(&mut self, node: N, channel: &C, user: &str) -> bool {
        let Some(member) = self.channels.get_mut(channel).and_then(|users| users.get_mut(user)) else {
            return false;
        };
        member.elsewhere.remove(&node);
        self.remove_absent(channel, user)
    }

    /// Another server is gone, or begins anew. Returns who has left which channel by that.
    pub(crate) fn forget_server(&mut self, node: N) -> Vec<(C, UserId)> {
        let members =
            self.channels.iter().flat_map(|(channel, users)| users.iter().map(move |user| (channel, user)));
        let there = members.filter(|(_, (_, member))| member.elsewhere.contains(&node));
        let there: Vec<(C, UserId)> =
            there.map(|(channel, (user, _))| (channel.clone(), user.clone())).collect();
        there.into_iter().filter(|(channel, user)| self.left_elsewhere(node, channel, user)).collect()
    }

    /// The members of a channel, in the order of their ids.
    pub(crate) fn members(&self, channel: &C) -> impl Iterator<Item = (&str, &RawValue)> {
        let users = self.channels.get(channel).into_iter().flatten();
        users.map(|(user, member)| (user.as_ref(), member.info.as_ref()))
    }

    /// How many members a channel has.
    pub(crate) fn count(&self, channel: &C) -> usize {
        self.channels.get(channel).map_or(0, BTreeMap::len)
    }

    pub(crate) fn is_member(&self, channel: &C, user: &str) -> bool {
        self.channels.get(channel).is_some_and(|users| users.contains_key(user))
    }

    /// All members with a connection of this server, for a server that does not know them yet.
    pub(crate) fn here(&self) -> impl Iterator<Item = (&C, &str, &RawValue)> {
        self.channels.iter().flat_map(|(channel, users)| {
            let here = users.iter().filter(|(_, member)| member.here > 0);
            here.map(move |(user, member)| (channel, user.as_ref(), member.info.as_ref()))
        })
    }

    /// The channels that have members.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &C> {
        self.channels.keys()
    }

    fn member(&mut self, channel: &C, user: &str, info: &RawValue) -> &mut Member<N> {
        let users = self.channels.entry(channel.clone()).or_default();
        users.entry(user.into()).or_insert_with(|| Member {
            info: info.to_owned(),
            here: 0,
            elsewhere: HashSet::new(),
        })
    }

    /// Removes a member without connections; returns whether it was.
    fn remove_absent(&mut self, channel: &C, user: &str) -> bool {
        let Some(users) = self.channels.get_mut(channel) else { return false };
        let is_absent = users.get(user).is_some_and(|member| member.here == 0 && member.elsewhere.is_empty());
        if is_absent {
            users.remove(user);
            if users.is_empty() {
                self.channels.remove(channel);
            }
        }
        is_absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Servers = Presence<&'static str, u8>;

    fn info() -> Box<RawValue> {
        RawValue::from_string("{}".into()).unwrap()
    }

    fn change(of_channel: bool, of_server: bool) -> Change {
        Change { of_channel, of_server }
    }

    #[test]
    fn a_user_joins_with_the_first_connection_and_leaves_with_the_last() {
        let mut presence = Servers::default();
        assert_eq!(presence.join(&"a", "anna", &info()), change(true, true));
        assert_eq!(presence.join(&"a", "anna", &info()), change(false, false));
        assert_eq!(presence.join(&"b", "anna", &info()), change(true, true), "each channel by itself");
        assert_eq!(presence.leave(&"a", "anna"), change(false, false));
        assert_eq!(presence.leave(&"a", "anna"), change(true, true));
        assert_eq!(presence.leave(&"a", "anna"), change(false, false), "who is not there does not leave");
        assert_eq!((presence.count(&"a"), presence.count(&"b")), (0, 1));
    }

    #[test]
    fn connections_to_several_servers_add_up() {
        let mut presence = Servers::default();
        assert!(presence.came_elsewhere(2, &"a", "anna", &info()));
        assert_eq!(presence.join(&"a", "anna", &info()), change(false, true));
        assert!(!presence.came_elsewhere(3, &"a", "anna", &info()));
        assert!(!presence.left_elsewhere(2, &"a", "anna"));
        assert_eq!(presence.leave(&"a", "anna"), change(false, true));
        assert!(presence.left_elsewhere(3, &"a", "anna"));
        assert!(!presence.left_elsewhere(3, &"a", "anna"));
        assert_eq!(presence.channels().count(), 0);
    }

    #[test]
    fn a_server_that_is_gone_takes_its_users_along() {
        let mut presence = Servers::default();
        for user in ["anna", "ben"] {
            presence.came_elsewhere(2, &"a", user, &info());
        }
        presence.join(&"a", "anna", &info());
        assert_eq!(presence.here().map(|(_, user, _)| user).collect::<Vec<_>>(), ["anna"]);
        assert_eq!(presence.forget_server(2), [("a", "ben".into())]);
        assert_eq!(presence.members(&"a").map(|(user, _)| user).collect::<Vec<_>>(), ["anna"]);
        assert_eq!(presence.forget_server(2), []);
    }
}
