//! One child process, from its start to the end of its process group: lines in, lines out.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::base::io_reason::io_reason;
use crate::base::lock::Mutex;
use crate::mcp::error::Failure;
use crate::platform::child::{is_out_of_room, separate};
use crate::platform::group::Group;
use crate::platform::pipe::{Pipe, is_empty, left_unread};
use crate::telemetry::counted::Counted;
use crate::upstream::credentials::LatestCredentials;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::line::health::LineHealth;
use crate::upstream::line::overlong::{Overlong, OverlongVerdict, too_large};
use crate::upstream::line::writer::{LineEnd, LineListener, LineWriter, Outbound, Yielder};
use crate::upstream::obstacle::{Obstacle, Obstacles};
use crate::upstream::pool::SessionPermit;
use crate::upstream::stdio::hearing::Hearing;
use crate::upstream::stdio::lines::{LineSplitter, LineTooLong, TooLong};
use crate::upstream::stdio::spawner::Spawner;
use crate::upstream::stdio::unread::Unread;
use crate::upstream::stdio::{Program, stderr};

/// The time that a child may take to end by itself, once its standard input is closed and again after SIGTERM. Then
/// SIGKILL follows.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// The time that the output is read after the process has ended. The output that the process wrote comes through
/// the pipe soon; a process that it left behind may hold the pipe for longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The parts that all children of one program have in common.
#[derive(Debug)]
pub(in crate::upstream) struct ProcessLauncher {
    pub(in crate::upstream) program: Program,
    pub(in crate::upstream) spawner: Arc<Spawner>,
    pub(in crate::upstream) services: TaskTracker,
    pub(in crate::upstream) health: Arc<Mutex<LineHealth>>,
    /// The obstacles that kept the program from running, for the operator.
    pub(in crate::upstream) obstacles: Arc<Obstacles>,
    /// The size of a line that ends the child.
    pub(in crate::upstream) bytes_max: usize,
    /// Cancelled to end every child, also one that is being started.
    pub(in crate::upstream) stop: CancellationToken,
}

impl ProcessLauncher {
    /// The health of the program. Do not hold the guard across other work.
    pub(in crate::upstream) fn health(&self) -> MutexGuard<'_, LineHealth> {
        self.health.lock()
    }

    /// Starts a process, which keeps the permit until nothing is left of it. Waits if the last processes died
    /// quickly, and fails at once if the program cannot be run.
    pub(in crate::upstream) async fn start<E: LineListener>(
        &self,
        permit: SessionPermit,
        listener: impl FnOnce(LineWriter) -> Arc<E>,
    ) -> Result<Arc<E>, Failure> {
        let (pause, cannot_run) = {
            let health = self.health();
            (health.pause(Instant::now()), health.cannot_run())
        };
        // Once the pause is over, one start shows whether the program can be run again.
        if cannot_run && !pause.is_zero() {
            return Err(UNREACHABLE);
        }
        tokio::time::sleep(pause).await;
        let process = match self.spawner.spawn(self.command()).await {
            Ok(process) => process,
            Err(error) => {
                let reason = self.not_started(&error);
                warn!(error = %reason, "the server's process could not be started");
                self.obstacles.note(Obstacle::NotStarted(reason));
                // A program that cannot be started counts as one that died at once, unless there is no room for any: what runs
                // may answer.
                if !is_out_of_room(&error) {
                    self.health().died(Duration::ZERO, false, Instant::now());
                }
                return Err(UNREACHABLE);
            }
        };
        let (stop, health) = (self.stop.child_token(), Arc::clone(&self.health));
        let (writer, outbound) = LineWriter::new(stop, health, LatestCredentials::default());
        let listener = listener(writer.clone());
        let life = ChildLife {
            process,
            writer,
            listener: Arc::clone(&listener),
            services: self.services.clone(),
            obstacles: Arc::clone(&self.obstacles),
            bytes_max: self.bytes_max,
            _thread: Arc::clone(&self.spawner),
            _permit: permit,
            _counted: Counted::process(),
        };
        self.services.spawn(life.run(outbound));
        Ok(listener)
    }

    /// The reason why no process came about. Where the system has no `/proc`, raincheck itself is not found.
    fn not_started(&self, error: &io::Error) -> String {
        let launcher = &self.program.launcher;
        if launcher.exists() {
            io_reason(error)
        } else {
            format!("{}: {}", launcher.display(), io_reason(error))
        }
    }

    fn command(&self) -> Command {
        let program = &self.program;
        let mut command = Command::new(&program.launcher);
        command.arg("__child");
        if let Some(open_files) = program.open_files {
            command.arg("--open-files").arg(open_files.to_string());
        }
        command
            .arg(std::process::id().to_string())
            .arg("--")
            .arg(&program.name)
            .args(&program.arguments)
            .env_clear()
            .envs(program.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        separate(&mut command);
        if let Some(directory) = &program.directory {
            command.current_dir(directory);
        }
        command
    }
}

struct ChildLife<E> {
    process: Child,
    writer: LineWriter,
    listener: Arc<E>,
    services: TaskTracker,
    obstacles: Arc<Obstacles>,
    bytes_max: usize,
    /// The child dies with the thread that started it.
    _thread: Arc<Spawner>,
    _permit: SessionPermit,
    _counted: Counted,
}

impl<E: LineListener> ChildLife<E> {
    async fn run(mut self, outbound: mpsc::Receiver<Outbound>) {
        let born = Instant::now();
        let pid = self.process.id().unwrap_or_default();
        let pipes = (
            self.process.stdin.take(),
            self.process.stdout.take(),
            self.process.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(errors)) = pipes else {
            return self.listener.over(LineEnd::Gone);
        };
        debug!(pid, "a process of the server was started");
        let group = Group::of(pid);
        let errors = self.services.spawn(stderr::drain(errors, pid));
        let stop = self.writer.stopping().clone();
        let closing = stop.child_token();
        let writing = write(stdin, outbound, closing.clone(), self.writer.clone());
        let writing = self.services.spawn(writing);
        let hears = self.writer.clone();
        let reading = read(stdout, self.bytes_max, &*self.listener, hears, pid);
        let mut reading = std::pin::pin!(reading);
        let (end, has_launched) =
            until_over(&mut self.process, reading.as_mut(), &closing, &self.writer).await;
        // This comes before a caller hears of the end and wants another process.
        if end != LineEnd::Stopped {
            self.writer.ended(born);
        }
        // The writer ends, and with it the child's standard input. It finds out first what was not read, which is tried again.
        closing.cancel();
        let _ = writing.await;
        self.listener.over(end);
        if end != LineEnd::Gone || self.process.try_wait().ok().flatten().is_none() {
            // What the process still writes is read and ignored, so that it need not wait to write it.
            let reading = (end == LineEnd::Stopped).then_some(reading);
            end_process((&mut self.process, has_launched), reading, end, &group).await;
        }
        drop(group);
        let lived = Instant::now().saturating_duration_since(born);
        let ended = self.process.wait().await;
        let status = match &ended {
            Ok(status) => status.to_string(),
            Err(error) => io_reason(error),
        };
        let words = last_words(errors).await;
        if end == LineEnd::Stopped {
            debug!(pid, status, "a process of the server has ended");
        } else {
            // The reason may be in a line that was one too many for the log.
            warn!(pid, status, ?end, last_words = ?words, "a process of the server ended by itself");
        }
        if let (LineEnd::Gone, Ok(status)) = (end, ended) {
            self.obstacles.note(Obstacle::Ended {
                status,
                lived,
                words,
            });
        }
    }
}

/// Waits for the end of the line. Returns it, and `true` if the process was a launcher, which ended well and left its pipes to
/// the server.
async fn until_over<R>(
    process: &mut Child,
    mut reading: Pin<&mut R>,
    closing: &CancellationToken,
    writer: &LineWriter,
) -> (LineEnd, bool)
where
    R: Future<Output = LineEnd>,
{
    let mut has_launched = false;
    let end = loop {
        tokio::select! {
            end = &mut reading => break end,
            status = process.wait(), if !has_launched => {
                // A server that has answered is no launcher, and a helper that it leaves answers nothing.
                has_launched = status.is_ok_and(|status| status.success()) && !writer.has_answered();
                if has_launched {
                    continue;
                }
            }
            () = closing.cancelled() => if writer.stopping().is_cancelled() {
                break LineEnd::Stopped;
            }
        }
        // The process reads no more, or has ended. What it wrote before still counts.
        let last = timeout(LAST_WORDS, &mut reading).await;
        break last.unwrap_or(LineEnd::Gone);
    };
    if end == LineEnd::Gone {
        // A process that ends closes its output before its input, and only then it is certain what it has not read.
        let _ = timeout(LAST_WORDS, process.wait()).await;
    }
    (end, has_launched)
}

/// Returns what was last written to standard error.
async fn last_words<T: Default>(errors: JoinHandle<T>) -> T {
    // A process that left the group may still hold the pipe.
    let abort = errors.abort_handle();
    let words = timeout(LAST_WORDS, errors).await;
    if words.is_err() {
        abort.abort();
    }
    words.ok().and_then(Result::ok).unwrap_or_default()
}

/// Waits for the end of a process whose standard input is closed, and then signals it. Where the process was a launcher, and has
/// ended, the output of the server ends with the server.
async fn end_process<R>(
    mut process: (&mut Child, bool),
    mut reading: Option<Pin<&mut R>>,
    end: LineEnd,
    group: &Group,
) where
    R: Future<Output = LineEnd>,
{
    let pid = group.pid();
    if end != LineEnd::TooLarge {
        if leaves(&mut process, &mut reading).await {
            return;
        }
        if group.ask_to_end() {
            info!(pid, "the server does not end with its input: SIGTERM");
            if leaves(&mut process, &mut reading).await {
                return;
            }
        }
    }
    info!(pid, "the server is killed");
    group.kill(process.0);
}

async fn leaves<R>(
    (process, has_launched): &mut (&mut Child, bool),
    reading: &mut Option<Pin<&mut R>>,
) -> bool
where
    R: Future<Output = LineEnd>,
{
    let left = async {
        loop {
            let read = async {
                match reading.as_mut() {
                    Some(reading) => reading.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = process.wait(), if !*has_launched => return,
                _ = read => {
                    // A future that has resolved must not be polled again.
                    *reading = None;
                    if *has_launched {
                        return;
                    }
                }
            }
        }
    };
    timeout(LEAVE_PATIENCE, left).await.is_ok()
}

/// Writes messages, one on each line, until the child has to end or stops reading.
async fn write(
    mut stdin: impl AsyncWrite + Pipe + Unpin,
    mut outbound: mpsc::Receiver<Outbound>,
    closing: CancellationToken,
    writer: LineWriter,
) {
    let (mut is_written, mut is_read) = (false, false);
    let mut unread = Unread::default();
    let work = async {
        loop {
            let message = tokio::select! {
                message = outbound.recv() => message,
                () = is_empty(&stdin), if is_written && !is_read => {
                    is_read = true;
                    writer.reads();
                    continue;
                }
            };
            let Some(message) = message else { return };
            if let Some(request) = message.send_state {
                // Its caller may have withdrawn the message while it waited in the queue.
                if !request.begin() {
                    continue;
                }
                unread.begin(request);
            }
            let mut text = message.text.into_bytes();
            // The official Go SDK ends at white space between a message and its line feed.
            text.truncate(text.trim_ascii_end().len());
            // A line feed between tokens is white space; inside strings it is escaped.
            for byte in &mut text {
                if *byte == b'\n' || *byte == b'\r' {
                    *byte = b' ';
                }
            }
            text.push(b'\n');
            let mut rest = &*text;
            while !rest.is_empty() {
                let Ok(count @ 1..) = stdin.write(rest).await else {
                    return;
                };
                unread.written += count as u64;
                rest = rest.get(count..).unwrap_or_default();
            }
            is_written = true;
        }
    };
    closing.run_until_cancelled(work).await;
    if let Some(left) = left_unread(&stdin) {
        unread.take_back(left);
    }
    // A process that takes no more input cannot answer, so the reader ends soon, too.
    closing.cancel();
}

/// Reads messages until the output ends. Lines that are no message are counted and skipped.
async fn read(
    mut stdout: impl AsyncRead + Unpin,
    bytes_max: usize,
    listener: &impl LineListener,
    writer: LineWriter,
    pid: u32,
) -> LineEnd {
    let mut lines = LineSplitter::new(bytes_max, TooLong::Refuse);
    let mut hearing = Hearing::new(listener, writer, pid, bytes_max);
    let mut yielder = Yielder::default();
    let mut buffer = vec![0; 64 * 1024];
    let mut overlong: Option<Overlong> = None;
    while let Ok(count @ 1..) = stdout.read(&mut buffer).await {
        let mut bytes = buffer.get(..count).unwrap_or_default();
        while !bytes.is_empty() {
            if let Some(skipped) = &mut overlong {
                match skipped.next(&mut bytes) {
                    OverlongVerdict::Open => {}
                    OverlongVerdict::Nobodys => return LineEnd::TooLarge,
                    OverlongVerdict::Needless => overlong = None,
                    OverlongVerdict::Answer(id) => {
                        overlong = None;
                        listener.heard(too_large(id), "");
                    }
                }
                continue;
            }
            match lines.next(&mut bytes) {
                Ok(Some(line)) => hearing.hear(line),
                Ok(None) => break,
                Err(LineTooLong) => {
                    warn!(pid, bytes_max, "the server wrote a line that is too long");
                    let mut begun = Overlong::default();
                    if begun.next(&mut &*lines.take_refused()) == OverlongVerdict::Nobodys {
                        return LineEnd::TooLarge;
                    }
                    overlong = Some(begun);
                }
            }
            yielder.heard(listener).await;
        }
    }
    // The last line counts even without a line end, if it is a message.
    hearing.end(lines.rest());
    LineEnd::Gone
}
