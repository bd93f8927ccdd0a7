//! Repeats one piece of raincheck's work, so that valgrind can count its instructions: `counted PIECE TIMES`.
//!
//! `benches/instructions` runs it with N and with 2N times: the difference has no setup in it.

mod pieces;

use std::process::ExitCode;

use raincheck::platform;

/// The allocator of raincheck itself.
#[global_allocator]
static ALLOCATOR: platform::Allocator = platform::ALLOCATOR;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command")]
fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (piece, times) = (words.next(), words.next());
    let times = times.and_then(|times| times.parse::<u64>().ok());
    let found = pieces::ALL
        .iter()
        .find(|(name, _)| Some(*name) == piece.as_deref());
    match (found, times) {
        (Some((_, run)), Some(times)) => match run(times) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        (None, None) if piece.is_none() => {
            for (name, _) in pieces::ALL {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("error: counted PIECE TIMES; without arguments it lists the pieces");
            ExitCode::from(2)
        }
    }
}
