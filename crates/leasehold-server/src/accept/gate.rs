//! Limits the number of connections: per address, and in total.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Limits;
use crate::metrics::{Full, Metrics};

/// Counts open connections.
pub(super) struct Gate {
    counts: Arc<Mutex<Counts>>,
    per_address: usize,
    in_all: usize,
    metrics: Metrics,
}

#[derive(Default)]
struct Counts {
    in_all: usize,
    by_network: HashMap<IpAddr, usize>,
}

impl Gate {
    pub(super) fn new(limits: &Limits, metrics: Metrics) -> Self {
        let (per_address, in_all) = (limits.connections_per_address, limits.connections);
        Self { counts: Arc::default(), per_address, in_all, metrics }
    }

    /// Admits a connection, or says which limit is reached. Trusted proxies count towards the total only.
    pub(super) fn enter(&self, peer: IpAddr, is_proxy: bool) -> Result<Place, Full> {
        let network = (!is_proxy).then(|| network_of(peer));
        let mut counts = lock(&self.counts);
        if counts.in_all >= self.in_all {
            return Err(Full::All);
        }
        if let Some(network) = network {
            let count = counts.by_network.get(&network).copied().unwrap_or(0);
            if count >= self.per_address {
                return Err(Full::Address);
            }
            counts.by_network.insert(network, count + 1);
        }
        counts.in_all += 1;
        self.metrics.connection_opened();
        Ok(Place { counts: self.counts.clone(), network, metrics: self.metrics.clone() })
    }
}

/// The network that counts as one address: for IPv6 a /64, because one customer has a whole one.
pub(crate) fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    }
}

/// A place in the limits, until it is dropped.
pub(super) struct Place {
    counts: Arc<Mutex<Counts>>,
    network: Option<IpAddr>,
    metrics: Metrics,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.in_all = counts.in_all.saturating_sub(1);
        if let Some(network) = self.network {
            match counts.by_network.get_mut(&network) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(counts.by_network.remove(&network)),
            }
        }
        self.metrics.connection_closed();
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(per_address: usize, in_all: usize) -> Gate {
        let limits =
            Limits { connections_per_address: per_address, connections: in_all, ..Limits::default() };
        Gate::new(&limits, Metrics::new())
    }

    fn enter(gate: &Gate, peer: &str) -> Result<Place, Full> {
        gate.enter(peer.parse().unwrap(), false)
    }

    #[test]
    fn an_address_has_its_limit_and_others_theirs() {
        let gate = gate(2, 5);
        let places = [enter(&gate, "192.0.2.1"), enter(&gate, "::ffff:192.0.2.1")].map(Result::unwrap);
        assert_eq!(enter(&gate, "192.0.2.1").err(), Some(Full::Address));
        let other = enter(&gate, "192.0.2.2").unwrap();
        drop(places);
        enter(&gate, "192.0.2.1").unwrap();
        drop(other);
        assert!(lock(&gate.counts).by_network.is_empty(), "what is over is forgotten");
        assert_eq!(lock(&gate.counts).in_all, 0);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let gate = gate(1, 5);
        let _place = enter(&gate, "2001:db8:0:1::1").unwrap();
        assert_eq!(enter(&gate, "2001:db8:0:1:ffff::2").err(), Some(Full::Address));
        enter(&gate, "2001:db8:0:2::1").unwrap();
    }

    #[test]
    fn a_proxy_counts_only_among_all() {
        let gate = gate(1, 3);
        let proxy = "192.0.2.9".parse().unwrap();
        let _places = [(); 3].map(|()| gate.enter(proxy, true).unwrap());
        assert_eq!(gate.enter(proxy, true).err(), Some(Full::All));
        assert_eq!(enter(&gate, "192.0.2.1").err(), Some(Full::All));
    }
}
