//! What `deploy/` says is so: the manifests as they are rendered, the image and the compose file as they
//! are written, and the program run as the rendered pod runs it, probed from another network.
#![expect(
    clippy::disallowed_methods,
    reason = "a starting redis-server is asked until it answers"
)]
#![expect(clippy::print_stdout, reason = "shown with a test that failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use yaml_rust2::{Yaml, YamlLoader};

#[path = "deploy/archive.rs"]
mod archive;
#[path = "deploy/chart.rs"]
mod chart;
#[path = "deploy/crafted.rs"]
mod crafted;
#[path = "deploy/debian.rs"]
mod debian;
#[path = "support/directory.rs"]
#[expect(dead_code, reason = "a redis-server has one")]
mod directory;
#[path = "support/eventually.rs"]
#[expect(dead_code, reason = "no test of this binary has a runtime")]
mod eventually;
#[path = "deploy/files.rs"]
mod files;
#[path = "deploy/image.rs"]
mod image;
#[path = "deploy/install.rs"]
mod install;
#[path = "deploy/manifests.rs"]
mod manifests;
#[path = "support/netns.rs"]
mod netns;
#[path = "deploy/packages.rs"]
mod packages;
#[path = "deploy/parts.rs"]
mod parts;
#[path = "deploy/pod.rs"]
mod pod;
#[path = "deploy/publishing.rs"]
mod publishing;
#[path = "support/redis.rs"]
#[expect(dead_code, reason = "this binary only starts one and stops it")]
mod redis_server;
#[path = "deploy/release.rs"]
mod release;
#[path = "deploy/watching.rs"]
mod watching;
#[path = "support/written.rs"]
mod written_files;

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&text(name)).unwrap()
}

/// What the component and its example render to.
const KUSTOMIZED: &str = "kubernetes/rendered.yaml";

/// The rendered object of this kind: there is one.
fn rendered(kind: &str) -> Yaml {
    only(documents(KUSTOMIZED), kind)
}

/// The object of this kind: there is one.
fn only(mut all: Vec<Yaml>, kind: &str) -> Yaml {
    all.retain(|document| document["kind"].as_str() == Some(kind));
    assert_eq!(all.len(), 1, "objects of kind {kind}");
    all.remove(0)
}

fn pod_spec() -> Yaml {
    pod_spec_of(KUSTOMIZED)
}

fn pod_spec_of(file: &str) -> Yaml {
    only(documents(file), "Deployment")["spec"]["template"]["spec"].clone()
}

/// What the `ConfigMap`s of a container say, as Kubernetes reads them: a later one wins.
fn from_config_maps(file: &str, container: &Yaml) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for source in container["envFrom"].as_vec().into_iter().flatten() {
        let name = &source["configMapRef"]["name"];
        if name.is_badvalue() {
            continue; // A Secret.
        }
        let mut maps = documents(file);
        maps.retain(|map| map["kind"].as_str() == Some("ConfigMap"));
        maps.retain(|map| &map["metadata"]["name"] == name);
        let data = maps[0]["data"].as_hash().unwrap();
        let text = |yaml: &Yaml| yaml.as_str().unwrap().to_owned();
        all.extend(data.iter().map(|(key, value)| (text(key), text(value))));
    }
    all
}

/// The member of a list with this name.
fn named<'a>(list: &'a Yaml, name: &str) -> &'a Yaml {
    let mut members = list.as_vec().into_iter().flatten();
    members
        .find(|member| member["name"].as_str() == Some(name))
        .unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

/// "45s" as it is written in the manifests.
fn seconds(text: &str) -> i64 {
    text.strip_suffix('s').unwrap().parse().unwrap()
}
