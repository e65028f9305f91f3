//! The address a server listens on. Without authentication it must never be reachable from other machines.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use leasehold_server::auth::KeySource;
use tokio::net::TcpListener;

use super::settings::WrongUsage;

/// The default address.
pub(super) const DEFAULT: &str = "127.0.0.1:7420";

/// Who may come in, as far as listening is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Callers with a token that an identity provider signed.
    ByToken,
    /// Everybody.
    Open,
    /// Those with one of the tokens that are printed.
    Dev,
}

impl Entry {
    /// Who may come in with these keys.
    pub(super) fn of(keys: Option<&KeySource>, dev: bool) -> Result<Self, WrongUsage> {
        match (keys, dev) {
            (Some(_), true) => Err(WrongUsage(
                "--dev makes tokens of its own, and auth is configured as well: leave out one of them".into(),
            )),
            (Some(_), false) => Ok(Self::ByToken),
            (None, true) => Ok(Self::Dev),
            (None, false) => Ok(Self::Open),
        }
    }
}

/// An address that may be listened on.
pub(super) struct Address {
    given: String,
    addresses: Vec<SocketAddr>,
}

/// Looks up `HOST:PORT`, and refuses it if it is too open for who may come in.
pub(super) async fn resolve(listen: &str, entry: Entry) -> Result<Address> {
    let form = "write it as HOST:PORT, such as 127.0.0.1:7420 or [::1]:7420";
    let looked_up = tokio::net::lookup_host(listen).await;
    let addresses: Vec<SocketAddr> = looked_up
        .map_err(|error| WrongUsage(format!("cannot listen on {listen:?}: {error}; {form}")))?
        .collect();
    if let Some(refusal) = refusal(listen, &addresses, entry) {
        return Err(WrongUsage(refusal).into());
    }
    Ok(Address { given: listen.to_owned(), addresses })
}

impl Address {
    /// Listens there. What was looked at is what is bound: a second look-up could answer something else.
    pub(super) async fn bind(&self) -> Result<TcpListener> {
        TcpListener::bind(self.addresses.as_slice()).await.with_context(|| {
            let given = &self.given;
            format!(
                "cannot listen on {given} (if something else is there: --listen 127.0.0.1:0 takes any free port)"
            )
        })
    }
}

/// Why one must not listen there, if so.
fn refusal(listen: &str, addresses: &[SocketAddr], entry: Entry) -> Option<String> {
    let beyond = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback())?;
    let place = match listen.parse::<SocketAddr>() {
        Ok(_) => listen.to_owned(),
        Err(_) => format!("{listen} ({beyond})"),
    };
    let keys = "say who may come in with --jwt-secret-file, --jwt-public-key-file or --jwt-jwks-file \
                (in the config file: [jwt])";
    match entry {
        Entry::ByToken => None,
        Entry::Open => Some(format!(
            "will not listen on {place}: no authentication is configured, so every machine that can reach it could take every lock. \
             Listen on {DEFAULT}, or {keys}"
        )),
        Entry::Dev => Some(format!(
            "will not listen on {place} with --dev: its tokens are printed in clear text. \
             Listen on {DEFAULT}, or leave out --dev and {keys}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_auth_only_loopback_will_do() {
        let cases = [
            ("127.0.0.1:1", true),
            ("127.8.9.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.7:1", false),
            ("[2001:db8::1]:1", false),
            ("[::ffff:192.0.2.7]:1", false),
        ];
        for (listen, fine) in cases {
            let address: SocketAddr = listen.parse().unwrap();
            for entry in [Entry::Open, Entry::Dev] {
                assert_eq!(refusal(listen, &[address], entry).is_none(), fine, "{listen} {entry:?}");
            }
            assert_eq!(refusal(listen, &[address], Entry::ByToken), None, "{listen}");
        }
    }

    #[test]
    fn a_name_is_judged_by_everything_it_stands_for() {
        let addresses = ["127.0.0.1:1".parse().unwrap(), "192.0.2.7:1".parse().unwrap()];
        let refusal = refusal("box:1", &addresses, Entry::Open).unwrap();
        assert!(
            refusal.contains("box:1 (192.0.2.7:1)") && refusal.contains("--jwt-secret-file"),
            "{refusal}"
        );
    }
}
