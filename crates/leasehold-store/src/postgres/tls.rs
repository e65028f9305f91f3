//! TLS to the database. Either its certificate is checked, host name included, or there is no TLS: a connection that is
//! encrypted for nobody in particular protects from nobody in particular, and looks as if it did.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::refuse;
use crate::Result;

/// How the database is spoken to.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Tls {
    Off,
    On(Authorities),
}

/// Whose word is taken for the database being who it says.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Authorities {
    /// Those that the system trusts.
    System,
    /// Those in this PEM file.
    File(PathBuf),
}

impl Tls {
    /// From PostgreSQL's own parameters.
    pub(super) fn parse(mode: Option<&str>, root: Option<&str>) -> Result<Self> {
        match (mode.unwrap_or("prefer"), root) {
            ("disable" | "allow" | "prefer", None) => Ok(Self::Off),
            ("disable" | "allow" | "prefer", Some(_)) => {
                let fix = "add sslmode=verify-full, or leave sslrootcert out";
                Err(refuse("sslrootcert without sslmode=verify-full would check nothing", fix))
            }
            ("require" | "verify-full", None | Some("system")) => Ok(Self::On(Authorities::System)),
            ("require" | "verify-full", Some(file)) => Ok(Self::On(Authorities::File(file.into()))),
            _ => {
                let fix = "write sslmode=verify-full for TLS, or sslmode=disable on a network that you trust";
                Err(refuse("sslmode is disable or verify-full (and require, which is the same here)", fix))
            }
        }
    }

    pub(super) fn mode(&self) -> SslMode {
        match self {
            Self::Off => SslMode::Disable,
            Self::On(_) => SslMode::Require,
        }
    }

    /// What makes connections; reads the certificates.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect> {
        let roots = match self {
            // It is never asked, because of the mode.
            Self::Off => RootCertStore::empty(),
            Self::On(Authorities::System) => system_authorities()?,
            Self::On(Authorities::File(file)) => authorities_in(file)?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(&error.to_string(), "this is a mistake in Leasehold"))?;
        Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
    }
}

/// Whether a connection failed because of the certificate: the next one would, too.
pub(super) fn is_certificate_refused(error: &tokio_postgres::Error) -> bool {
    let failed =
        error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    let failed = failed.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(failed, Some(rustls::Error::InvalidCertificate(_)))
}

fn system_authorities() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (known, _) = roots.add_parsable_certificates(found.certs);
    if known == 0 {
        let fix = "install them (Debian: ca-certificates), or name a file with sslrootcert=";
        return Err(refuse("TLS needs certificates of authorities, and this system has none", fix));
    }
    Ok(roots)
}

fn authorities_in(file: &Path) -> Result<RootCertStore> {
    let unusable = |why: &dyn std::fmt::Display| {
        let rule = format!("sslrootcert={} cannot be used: {why}", file.display());
        refuse(&rule, "name a PEM file with the certificate of the authority that signed the database's")
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"there is no certificate in it"));
    }
    Ok(roots)
}
