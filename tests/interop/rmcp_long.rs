//! rmcp in its default settings, in front of a raincheck without any, and a tool that says nothing for as long as `HOSTS_SECONDS`
//! says, each of `150,330`: rmcp's part of the lane `hosts` (tests/interop/hosts.mjs). Elsewhere the tool takes three seconds.

use std::time::Instant;

use futures_util::future::join_all;
use rmcp::ServiceExt as _;

use super::*;
use crate::rmcp_modes::Person;

/// For a client to connect, and to hear of an end.
const AROUND: Duration = Duration::from_secs(30);

in_front_of_both! {
    it_waits_in_each_of_its_ways
}

async fn it_waits_in_each_of_its_ways(kind: Upstream) {
    let upstream = free_address();
    let server = serve(&mut python(kind, upstream), upstream).await;
    // A file without a setting.
    let mut house = House::behind(upstream, "tests/interop/agents.toml", &[]).await;
    house.processes.push(server);
    let said = std::env::var("HOSTS_SECONDS").unwrap_or_else(|_| "3".to_owned());
    let sizes = said.split(',').map(|size| size.parse().unwrap());
    let house = &house;
    join_all(sizes.map(async |seconds: u64| {
        let limit = Duration::from_secs(seconds) + AROUND;
        let ways = async {
            tokio::join!(
                usual(house, seconds),
                modern(house, seconds),
                tasks(house, seconds)
            )
        };
        timeout(limit, ways).await.expect("the result in time");
    }))
    .await;
}

/// The usual handshake, of 2025-11-25.
async fn usual(house: &House, seconds: u64) {
    let client = Person.serve(rmcp_modes::transport(house)).await.unwrap();
    plain(&client, "2025-11-25", seconds).await;
}

async fn modern(house: &House, seconds: u64) {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Discover { preferred_versions };
    let client = rmcp_modes::connect(house, mode).await;
    plain(&client, "2026-07-28", seconds).await;
}

async fn plain(client: &rmcp_modes::Client, version: &str, seconds: u64) {
    let began = Instant::now();
    let result = client.call_tool(call(seconds)).await.unwrap();
    let result = serde_json::to_value(result).unwrap();
    heard(
        result["content"][0]["text"].as_str().unwrap(),
        version,
        seconds,
        began,
    );
}

/// The client declares Tasks, and asks until its task has ended. Each question waits for a change.
async fn tasks(house: &House, seconds: u64) {
    let began = Instant::now();
    let answer = house.client.call_tool_once(call(seconds)).await.unwrap();
    let CallToolResponse::Task(task) = answer else {
        panic!("a task, not {answer:?}");
    };
    let ended = async || Some(house.look(&task).await).filter(|seen| seen.status().is_terminal());
    let patience = Duration::from_secs(seconds) + AROUND;
    let seen = eventually(patience, "the task ends in time", ended).await;
    heard(text(&seen), "2026-07-28 with Tasks", seconds, began);
}

fn call(seconds: u64) -> CallToolRequestParams {
    let arguments = json!({ "seconds": seconds });
    CallToolRequestParams::new("quiet_compute")
        .with_arguments(serde_json::from_value(arguments).unwrap())
}

#[expect(
    clippy::print_stdout,
    reason = "how long it took is part of the report"
)]
fn heard(said: &str, way: &str, seconds: u64, began: Instant) {
    assert_eq!(said, format!("quiet_compute done after {seconds}s"));
    println!(
        "rmcp, {way}, {seconds} s: {:.1} s",
        began.elapsed().as_secs_f64()
    );
}
