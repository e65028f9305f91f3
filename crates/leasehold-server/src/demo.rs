//! The demo at `/demo`: an editor on the npm package, for servers with made-up users. Its files are in `web/dist/demo`, where
//! `cargo xtask web` builds them.
//!
//! A release build has those files in it that were there when it was compiled. A debug build reads them at every request, so that
//! a running server has the demo as soon as it is built. Where there are none, a page says how to build them. No file outside of
//! that folder is ever served.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path as Address, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::error::{Code, Failure};
use crate::page::{guards, policy, tag};
use crate::routes::is_known;
use crate::{App, Doors};

/// The files that were there at compile time, by name.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/demo_files.rs"));

/// Where a debug build finds the files.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/demo");

/// What the demo may load: the same as the page at `/`, and WebAssembly. Its `default` policy allows Workers below `/demo/`.
const POLICY: &str = policy!("script-src 'self' 'wasm-unsafe-eval'", "default");

const INDEX: &str = "index.html";

/// What is shown while there are no files. It is loaded again by itself.
const NOT_BUILT: &str = include_str!("../page/demo-not-built.html");

/// The folder that files are read from; none where they are embedded.
pub(crate) fn default_folder() -> Option<PathBuf> {
    cfg!(debug_assertions).then(|| PathBuf::from(BUILT))
}

/// The demo and its files, for a server that has documents and made-up users.
pub(crate) fn routes(doors: Doors, is_dev: bool) -> Router<Arc<App>> {
    if doors == Doors::Jobs || !is_dev {
        return Router::new();
    }
    let index = async |State(app): State<Arc<App>>, headers: HeaderMap| file(&app, &headers, INDEX).await;
    let named = async |State(app): State<Arc<App>>, headers: HeaderMap, Address(name): Address<String>| {
        file(&app, &headers, &name).await
    };
    Router::new().route("/demo", get(index)).route("/demo/", get(index)).route("/demo/{*name}", get(named))
}

async fn file(app: &App, headers: &HeaderMap, name: &str) -> Response {
    let found = read(app.config.demo_folder.as_deref(), name).await;
    let Some((kind, bytes)) = found else {
        if name == INDEX {
            return not_built();
        }
        return Failure::new(Code::NotFound).because_of("GET /demo is the demo").into_response();
    };
    let tag = tag(&bytes);
    let fixed = [(ETAG, tag.as_str()), (CACHE_CONTROL, "no-cache")];
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    let guards = [(CONTENT_SECURITY_POLICY, POLICY), (REFERRER_POLICY, "no-referrer")];
    (fixed, guards, [(CONTENT_TYPE, kind)], bytes).into_response()
}

/// A file of the demo and its media type.
async fn read(folder: Option<&Path>, name: &str) -> Option<(&'static str, Vec<u8>)> {
    let kind = kind_of(name)?;
    let bytes = match folder {
        Some(folder) => tokio::fs::read(folder.join(name)).await.ok()?,
        None => EMBEDDED.iter().find(|(known, _)| *known == name)?.1.to_vec(),
    };
    Some((kind, bytes))
}

/// The media type of a file; none if a file of the demo cannot be called that.
fn kind_of(name: &str) -> Option<&'static str> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    if !name.split('/').all(is_plain) {
        return None;
    }
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        "wasm" => Some("application/wasm"),
        _ => None,
    }
}

fn not_built() -> Response {
    let fixed = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    (fixed, guards(), NOT_BUILT).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_demos_own_files_are_looked_for() {
        for name in ["index.html", "leasehold/shared-A1.js", "leasehold/leasehold.wasm"] {
            assert!(kind_of(name).is_some(), "{name}");
        }
        for name in [
            "",
            "..",
            "../Cargo.toml",
            "a/../b.js",
            ".env.js",
            "a//b.js",
            "a\\b.js",
            "x.toml",
            "js",
            "%2e%2e/a.js",
        ] {
            assert!(kind_of(name).is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_folder_is_read_at_every_request_and_nothing_outside_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("demo");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(folder.path().join("secret.js"), "no").unwrap();
        assert_eq!(read(Some(&inner), "index.html").await, None);
        std::fs::write(inner.join("index.html"), "yes").unwrap();
        assert_eq!(read(Some(&inner), "index.html").await.unwrap().1, b"yes");
        assert_eq!(read(Some(&inner), "../secret.js").await, None);
    }
}
