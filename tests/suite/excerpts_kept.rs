//! Large results where keeping them is harder: a store that is away, a server on a pipe, a result without text, and an
//! owner that died.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::excerpts::{Reader, terms, uri};
use crate::redis_server::RedisServer;
use crate::support::client::Client;
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::session::{NEWEST, Session};
use crate::support::upstream::long_text;
use crate::support::{Config, Era, Rig, base64, in_both_eras};

in_both_eras!(
    without_its_store_a_result_goes_whole,
    a_frozen_store_delays_a_result_by_seconds_at_most,
    a_program_has_large_results_too,
    images_are_links_to_every_byte,
    a_living_replica_reads_the_result_of_a_killed_one,
);

const BYTES: usize = 5 << 20;

/// How long a client waits for a store that does not answer: 3 seconds, and time for a busy machine.
const LATEST: Duration = Duration::from_secs(8);

/// Smaller, so that the time a client waits is that of the store.
const SMALLER: usize = 200_000;

/// Clients that wait for their answers. Each got an excerpt while the store was there. The sessions in front of a modern
/// server are in the store, so these clients have none without it.
async fn waiting(rig: &Rig, era: Era) -> Vec<Reader> {
    let client = rig.client().named("Bearer alice").without_tasks();
    let mut readers = vec![Reader::Modern(client.clone())];
    if era == Era::Legacy {
        readers.push(Reader::OnSession(Session::open(client, NEWEST).await));
    }
    for reader in &readers {
        let excerpt = reader.call("long", json!({"bytes": SMALLER})).await;
        let text = excerpt["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(" bytes are left out here"), "{text:.4096}");
    }
    readers
}

async fn all_goes_whole_in_time(readers: &[Reader]) {
    for reader in readers {
        let asked = Instant::now();
        let result = reader.call("long", json!({"bytes": SMALLER})).await;
        let whole = long_text(SMALLER);
        assert!(result["content"][0]["text"] == *whole, "{reader:?}");
        assert!(asked.elapsed() < LATEST, "{:?}", asked.elapsed());
    }
}

async fn without_its_store_a_result_goes_whole(era: Era) {
    let mut redis = RedisServer::start();
    let rig = Rig::start(era, terms(Config::never().redis(&redis.url()))).await;
    let readers = waiting(&rig, era).await;
    redis.kill();
    all_goes_whole_in_time(&readers).await;
}

async fn a_frozen_store_delays_a_result_by_seconds_at_most(era: Era) {
    let redis = RedisServer::start();
    let rig = Rig::start(era, terms(Config::never().redis(&redis.url()))).await;
    let readers = waiting(&rig, era).await;
    redis.freeze();
    all_goes_whole_in_time(&readers).await;
    redis.thaw();
}

async fn a_program_has_large_results_too(era: Era) {
    let mode = match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    };
    let config = terms(Config::always().embedded());
    let proxy = config.tool("echo", "mode = \"never\"").run(mode).await;
    let client = Client::of(proxy.address()).named("Bearer alice");
    let arguments = || json!({"bytes": BYTES});
    let task = client.call("large", arguments()).await.into_task();
    let ended = client.until(&task, "completed").await;
    let plain = Reader::Modern(client.clone().without_tasks());
    let result = plain.call("large", arguments()).await;
    let session = Reader::OnSession(Session::open(client.clone(), "2025-06-18").await);
    let on_session = session.call("large", arguments()).await;
    let whole = "x".repeat(BYTES);
    for (reader, excerpt) in [
        (Reader::Modern(client), &ended["result"]),
        (plain, &result),
        (session, &on_session),
    ] {
        let text = excerpt["content"][0]["text"].as_str().unwrap();
        assert!(text.len() < 4096, "{text:.4096}");
        let (_, named) = text.split_once("read the resource ").unwrap();
        let (uri, _) = named.split_once('?').unwrap();
        assert!(reader.all(uri).await == whole, "{reader:?}");
    }
}

/// The first three have a link or a line each, and the line about the others says how to read all of them.
async fn images_are_links_to_every_byte(era: Era) {
    let images: Vec<String> = (0..5_u8)
        .map(|number| base64(&vec![number ^ 0x5a; 100_001]))
        .collect();
    let image = |data: &String| json!({"type": "image", "mimeType": "image/png", "data": data});
    let mut result = json!({"content": images.iter().map(image).collect::<Vec<_>>()});
    if era == Era::Modern {
        result["resultType"] = json!("complete");
    }
    let arguments = || json!({"result": result.to_string()});
    let rig = Rig::start(era, terms(Config::always())).await;
    let client = rig.client().named("Bearer alice");
    let task = client.call("verbatim", arguments()).await.into_task();
    let ended = client.until(&task, "completed").await;
    let plain = Reader::Modern(client.clone().without_tasks());
    let excerpt = plain.call("verbatim", arguments()).await;
    for (reader, excerpt) in [
        (Reader::Modern(client), &ended["result"]),
        (plain, &excerpt),
    ] {
        assert!(excerpt.to_string().len() < 4096, "{excerpt:.4096}");
        let content = excerpt["content"].as_array().unwrap();
        let links: Vec<_> = content
            .iter()
            .filter(|part| part["type"] == "resource_link")
            .collect();
        let line = content[0]["text"].as_str().unwrap();
        assert!(line.contains("2 more parts are left out"), "{line}");
        assert_eq!((links.len(), content.len()), (3, 4), "{excerpt}");
        for (number, link) in links.iter().enumerate() {
            assert_eq!(link["mimeType"], "image/png");
            let of = format!("/result?block={number}");
            assert!(link["uri"].as_str().unwrap().ends_with(&of), "{link}");
        }
        let (base, _) = links[0]["uri"].as_str().unwrap().split_once('?').unwrap();
        for (number, data) in images.iter().enumerate() {
            let read = reader.read(&format!("{base}?block={number}")).await;
            let content = &read["result"]["contents"][0];
            assert_eq!(content["mimeType"], "image/png", "{read:.400}");
            assert!(content["blob"] == **data, "image {number}");
        }
    }
}

async fn a_living_replica_reads_the_result_of_a_killed_one(era: Era) {
    let lines = "result_inline = \"64KiB\"\ncompanion_tools = false";
    let mut pair = Pair::with(era, lines, |config| {
        config
            .section("upstream", "shared = true")
            .store(&format!("seal_key = {SEAL_KEY:?}"))
    })
    .await;
    let client = pair.at_a().named("Bearer alice");
    let arguments = || json!({"bytes": BYTES});
    let task = client.call("long", arguments()).await.into_task();
    let ended = client.until(&task, "completed").await;
    let plain = Reader::Modern(client.clone().without_tasks());
    let result = plain.call("long", arguments()).await;
    let session = Reader::OnSession(Session::open(client.clone(), "2025-06-18").await);
    let on_session = session.call("long", arguments()).await;
    pair.a.kill();
    for (reader, excerpt) in [
        (Reader::Modern(client), &ended["result"]),
        (plain, &result),
        (session, &on_session),
    ] {
        let reader = reader.at(pair.b.address());
        assert!(
            reader.all(&uri(excerpt)).await == long_text(BYTES),
            "{reader:?}"
        );
        let eve = pair.at_b().named("Bearer eve");
        let refused = Reader::Modern(eve).read(&uri(excerpt)).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused:.400}");
    }
}
