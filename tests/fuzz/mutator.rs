//! The corpus, the mutator and the clock of a target.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest input. Longer ones are cut.
const BYTES_MAX: usize = 4096;

const TIME: Duration = Duration::from_millis(500);

/// Runs the target over its corpus, and over mutations of it for half a second: the same ones each time. An input on which the
/// target panics is printed, for the corpus.
pub(crate) fn fuzz(name: &str, target: impl Fn(&[u8])) {
    let corpus = corpus(name);
    let run = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
            println!("{name}: \"{}\"", input.escape_ascii());
            resume_unwind(panic);
        }
    };
    for input in &corpus {
        run(input);
    }
    let mut dice = Dice(1);
    let begin = Instant::now();
    let mut input = Vec::new();
    while begin.elapsed() < TIME {
        for _ in 0..256 {
            input.clear();
            input.extend_from_slice(dice.one_of::<Vec<u8>>(&corpus));
            for _ in 0..=dice.below(6) {
                mutate(&mut input, &corpus, &mut dice);
            }
            input.truncate(BYTES_MAX);
            run(&input);
        }
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz/corpus")
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus");
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(input.len() + 1);
    let to = at + dice.below((input.len() - at).min(32) + 1);
    match dice.below(8) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.below(256).to_le_bytes()[0],
        2 => input.insert(at, *dice.one_of(INTERESTING)),
        3 => drop(input.drain(at..to)),
        4 => {
            let part = input[at..to].to_vec();
            let place = dice.below(input.len() + 1);
            input.splice(place..place, part);
        }
        5 => {
            let word = *dice.one_of(WORDS);
            input.splice(at..to, word.iter().copied());
        }
        6 => {
            let other = dice.one_of(corpus);
            let from = dice.below(other.len() + 1);
            let end = from + dice.below((other.len() - from).min(64) + 1);
            input.splice(at..to, other[from..end].iter().copied());
        }
        _ => input.truncate(at),
    }
}

const INTERESTING: &[u8] = b"{}[]\",:\\\n\r \t\0\xff\xef\xbb\xbf=0-9.eE?/u";

const WORDS: &[&[u8]] = &[
    b"\\ud83d",
    b"\\udc00",
    b"\\u0000",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"1.0",
    b"9007199254740993",
    b"\"id\":",
    b"\"method\":",
    b"\"params\":{",
    b"\"_meta\"",
    b"data:",
    b"id:",
    b"event:",
    b"retry:",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\xef\xbb\xbf",
    b"=?base64?",
    b"?=",
    b"AA==",
    b"[[[[",
    b"{\"a\":",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b"\xc3",
    b"[tasks]\n",
    b"\"1s\"",
    b" = ",
];

/// xorshift64*: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
