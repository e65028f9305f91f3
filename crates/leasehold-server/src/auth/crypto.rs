//! The signatures of tokens, made and checked by ring. `jsonwebtoken` reads tokens and leaves the algorithms to the library
//! that its user chooses; those it can bring along take several times as long to build, or have an open advisory.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::error::Unspecified;
use ring::hmac;
use ring::signature::{ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};

/// Makes ring what this process checks tokens with. It changes nothing where the program has chosen already.
pub(super) fn choose() {
    // An error says that the choice was made before, here or by the program around this server.
    let _ = PROVIDER.install_default();
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // Only `Jwk::from_encoding_key` and thumbprints use these, and the server calls neither.
    key_utils: KeyUtils::new_unimplemented(),
};

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => {
            Ok(Box::new(Hs256(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => {
            Ok(Box::new(Hs256(hmac::Key::new(hmac::HMAC_SHA256, key.try_get_as_bytes()?))))
        }
        (Algorithm::RS256, AlgorithmFamily::Rsa) => Ok(Box::new(Rs256(key.clone()))),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => Ok(Box::new(EdDsa(key.clone()))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

/// ring does not say why a signature is wrong, so that nothing can leak.
fn wrong(_: Unspecified) -> Error {
    Error::new()
}

struct Hs256(hmac::Key);

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        hmac::verify(&self.0, message, signature).map_err(wrong)
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

struct Rs256(DecodingKey);

impl Verifier<Vec<u8>> for Rs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let algorithm = &RSA_PKCS1_2048_8192_SHA256;
        match self.0.kind() {
            DecodingKeyKind::SecretOrDer(der) => {
                UnparsedPublicKey::new(algorithm, der).verify(message, signature)
            }
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(algorithm, message, signature)
            }
        }
        .map_err(wrong)
    }
}

impl JwtVerifier for Rs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::RS256
    }
}

struct EdDsa(DecodingKey);

impl Verifier<Vec<u8>> for EdDsa {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let key = self.0.try_get_as_bytes().map_err(Error::from_source)?;
        UnparsedPublicKey::new(&ED25519, key).verify(message, signature).map_err(wrong)
    }
}

impl JwtVerifier for EdDsa {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}
