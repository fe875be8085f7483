//! Tests of the paths in the configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::super::settings::{ConfigFile, find};
use super::*;

/// Every place with a path, with what it is to the server: a key whose type became another one would be seen here.
#[test]
fn the_paths_of_the_configuration_are_known_with_their_roles() {
    let expected = "\
[server] tls_cert: control
[server] tls_key: private
[server] tls_client_ca: control
[store] url: private control
[store] seal_key_file: private
[identity] trusted_keys: control
[identity] jwks_file: control
[policy] file: control
[audit] dir: private
[audit] witness_file: private
[audit] sinks dir: private
[audit] sinks sasl_password_file: private
[audit] sinks tls_ca: control
[audit] sinks tls_cert: control
[audit] sinks tls_key: private
[tools] dirs: control
[tools] tenants: control
[sandbox] allowed_paths: bound
[sandbox] blocked_paths: bound
[sandbox] system_paths: bound
[secrets] dir: private
[upstreams] tenants paths: bound
[upstreams] packages_dir: control
";
    let mut found = Vec::new();
    for key in all_keys() {
        let mut places = BTreeSet::new();
        collect(&key.schema, &key.title(), &mut places);
        found.extend(places);
    }
    assert_eq!(found, expected.lines().collect::<Vec<_>>());
}

fn collect(schema: &Value, title: &str, places: &mut BTreeSet<String>) {
    let roles: Vec<String> = uses(schema).iter().map(|found| format!("{:?}", found.role).to_lowercase()).collect();
    if !roles.is_empty() {
        places.insert(format!("{title}: {}", roles.join(" ")));
    }
    for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        collect(member, &format!("{title} {name}"), places);
    }
    for branch in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten().chain(schema.get("items")) {
        collect(branch, title, places);
    }
}

/// A name that speaks of a file, on a key whose type does not, is most likely a slip.
#[test]
fn keys_that_sound_like_paths_are_paths() {
    const NO_PATHS: &[&str] = &["[policy] engine_path"];
    let sounds =
        |name: &str| name.split('_').any(|word| ["dir", "dirs", "file", "path", "paths", "cert", "ca"].contains(&word));
    let slips: Vec<String> = all_keys()
        .filter(|key| sounds(key.name) && !names_files(key))
        .map(ConfigKey::title)
        .filter(|title| !NO_PATHS.contains(&title.as_str()))
        .collect();
    assert!(slips.is_empty(), "give them a type of `paths`: {slips:?}");
}

fn gather(text: &str, folder: &str, variables: &[(&str, &str)]) -> EffectiveSettings {
    let file = ConfigFile { name: "gantry.toml".into(), folder: folder.into(), text: text.into() };
    let environment: BTreeMap<_, _> = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    EffectiveSettings::gather(Some(&file), &environment, Vec::new()).unwrap()
}

#[test]
fn relative_paths_in_a_file_are_paths_in_its_folder_and_those_in_variables_stay() {
    let text = r#"
[server]
tls_cert = "tls/cert.pem"
tls_key = "/abs/key.pem"
[store]
url = "sqlite:state/x.db"
[policy]
file = ""
[tools]
dirs = ["tools", "/abs/tools"]
tenants = ["acme=own tools", "shop=/abs"]
[sandbox]
allowed_paths = ["work"]
system_paths = ["/usr"]
[secrets]
dir = "here"
[[audit.sinks]]
name = "stream"
kind = "file"
dir = "events"
"#;
    let settings = gather(text, "/etc/gantry", &[("GANTRY_SECRETS__DIR", "there")]);
    let of = |section: &str, name: &str| match settings.get(find(section, name).unwrap()).unwrap().0.value() {
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap_or("a table").to_owned()).collect(),
        text => vec![text.as_str().unwrap().to_owned()],
    };
    assert_eq!(of("server", "tls_cert"), ["/etc/gantry/tls/cert.pem"]);
    assert_eq!(of("server", "tls_key"), ["/abs/key.pem"]);
    assert_eq!(of("store", "url"), ["sqlite:/etc/gantry/state/x.db"]);
    assert_eq!(of("policy", "file"), [""], "unset is not the folder itself");
    assert_eq!(of("tools", "dirs"), ["/etc/gantry/tools", "/abs/tools"]);
    assert_eq!(of("tools", "tenants"), ["acme=/etc/gantry/own tools", "shop=/abs"]);
    assert_eq!(of("sandbox", "allowed_paths"), ["/etc/gantry/work"]);
    assert_eq!(of("sandbox", "blocked_paths"), ["/etc", "/var"]);
    assert_eq!(of("secrets", "dir"), ["there"]);
    let sinks = settings.get(find("audit", "sinks").unwrap()).unwrap().0.value();
    assert_eq!(sinks[0]["dir"], "/etc/gantry/events");
    let beside = gather(text, "", &[]);
    assert!(paths_in(&beside, PathRole::Control).contains(&PathBuf::from("own tools")), "the file is where we are");
}

#[test]
fn a_databases_roots_are_a_file_too_and_its_password_stays_as_it_is() {
    let key = find("store", "url").unwrap();
    let full = |url: &str| resolved(key, &key.value(url.into()), Path::new("/etc/g")).value().clone();
    assert_eq!(
        full("postgres://me:a%2Fb@h/d?sslmode=require&sslrootcert=ca.pem"),
        "postgres://me:a%2Fb@h/d?sslmode=require&sslrootcert=/etc/g/ca.pem"
    );
    for same in ["postgres://me:pw@h/d", "sqlite::memory:", "sqlite:", "mysql://x"] {
        assert_eq!(full(same), same);
    }
}
