//! One call of each mode: what is sent, what is checked, and which latencies count.

use std::sync::Arc;
use std::time::Duration;

use common::monotonic_ns;
use tokio::time::{Instant, sleep};

use crate::answer::{Message, quoted};
use crate::client::Client;
use crate::options::{Options, Repeated};
use crate::tally::{CreatedTask, Tally, next_id};
use crate::wire::Call;

/// A caller: one connection that calls again and again.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) what: Repeated,
    pub(crate) client: Client,
    pub(crate) options: Arc<Options>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) latencies_ns: Vec<u64>,
    /// The state of the generator that chooses tasks.
    pub(crate) draw: u64,
}

impl Caller {
    /// Makes one call. `began` is when it was due.
    pub(crate) async fn call(&mut self, began: Instant) -> Result<(), String> {
        self.client.ready().await?;
        match self.what {
            Repeated::Passthrough | Repeated::Declared => self.call_tool().await?,
            Repeated::List => self.list_tools().await?,
            Repeated::Sse => return self.read_events().await,
            Repeated::TaskCreate => {
                let task = self.create_task().await?;
                self.note(began);
                self.tally.add_task(task);
                return Ok(());
            }
            Repeated::TaskGet => self.get_any_task().await?,
            Repeated::TaskLifecycle => self.follow_task().await?,
        }
        self.note(began);
        Ok(())
    }

    fn note(&mut self, began: Instant) {
        let took = Instant::now().saturating_duration_since(began);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latencies_ns.push(took);
    }

    async fn call_tool(&mut self) -> Result<(), String> {
        let (id, nonce) = fresh();
        let session = self.client.session_id();
        let request = self.options.call(Call {
            id,
            session: session.as_deref(),
            arguments: &self.nonce_argument(&nonce),
            wants_task: self.what == Repeated::Declared,
            wants_progress: false,
        });
        let outcome = self.client.request(id, &request, |_| {}).await?;
        outcome.check_call(&nonce, &self.options)
    }

    async fn list_tools(&mut self) -> Result<(), String> {
        let id = next_id();
        let session = self.client.session_id();
        let request = self.options.list_tools(id, session.as_deref());
        self.client
            .request(id, &request, |_| {})
            .await?
            .check_list()
    }

    /// Calls `stream`. Each event is a latency of its own.
    async fn read_events(&mut self) -> Result<(), String> {
        let (id, nonce) = fresh();
        let options = Arc::clone(&self.options);
        let arguments = [
            self.nonce_argument(&nonce),
            format!(r#""n":{}"#, options.events),
            format!(r#""interval_ms":{}"#, options.interval_ms),
            format!(r#""pad":{}"#, options.pad),
        ];
        let session = self.client.session_id();
        let request = options.call(Call {
            id,
            session: session.as_deref(),
            arguments: arguments.join(",").trim_start_matches(','),
            wants_task: false,
            wants_progress: true,
        });
        let token = format!(r#""progressToken":{id}"#);
        let (mut events, mut foreign) = (0, None);
        let latencies = &mut self.latencies_ns;
        let heard = |message: &Message<'_>| {
            let now = monotonic_ns();
            if message.notification() == Some("notifications/progress") {
                let params = message.params.map_or("", |params| params.get());
                events += 1;
                if !params.contains(&token) {
                    let params = quoted(params.as_bytes());
                    foreign = Some(format!("progress of another call: {params}"));
                }
                latencies.extend(sent_ns(params).map(|sent| now.saturating_sub(sent)));
            }
        };
        let outcome = self.client.request(id, &request, heard).await?;
        if let Some(foreign) = foreign {
            return Err(foreign);
        }
        if events != options.events {
            return Err(format!("{events} events of {}", options.events));
        }
        self.tally.count_events(events);
        outcome.check_call(&nonce, &options)
    }

    async fn create_task(&mut self) -> Result<CreatedTask, String> {
        let mut arguments = Vec::new();
        let (id, nonce) = fresh();
        if self.options.checks_nonce {
            arguments.push(self.nonce_argument(&nonce));
        }
        if self.options.tool == "slow" {
            arguments.push(format!(r#""ms":{}"#, self.options.slow_ms));
        }
        let session = self.client.session_id();
        let request = self.options.call(Call {
            id,
            session: session.as_deref(),
            arguments: &arguments.join(","),
            wants_task: true,
            wants_progress: false,
        });
        let outcome = self.client.request(id, &request, |_| {}).await?;
        Ok(CreatedTask {
            id: outcome.created_task(self.options.wire)?,
            nonce,
        })
    }

    async fn get_any_task(&mut self) -> Result<(), String> {
        // A linear congruential generator: its high bits are spread well enough to choose tasks.
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let task = self.tally.any_task(self.draw >> 33);
        let task = task.ok_or("no task was created")?;
        if self.is_completed(&task).await? {
            Ok(())
        } else {
            Err(format!("{} is not completed any more", task.id))
        }
    }

    async fn follow_task(&mut self) -> Result<(), String> {
        let task = self.create_task().await?;
        let last = Instant::now() + self.options.timeout;
        while !self.is_completed(&task).await? {
            if Instant::now() > last {
                return Err("task never completed".to_owned());
            }
            if self.options.poll_ms > 0 {
                sleep(Duration::from_millis(self.options.poll_ms)).await;
            }
        }
        Ok(())
    }

    async fn is_completed(&mut self, task: &CreatedTask) -> Result<bool, String> {
        is_completed(&mut self.client, &self.options, &task.id, Some(&task.nonce)).await
    }

    fn nonce_argument(&self, nonce: &str) -> String {
        if self.options.checks_nonce {
            format!(r#""nonce":"{nonce}""#)
        } else {
            String::new()
        }
    }
}

/// Asks for a task. With a nonce its result is checked.
pub(crate) async fn is_completed(
    client: &mut Client,
    options: &Options,
    task: &str,
    nonce: Option<&str>,
) -> Result<bool, String> {
    let id = next_id();
    let session = client.session_id();
    let request = options.get_task(id, session.as_deref(), task);
    let outcome = client.request(id, &request, |_| {}).await?;
    outcome.is_completed(task, nonce, options)
}

/// An id, and the nonce that its result must say.
pub(crate) fn fresh() -> (u64, String) {
    let id = next_id();
    (id, format!("n{id}"))
}

/// When the server made an event, by its own words: `t=<nanoseconds>`.
fn sent_ns(params: &str) -> Option<u64> {
    let (_, rest) = params.split_once("t=")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
