//! Tests of the way to standard error: with pipes, sockets and devices in its place.

#![cfg(unix)]

use std::io::{PipeReader, Read as _, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use super::*;

/// An output without its thread, to a pipe.
fn piped() -> (Output, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    (Output::new(OwnedFd::from(writer).into()), reader)
}

fn read(reader: &mut PipeReader) -> String {
    let mut bytes = [0; AT_ONCE];
    let count = reader.read(&mut bytes).unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

/// Says a line of a request, with the time between these texts.
fn say_soon(output: &Output, before: &str, after: &str) {
    output.say_soon(|own| {
        own.bytes.extend_from_slice(before.as_bytes());
        own.stamp(0);
        own.bytes.extend_from_slice(after.as_bytes());
    });
}

/// Says a line of a kind that may come often.
fn say_if_rare(output: &Output, line: &[u8]) {
    output.say_now_if_rare(|own| own.bytes.extend_from_slice(line));
}

/// The lines that this thread has gathered.
fn gathered(output: &Output) -> String {
    String::from_utf8(output.gathered.here().lock().bytes.clone()).unwrap()
}

#[test]
fn a_rare_line_is_out_at_once_with_what_gathered_before_it() {
    let (output, mut reader) = piped();
    say_soon(&output, "[", "] one\n");
    assert!(!gathered(&output).is_empty(), "it waits");
    output.say_now(b"two\n");
    assert_eq!(
        read(&mut reader),
        "[1970-01-01T00:00:00.000000Z] one\ntwo\n"
    );
}

#[test]
fn a_line_of_a_frequent_kind_is_out_at_once_if_it_is_rare_and_gathers_if_it_is_not() {
    let (output, mut reader) = piped();
    say_if_rare(&output, b"one\n");
    assert_eq!(read(&mut reader), "one\n");
    say_if_rare(&output, b"two\n");
    say_if_rare(&output, b"three\n");
    assert_eq!(gathered(&output), "two\nthree\n", "they wait");
    output.write_next(telling(&output));
    assert_eq!(read(&mut reader), "two\nthree\n");
    let before = Instant::now().checked_sub(GATHERING);
    output.waiting.lock().last_frequent = before;
    say_if_rare(&output, b"four\n");
    assert_eq!(read(&mut reader), "four\n");
}

/// Tells as the thread does.
fn telling(output: &Output) -> impl FnOnce(u64) + '_ {
    |lines| output.say_in_any_case(format!("dropped {lines}\n").as_bytes())
}

#[test]
fn lines_of_requests_are_bounded_and_each_is_written_or_counted() {
    let (output, mut reader) = piped();
    let said = 2 * (1 << 20) / 64;
    for number in 0..said {
        say_soon(&output, &format!("{number:032}"), " x\n");
        let waiting = output.waiting.lock().lines.len();
        assert!(waiting + gathered(&output).len() <= 1 << 20);
    }
    let dropped = output.waiting.lock().dropped;
    assert!(dropped > 0);
    let writing = thread::spawn(move || {
        output.write_next(telling(&output));
        output.write_next(telling(&output));
        assert_eq!(gathered(&output), "");
    });
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    writing.join().unwrap();
    let (told, lines): (Vec<_>, Vec<_>) = text.lines().partition(|it| it.starts_with("dropped"));
    assert_eq!(told, [format!("dropped {dropped}")]);
    assert_eq!(lines.len() as u64 + dropped, said);
    assert!(lines.is_sorted() && lines.iter().all(|line| line.ends_with("Z x")));
}

/// Says more lines than a pipe and the buffer take. Returns how many.
fn overfill(output: &Output) -> u64 {
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    let lines = 3 * WAITING_MAX / line.len();
    for _ in 0..lines {
        output.say_now(&line);
    }
    assert!(output.waiting.lock().dropped > 0);
    lines as u64
}

#[test]
fn a_slow_reader_holds_nobody_up_and_hears_of_each_line_that_is_lost() {
    let (output, mut reader) = piped();
    let mut said = overfill(&output);
    let (half, has_half) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut text = vec![0; WAITING_MAX / 2];
        reader.read_exact(&mut text).unwrap();
        half.send(()).unwrap();
        goes.recv().unwrap();
        reader.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                output.write_next(telling(&output));
            }
        });
        has_half.recv().unwrap();
        // The reader is slow again, while a half of the first batch is to be written.
        said += overfill(&output);
        go.send(()).unwrap();
    });
    assert_eq!(output.waiting.lock().dropped, 0, "told once it flows");
    drop(output);
    let text = reading.join().unwrap();
    let told = |line: &str| line.strip_prefix("dropped ")?.parse::<u64>().ok();
    let told: Vec<u64> = text.lines().filter_map(told).collect();
    let read = (text.lines().count() - told.len()) as u64;
    assert_eq!(told.len(), 2);
    assert_eq!(read + told.iter().sum::<u64>(), said);
}

#[test]
fn what_may_wait_for_its_reader_is_left_to_the_thread() {
    // A device, as terminals are.
    let device = File::options().write(true).open("/dev/null").unwrap();
    let output = Output::new(device);
    output.say_now(b"one\n");
    assert!(!output.waiting.lock().lines.is_empty());
    output.write_next(telling(&output));
    assert!(output.finish());
}

#[test]
fn a_pipe_that_others_made_not_to_wait_takes_every_line_whole() {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    let output = Output::new(OwnedFd::from(writer).into());
    let mut expected = String::new();
    for number in 0..10_000 {
        let line = format!("{number:064}\n");
        output.say_now(line.as_bytes());
        expected.push_str(&line);
    }
    let reading = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    output.write_next(telling(&output));
    assert!(output.finish());
    assert_eq!(output.waiting.lock().dropped, 0);
    drop(output);
    assert!(reading.join().unwrap() == expected);
}

#[test]
fn a_torn_line_is_ended_before_the_next() {
    let (output, mut reader) = piped();
    output.writing.lock().is_torn = true;
    output.say_now(b"two\n");
    output.write_next(telling(&output));
    assert_eq!(read(&mut reader), "\ntwo\n");
    output.say_now(b"three\n");
    assert_eq!(read(&mut reader), "three\n");
}

#[test]
fn a_line_larger_than_the_buffer_has_room_alone() {
    let mut waiting = WaitingLines::default();
    assert!(waiting.has_room(WAITING_MAX + 1));
    waiting.push(b"one\n");
    assert!(!waiting.has_room(WAITING_MAX + 1));
    assert!(waiting.has_room(WAITING_MAX - 4));
}

#[test]
fn the_end_waits_only_for_what_was_said_before_it() {
    let (output, _reader) = piped();
    say_soon(&output, "", "\n");
    thread::scope(|scope| {
        let ending = scope.spawn(|| output.finish());
        while !output.waiting.lock().is_urgent {
            thread::yield_now();
        }
        let mut waiting = output.waiting.lock();
        waiting.done = waiting.queued;
        waiting.push(b"later\n");
        drop(waiting);
        output.gone.notify_all();
        assert!(ending.join().unwrap());
    });
}

#[test]
fn the_end_waits_for_the_last_lines_and_not_for_a_reader_that_is_away() {
    let (output, mut reader) = piped();
    assert!(output.finish());
    say_soon(&output, "", "\n");
    let began = Instant::now();
    // Its thread does not run: nobody writes the line.
    assert!(!output.finish());
    assert!(began.elapsed() >= LAST_LINES);
    thread::scope(|scope| {
        scope.spawn(|| output.write_next(telling(&output)));
        assert!(output.finish());
    });
    assert!(output.waiting.lock().lines.is_empty());
    assert_eq!(
        read(&mut reader).len(),
        "1970-01-01T00:00:00.000000Z\n".len()
    );
}

#[test]
fn lines_that_a_closed_pipe_does_not_take_are_counted() {
    let (output, reader) = piped();
    drop(reader);
    output.say_now(b"one\n");
    output.say_now(b"two\n");
    assert_eq!(output.waiting.lock().dropped, 1, "the second waits");
    output.write_next(telling(&output));
    assert_eq!(output.waiting.lock().dropped, 2, "nobody was told");
}
