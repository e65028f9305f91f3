// `leasehold/testing`: stand-ins for the browser, for tests that run anywhere.

export { FakeClock, FakeTimer, settled } from './testing/clock.js';
export { MockNavigatorLocks, type Behaviour } from './testing/locks.js';
export { InMemoryOpfsFile, MockOPFS, type Fault, type Operation, type ShortWrite } from './testing/opfs.js';
export { EventCollector, EventProbe } from './testing/probe.js';
