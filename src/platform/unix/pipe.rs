//! The state of a pipe, which its bytes alone do not show.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write as _, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};

/// Anything that has a descriptor.
pub trait Pipe: AsFd {}
impl<T: AsFd> Pipe for T {}

/// A pipe that has any room takes so many bytes without a wait: `PIPE_BUF`.
pub const AT_ONCE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

/// The time between two looks whether a reader has emptied a pipe.
const LOOK: Duration = Duration::from_millis(50);

/// The threads that a runtime may have for work that blocks, where its other work needs so many: pipes of processes need none.
pub const fn blocking_threads(others: usize) -> usize {
    others
}

/// Resolves when all bytes in the pipe were read. This distinguishes a program that is slow to start from one that reads
/// and sends nothing.
pub async fn is_empty(pipe: &impl Pipe) {
    while ioctl_fionread(pipe).is_ok_and(|unread| unread > 0) {
        // The kernel reports room in a pipe, but not that the reader has emptied it.
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns how many bytes are left in a pipe that no process can read any more. `None`: one can, or the system does not show it.
pub fn left_unread(pipe: &impl Pipe) -> Option<u64> {
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).ok()?;
    let has_ended = |it: &PollFd<'_>| it.revents().intersects(PollFlags::ERR | PollFlags::HUP);
    polled.iter().any(has_ended).then_some(())?;
    ioctl_fionread(pipe).ok()
}

/// Resolves when no process can read standard output any more. Never resolves for a file or a device.
pub async fn output_has_no_reader() {
    // The thread may wait until the process ends: nothing else wakes it.
    let waiting = tokio::task::spawn_blocking(|| {
        // The system reports a hang-up without being asked to.
        let output = stdout();
        let mut output = [PollFd::new(&output, PollFlags::empty())];
        loop {
            match poll(&mut output, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return true,
            }
        }
    });
    if !matches!(waiting.await, Ok(true)) {
        std::future::pending::<()>().await;
    }
}

/// Returns `true` if a write of at most [`AT_ONCE`] bytes takes no wait. A pipe whose reader is gone fails at once.
pub fn has_room(pipe: &File) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Blocks until the pipe has room, or its reader is gone.
pub fn wait_for_room(pipe: &File) -> io::Result<()> {
    match poll(&mut [PollFd::new(pipe, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        // This is a failure of `poll` itself. As `WouldBlock` it would be taken for a full pipe.
        Err(Errno::AGAIN) => Err(ErrorKind::Other.into()),
        Err(error) => Err(error.into()),
    }
}

/// Writes to standard error.
pub fn write_error(mut to: &File, bytes: &[u8]) -> io::Result<usize> {
    to.write(bytes)
}

/// Returns `true` if a write waits for no reader.
pub fn never_waits(found: &Metadata) -> bool {
    found.is_file()
}

/// Standard error as it is now, whatever later becomes of its number.
pub fn standard_error() -> io::Result<File> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn what_nobody_can_read_any_more_is_counted() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"request\nrequest\n").unwrap();
        reader.read_exact(&mut [0; 10]).unwrap();
        assert_eq!(left_unread(&writer), None, "somebody can read it");
        drop(reader);
        assert_eq!(left_unread(&writer), Some(6));
    }
}
