//! HTTPS: certificate and key from files, read again when they change.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::TlsFiles;
use crate::files::{self, ConfigError, FromFiles};

pub(super) struct Tls {
    config: FromFiles<ServerConfig>,
}

impl Tls {
    /// Reads certificate and key, or says what is wrong with them.
    pub(super) fn open(files: &TlsFiles) -> Result<Self, ConfigError> {
        let paths = vec![files.certificate.clone(), files.key.clone()];
        let files = files.clone();
        Ok(Self { config: FromFiles::open(paths, move || read(&files))? })
    }

    /// Does the TLS handshake on a new connection.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config.current()).accept(stream).await
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, ConfigError> {
    let chain =
        CertificateDer::pem_slice_iter(&files::read(&files.certificate)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
        let rule = "it has no PEM certificate (`-----BEGIN CERTIFICATE-----`)";
        ConfigError::file(&files.certificate, rule, "name the file with the certificate and its chain")
    })?;
    let key = PrivateKeyDer::from_pem_slice(&files::read(&files.key)?).map_err(|_| {
        let rule = "it has no PEM private key (`-----BEGIN PRIVATE KEY-----`)";
        ConfigError::file(&files.key, rule, "name the file with the certificate's key, without a password")
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| {
        let rule = format!("the certificate and the key cannot be used: {error}");
        ConfigError::file(&files.certificate, rule, "check that the key belongs to the first certificate")
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
