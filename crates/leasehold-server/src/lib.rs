//! The Leasehold server.
