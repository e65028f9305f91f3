//! Every law on every store.

mod memory {
    leasehold_store::conformance_tests!(crate::harness::MemoryHarness::new());
}

mod embedded_exclusive {
    leasehold_store::conformance_tests!(crate::harness::EmbeddedHarness::new(
        leasehold_store::Mode::Exclusive
    ));
}

mod embedded_shared {
    leasehold_store::conformance_tests!(crate::harness::EmbeddedHarness::new(leasehold_store::Mode::Shared));
}
