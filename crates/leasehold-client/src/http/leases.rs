//! The leases door of a server, one method per call. As with documents, nothing is decided or repeated here.

use leasehold_core::wire::leases::{AcquireLease, LeaseGrant, LeaseHold, LeaseState, RenewLease};
use leasehold_core::{LeaseId, LeaseName, Ttl};
use reqwest::{Method, Url};

use super::{Error, HttpClient, in_seconds, secret};

impl HttpClient {
    /// Acquires a lease, or gives one's own again, extended. Draw the lease id before the first attempt: then a repeated
    /// attempt cannot get a second lease.
    pub async fn acquire_lease(
        &self,
        name: &LeaseName,
        lease_id: &LeaseId,
        ttl: Option<Ttl>,
        program: Option<&str>,
    ) -> Result<LeaseGrant, Error> {
        let body = AcquireLease {
            lease_id: Some(secret(lease_id)),
            ttl_seconds: ttl.map(in_seconds),
            program: program.map(str::to_owned),
        };
        self.json(self.post(&self.lease_url(name, None)?, &body)).await
    }

    /// Keeps a lease for another TTL, or for a new one.
    pub async fn renew_lease(
        &self,
        name: &LeaseName,
        lease_id: &LeaseId,
        ttl: Option<Ttl>,
    ) -> Result<LeaseHold, Error> {
        let body = RenewLease { ttl_seconds: ttl.map(in_seconds) };
        self.json(self.call(Method::PUT, &self.lease_url(name, None)?, Some(lease_id)).json(&body)).await
    }

    /// Gives a lease back.
    pub async fn release_lease(&self, name: &LeaseName, lease_id: &LeaseId) -> Result<(), Error> {
        self.nothing(self.call(Method::DELETE, &self.lease_url(name, None)?, Some(lease_id))).await
    }

    /// Who holds a lease.
    pub async fn lease(&self, name: &LeaseName) -> Result<LeaseState, Error> {
        self.json(self.call(Method::GET, &self.lease_url(name, None)?, None)).await
    }

    /// Cancels an acquire whose answer is not known, and releases the lease that it may have got.
    pub async fn cancel_lease(&self, name: &LeaseName, lease_id: &LeaseId) -> Result<(), Error> {
        self.nothing(self.call(Method::POST, &self.lease_url(name, Some("cancel"))?, Some(lease_id))).await
    }

    fn lease_url(&self, name: &LeaseName, call: Option<&str>) -> Result<Url, Error> {
        let mut path = vec!["api", "leases", name.as_str()];
        path.extend(call);
        self.at_path(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_the_address_whatever_slashes_it_has() {
        let client = HttpClient::at("http://127.0.0.1:7420").build().unwrap();
        let name = LeaseName::parse("deploy/eu:1").unwrap();
        let url = client.lease_url(&name, Some("cancel")).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:7420/api/leases/deploy%2Feu:1/cancel");
    }
}
