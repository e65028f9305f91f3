//! Signatures with the application's secret: those of channels, and those of the HTTP API. Compared in constant time.
//!
//! A web application signs `socket:channel[:channel_data]`. What Leasehold itself signs for the holder of a token carries
//! the token's end as well, inside the `auth` string that clients pass on unread: `KEY:SIGNATURE.EXPIRY`.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::SocketId;
use super::channel::ChannelName;

/// What a signature is for.
#[derive(Clone, Copy)]
pub(crate) struct Signed<'a> {
    pub(crate) socket: SocketId,
    pub(crate) channel: &'a ChannelName,
    /// Who subscribes to a presence channel.
    pub(crate) channel_data: Option<&'a str>,
}

impl Signed<'_> {
    fn text(&self, expires_at: Option<u64>) -> String {
        let Self { socket, channel, channel_data } = self;
        let expiry = expires_at.map(|end| format!("expires={end}:")).unwrap_or_default();
        let data = channel_data.map(|data| format!(":{data}")).unwrap_or_default();
        format!("{expiry}{socket}:{}{data}", channel.as_str())
    }
}

/// The key and the secret of an application.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) key: &'a str,
    pub(crate) secret: &'a str,
}

impl Keys<'_> {
    /// The `auth` string for a channel, which ends with the token, in seconds since 1970.
    pub(crate) fn sign(self, what: Signed<'_>, expires_at: Option<u64>) -> String {
        let signature = hex(&self.mac(what.text(expires_at).as_bytes()).finalize().into_bytes());
        let expiry = expires_at.map(|end| format!(".{end}")).unwrap_or_default();
        format!("{}:{signature}{expiry}", self.key)
    }

    /// Checks an `auth` string; returns when the subscription ends, in seconds since 1970, if it does.
    pub(crate) fn check(self, auth: &str, what: Signed<'_>) -> Option<Option<u64>> {
        let (key, signature) = auth.split_once(':')?;
        let (signature, expires_at) = match signature.split_once('.') {
            Some((signature, end)) => (signature, Some(end.parse().ok()?)),
            None => (signature, None),
        };
        let is_right = self.is_signature(what.text(expires_at).as_bytes(), signature);
        (key == self.key && is_right).then_some(expires_at)
    }

    /// Checks the signature of a user who signs in.
    pub(crate) fn check_user(self, auth: &str, socket: SocketId, user_data: &str) -> bool {
        let Some((key, signature)) = auth.split_once(':') else { return false };
        key == self.key && self.is_signature(format!("{socket}::user::{user_data}").as_bytes(), signature)
    }

    /// Whether this is the signature of `text`, in hexadecimal digits.
    pub(crate) fn is_signature(self, text: &[u8], signature: &str) -> bool {
        unhex(signature).is_some_and(|signature| self.mac(text).verify_slice(&signature).is_ok())
    }

    #[allow(clippy::expect_used)] // a MAC of this kind takes a key of any length
    fn mac(self, text: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).expect("any length is fine");
        mac.update(text);
        mac
    }
}

/// A call of the HTTP API, as far as its signature covers it.
pub(crate) struct SignedCall<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The parameters of the query, decoded.
    pub(crate) query: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

/// How far the clock of a web application may be off, in seconds.
const CLOCKS_DIFFER: u64 = 600;

impl SignedCall<'_> {
    /// Checks the call, or says what is wrong with it. `now` is in seconds since 1970.
    pub(crate) fn check(&self, keys: Keys<'_>, now: u64) -> Result<(), &'static str> {
        if self.parameter("auth_key") != Some(keys.key) {
            return Err("auth_key is not the key of this application");
        }
        // A second one would be the only parameter that nothing covers.
        let mut signatures = self.query.iter().filter(|(name, _)| name == "auth_signature");
        let (Some((_, signature)), None) = (signatures.next(), signatures.next()) else {
            return Err("auth_signature is missing, or there twice");
        };
        if !keys.is_signature(self.text().as_bytes(), signature) {
            return Err("auth_signature does not fit: check the secret, and what is signed");
        }
        let timestamp = self.parameter("auth_timestamp").and_then(|time| time.parse::<u64>().ok());
        if timestamp.is_none_or(|time| time.abs_diff(now) > CLOCKS_DIFFER) {
            return Err(
                "auth_timestamp is more than 600 s off: check the clocks, and do not repeat old calls",
            );
        }
        if self.parameter("auth_version") != Some("1.0") {
            return Err("auth_version is not 1.0");
        }
        let digest = hex(&Md5::digest(self.body));
        let is_whole = match self.parameter("body_md5") {
            Some(given) => bool::from(given.as_bytes().ct_eq(digest.as_bytes())),
            None => self.body.is_empty(),
        };
        if is_whole { Ok(()) } else { Err("body_md5 is not that of the body") }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The text that is signed: the parameters in the order of their names, without the signature.
    fn text(&self) -> String {
        let mut parameters: Vec<_> = self.query.iter().filter(|(name, _)| name != "auth_signature").collect();
        parameters.sort();
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}={value}", name.to_lowercase())).collect();
        format!("{}\n{}\n{}", self.method, self.path, parameters.join("&"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The credentials and the results of Pusher's own documentation of its signatures.
    const EXAMPLE: Keys<'static> = Keys { key: "278d425bdf160c739803", secret: "7ad3773142a6692b25b8" };

    fn socket() -> SocketId {
        SocketId::parse("1234.1234").unwrap()
    }

    #[test]
    fn channels_are_signed_as_pusher_documents_it() {
        let channel = ChannelName::parse("private-foobar").unwrap();
        let what = Signed { socket: socket(), channel: &channel, channel_data: None };
        let auth = "278d425bdf160c739803:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4";
        assert_eq!(EXAMPLE.sign(what, None), auth);
        assert_eq!(EXAMPLE.check(auth, what), Some(None));
        let channel = ChannelName::parse("presence-foobar").unwrap();
        let data = r#"{"user_id":10,"user_info":{"name":"Mr. Pusher"}}"#;
        let what = Signed { socket: socket(), channel: &channel, channel_data: Some(data) };
        let auth = "278d425bdf160c739803:afaed3695da2ffd16931f457e338e6c9f2921fa133ce7dac49f529792be6304c";
        assert_eq!(EXAMPLE.sign(what, None), auth);
    }

    #[test]
    fn the_end_of_a_token_is_part_of_what_is_signed() {
        let channel = ChannelName::parse("private-document.42").unwrap();
        let what = Signed { socket: socket(), channel: &channel, channel_data: None };
        let auth = EXAMPLE.sign(what, Some(99));
        assert_eq!(EXAMPLE.check(&auth, what), Some(Some(99)));
        let bare = auth.trim_end_matches(".99").to_owned();
        let changed = auth.replace(".99", ".100");
        let foreign = auth.replacen("278", "279", 1);
        for bad in ["", ":", "a:b", &bare, &changed, &foreign, &auth[..auth.len() - 1], &format!("{auth}.1")]
        {
            assert_eq!(EXAMPLE.check(bad, what), None, "{bad}");
        }
        let other = Signed { socket: SocketId::parse("1234.1235").unwrap(), ..what };
        assert_eq!(EXAMPLE.check(&auth, other), None, "bound to the socket");
    }

    fn call(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_call_is_signed_as_pusher_documents_it() {
        let body = br#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
        let query = call(&[
            ("auth_key", "278d425bdf160c739803"),
            ("auth_timestamp", "1353088179"),
            ("auth_version", "1.0"),
            ("body_md5", "ec365a775a4cd0599faeb73354201b6f"),
            ("auth_signature", "da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c"),
        ]);
        let signed = SignedCall { method: "POST", path: "/apps/3/events", query: &query, body };
        assert_eq!(signed.check(EXAMPLE, 1_353_088_179 + 600), Ok(()));
        assert!(signed.check(EXAMPLE, 1_353_088_179 + 601).unwrap_err().contains("600 s off"));
        let other = SignedCall { body: b"{}", ..signed };
        assert!(other.check(EXAMPLE, 1_353_088_179).unwrap_err().contains("body_md5"));
        let other = SignedCall { path: "/apps/3/batch_events", body, ..other };
        assert!(other.check(EXAMPLE, 1_353_088_179).unwrap_err().contains("does not fit"));
        let none = SignedCall { query: &[], ..other };
        assert!(none.check(EXAMPLE, 0).unwrap_err().contains("auth_key"));
    }
}
