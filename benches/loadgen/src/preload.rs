//! Creates the tasks that a measurement asks for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::calls::{fresh, is_completed};
use crate::client::Client;
use crate::options::Options;
use crate::tally::{CreatedTask, Prepared, Tally};
use crate::wire::Call;

const POLL: Duration = Duration::from_millis(10);
const TIME_MIN: Duration = Duration::from_mins(1);

/// Creates tasks and waits until all are completed.
pub(crate) async fn preload(options: &Arc<Options>, tally: &Tally) -> Result<(), String> {
    let mut client = Client::new(options, None);
    let mut tasks = Vec::with_capacity(options.preload);
    for _ in 0..options.preload {
        client.ready().await?;
        let (id, nonce) = fresh();
        let session = client.session_id();
        let request = options.call(Call {
            id,
            session: session.as_deref(),
            arguments: &format!(r#""nonce":"{nonce}""#),
            wants_task: true,
            wants_progress: false,
        });
        let outcome = client.request(id, &request, |_| {}).await?;
        let id = outcome.created_task(options.wire)?;
        tasks.push(CreatedTask { id, nonce });
    }
    let last = Instant::now() + options.timeout.max(TIME_MIN);
    for task in &tasks {
        while !is_completed(&mut client, options, &task.id, Some(&task.nonce)).await? {
            if Instant::now() > last {
                return Err(format!("{} never completed", task.id));
            }
            sleep(POLL).await;
        }
    }
    let session = Some(client.session().clone());
    tally.prepare(Prepared { tasks, session });
    Ok(())
}
