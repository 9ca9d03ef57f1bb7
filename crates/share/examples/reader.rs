//! A process that reads what `rhumb serve --share db0` shares.
//!
//! `cargo run --release -p rhumb-share --example reader -- rhumb-data.sock fruit:`

use rhumb_remote::{Client, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let socket = args.next().unwrap_or_else(|| "rhumb-data.sock".to_owned());
    let strings = Client::connect(socket)?.strings(0)?;
    for pair in strings.prefix(args.next().unwrap_or_default()) {
        let (key, string) = pair?;
        println!("{}\t{}", key.escape_ascii(), string.escape_ascii());
    }
    Ok(())
}
