//! Prints `web/src/border.ts`, as `cargo xtask web` writes it.

fn main() {
    print!("{}", leasehold_wasm::typescript());
}
