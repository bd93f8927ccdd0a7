//! Jobs of job tools over the end of the replica that follows them.

use serde_json::{Value, json};

use crate::job_tools::{RULE, config, start, text};
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::upstream::Tally;
use crate::support::{Config, Era, Rig, Upstream, in_both_eras};

in_both_eras!(
    a_job_outlives_the_replica_that_started_it,
    a_job_goes_on_through_a_drain,
    a_job_goes_on_after_a_restart_with_the_embedded_store,
    a_start_with_a_key_is_sent_again,
    a_start_with_a_key_is_left_to_another_replica,
);

async fn pair(era: Era) -> Pair {
    let upstream = Upstream::with_jobs(era).await;
    let config = config("result = \"job_result\"")
        .section("upstream", "shared = true")
        .store(&format!("seal_key = {SEAL_KEY:?}"));
    Pair::of(upstream, config).await
}

async fn a_job_outlives_the_replica_that_started_it(era: Era) {
    let mut pair = pair(era).await;
    let task = start(&pair.at_a()).await;
    pair.until_resumable(&task).await;
    pair.a.kill();
    pair.upstream.job_is("a", json!({"status": "done"}));
    let state = pair.at_b().until(&task, "completed").await;
    assert_eq!(text(&state["result"]), "the result of a");
    assert_eq!(pair.upstream.tally("job_start").started, 1);
}

async fn a_job_goes_on_through_a_drain(era: Era) {
    let mut pair = pair(era).await;
    let task = start(&pair.at_a()).await;
    pair.until_resumable(&task).await;
    assert!(pair.a.stop().await.success());
    assert_eq!(pair.at_b().get(&task).await["status"], "working");
    pair.upstream.job_is("a", json!({"status": "done"}));
    let state = pair.at_b().until(&task, "completed").await;
    assert_eq!(text(&state["result"]), "the result of a");
    assert_eq!(pair.upstream.tally("job_start").started, 1);
    assert_eq!(pair.upstream.tally("job_cancel").started, 0);
}

async fn a_job_goes_on_after_a_restart_with_the_embedded_store(era: Era) {
    for is_killed in [true, false] {
        let upstream = Upstream::with_jobs(era).await;
        let proxy = config("").embedded().start(&upstream.url()).await;
        let mut rig = Rig { proxy, upstream };
        let task = start(&rig.client()).await;
        // The first check comes half a second after the job's id is stored.
        rig.upstream.until_started("job_status").await;
        if is_killed {
            rig.proxy.kill();
        } else {
            assert!(rig.proxy.stop().await.success());
        }
        rig.proxy.restart().await;
        rig.upstream.job_is("a", json!({"status": "done"}));
        rig.client().until(&task, "completed").await;
        assert_eq!(rig.upstream.tally("job_start").started, 1);
        assert_eq!(rig.upstream.tally("job_cancel").started, 0);
    }
}

async fn keyed(era: Era) -> Pair {
    let upstream = Upstream::with_jobs(era).await;
    let config = Config::always()
        .section("[jobs]", &format!("{RULE}key = \"token\""))
        .section("upstream", "shared = true")
        .section("drain", "grace = \"1s\"")
        .store(&format!("seal_key = {SEAL_KEY:?}"));
    Pair::of(upstream, config).await
}

async fn a_start_with_a_key_is_sent_again(era: Era) {
    let mut pair = keyed(era).await;
    pair.upstream.job_is("start is held", json!(true));
    let task = start(&pair.at_a()).await;
    pair.upstream.until_started("job_start").await;
    pair.a.kill();
    pair.upstream.until_sent_again().await;
    pair.upstream.release("job_start");
    pair.upstream.job_is("a", json!({"status": "done"}));
    pair.at_b().until(&task, "completed").await;
    // The key of a client stays, and null is none. Each call has a key of its own.
    for (number, token) in [json!("mine"), Value::Null].into_iter().enumerate() {
        let given = json!({"name": "b", "token": token});
        pair.at_b().call("job_start", given).await;
        let all = u32::try_from(number).unwrap() + 3;
        let sent = |it: Tally| it.started == all;
        pair.upstream.until("job_start", "started", sent).await;
    }
    let starts = pair.upstream.all_arguments("job_start");
    let keys: Vec<_> = starts
        .iter()
        .map(|it| it["token"].as_str().unwrap())
        .collect();
    assert!(keys[0] == keys[1] && keys[0].len() == 36, "{keys:?}");
    assert!(
        keys[2] == "mine" && keys[3].len() == 36 && keys[3] != keys[0],
        "{keys:?}"
    );
}

/// The job may have ended when the start comes again, and then the answer of the start is not the result.
async fn a_start_with_a_key_is_left_to_another_replica(era: Era) {
    let mut pair = keyed(era).await;
    pair.upstream.job_is("start is held", json!(true));
    let task = start(&pair.at_a()).await;
    pair.upstream.until_started("job_start").await;
    pair.a.terminate();
    pair.upstream.until_sent_again().await;
    let ended = json!({"job_id": "a", "status": "completed"});
    pair.upstream.job_is("start", ended);
    pair.upstream
        .job_is("a", json!({"status": "completed", "answer": 42}));
    pair.upstream.release("job_start");
    let state = pair.at_b().until(&task, "completed").await;
    assert_eq!(
        state["result"]["structuredContent"]["answer"], 42,
        "{state}"
    );
    // The first replica may have got the answer of its own start, too.
    pair.a.ended().await;
    assert_eq!(pair.upstream.tally("job_cancel").started, 0);
}
