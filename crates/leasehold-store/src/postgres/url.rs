//! A PostgreSQL URL, understood; its password is shown to nobody.

use std::fmt;
use std::time::Duration;

use leasehold_core::Invalid;
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::tls::Tls;
use crate::Result;
use crate::url::is_postgres;

/// How long making a connection may take, unless the URL says otherwise (`connect_timeout`).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long a connection that does not answer counts as lost (`tcp_user_timeout`).
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

const FORM: &str =
    "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for special characters in the password";

/// Where a PostgreSQL store is.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub(super) address: Box<Address>,
    pub(super) listen: Listen,
}

/// What it takes to make a connection.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

/// On which connection the store hears of events.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Listen {
    /// On one like all the others. If it turns out that nothing is heard there, as behind a transaction-pooling proxy,
    /// the store polls.
    Same,
    /// On one past the proxy.
    Direct(Box<Address>),
    /// On none: the store polls.
    Off,
}

impl PostgresUrl {
    /// Reads `postgres://…` or `postgresql://…`, or says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self> {
        let (url, listen) = take(url, "listen");
        let listen = match listen.as_deref() {
            None => Listen::Same,
            Some("off") => Listen::Off,
            Some(direct) if is_postgres(direct) => Listen::Direct(Box::new(Address::parse(direct)?)),
            Some(_) => {
                let fix = "write listen=off, or listen= and a postgres:// URL with %26 for & and %3F for ?";
                return Err(refuse("listen is off or the URL of a direct connection", fix));
            }
        };
        Ok(Self { address: Box::new(Address::parse(&url)?), listen })
    }

    /// Host, port and database, without the password.
    pub(super) fn shown(&self) -> String {
        let config = &self.address.config;
        let hosts = config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let port = config.get_ports().first().map(|port| format!(":{port}")).unwrap_or_default();
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        format!("{hosts}{port}/{database}")
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({:?})", self.shown())
    }
}

/// Takes a parameter out of the URL: the driver does not know it, or knows less of it.
fn take(url: &str, name: &str) -> (String, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut taken = None;
    let mut rest = Vec::new();
    for pair in query.split('&') {
        match pair.strip_prefix(name).and_then(|pair| pair.strip_prefix('=')) {
            Some(value) => taken = Some(percent_decode_str(value).decode_utf8_lossy().into_owned()),
            None => rest.push(pair),
        }
    }
    let rest = rest.join("&");
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{rest}") };
    (url, taken)
}

impl Address {
    fn parse(url: &str) -> Result<Self> {
        let (url, mode) = take(url, "sslmode");
        let (url, root) = take(&url, "sslrootcert");
        let tls = Tls::parse(mode.as_deref(), root.as_deref())?;
        // Its error is not passed on: it may repeat a part of the password.
        let mut config: Config = url.parse().map_err(|_| refuse("it cannot be read", FORM))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refuse("it names no host", FORM));
        }
        config.ssl_mode(tls.mode());
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        Ok(Self { config, tls })
    }
}

pub(super) fn refuse(rule: &str, fix: &str) -> crate::Error {
    Invalid {
        what: "PostgreSQL URL",
        value: "(hidden, it may hold a password)".into(),
        rule: rule.into(),
        fix: fix.into(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::tls::Authorities;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let url = PostgresUrl::parse("postgresql://me:hunter2@db.example:5433/leases").unwrap();
        assert_eq!(url.shown(), "db.example:5433/leases");
        assert_eq!(format!("{url:?}"), "PostgresUrl(\"db.example:5433/leases\")");
    }

    #[test]
    fn listen_is_ours_and_the_rest_is_postgresqls() {
        let url = "postgres://me:x@proxy:6432/leases?connect_timeout=3&listen=postgres://me:y@db/leases%3Fconnect_timeout%3D4";
        let url = PostgresUrl::parse(url).unwrap();
        assert_eq!(url.address.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        let Listen::Direct(direct) = url.listen else { panic!("it names a direct connection") };
        assert_eq!(direct.config.get_hosts(), [Host::Tcp("db".into())]);
        assert_eq!(direct.config.get_connect_timeout(), Some(&Duration::from_secs(4)));
        assert!(PostgresUrl::parse("postgres://h/d?listen=off").unwrap().listen == Listen::Off);
        assert!(PostgresUrl::parse("postgres://h/d").unwrap().listen == Listen::Same);
    }

    #[test]
    fn tls_is_off_or_checks_the_certificate() {
        let tls = |query: &str| PostgresUrl::parse(&format!("postgres://h/d{query}")).unwrap().address.tls;
        assert!(tls("") == Tls::Off);
        assert!(tls("?sslmode=disable") == Tls::Off);
        assert!(tls("?sslmode=prefer") == Tls::Off);
        assert!(tls("?sslmode=require") == Tls::On(Authorities::System));
        assert!(tls("?sslmode=verify-full&sslrootcert=system") == Tls::On(Authorities::System));
        let file = Authorities::File("/etc/my ca.pem".into());
        assert!(tls("?sslrootcert=/etc/my%20ca.pem&sslmode=verify-full") == Tls::On(file));
    }

    #[test]
    fn a_bad_url_says_what_to_do_and_keeps_the_password() {
        let cases = [
            ("postgres://me:hunter2@h:port/d", "cannot be read"),
            ("postgres://me:hunter2@h/d?hunter2=1", "cannot be read"),
            ("postgres://me:hunter2@/d", "names no host"),
            ("postgres://me:hunter2@h/d?sslmode=verify-ca", "disable or verify-full"),
            ("postgres://me:hunter2@h/d?sslrootcert=ca.pem", "would check nothing"),
            ("postgres://me:hunter2@h/d?listen=maybe", "listen is off or"),
            ("postgres://me@h/d?listen=postgres://me:hunter2@h:port/d", "cannot be read"),
        ];
        for (url, expected) in cases {
            let error = PostgresUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
