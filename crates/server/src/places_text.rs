//! How much is used of everything there is only so much of, as Prometheus reads it.
//!
//! Every bounded resource has its bound, what is held of it, and who waits: `resource` names it.

use std::fmt::Write as _;

use base::SaturatingFrom as _;
use fair_places::PlaceUsage;

use crate::door::Door;

/// Name, kind and help of each family, and the number of it.
type Family = (&'static str, &'static str, &'static str, fn(&PlaceUsage) -> u64);

const FAMILIES: [Family; 5] = [
    ("places_max", "gauge", "Places of a bounded resource.", |usage| wide(usage.bounds.capacity)),
    ("places_held", "gauge", "Places of a bounded resource that are held.", |usage| wide(usage.held)),
    ("places_waiting_max", "gauge", "How many may wait for a place.", |usage| wide(usage.bounds.waiting)),
    ("places_waiting", "gauge", "How many wait for a place.", |usage| wide(usage.waiting)),
    ("places_refused_total", "counter", "Wishes for a place that were not granted in time.", |usage| usage.refused),
];

/// The text.
pub(crate) fn of(door: &Door) -> String {
    let (sessions, listeners) = door.mcp().places();
    let of_kernel = door.kernel().places().into_iter().chain(door.places());
    let of_jobs = door.jobs().map(|jobs| jobs.places()).into_iter().flatten();
    let of_mcp = [("mcp_sessions", sessions), ("mcp_listeners", listeners)];
    let resources: Vec<(&str, PlaceUsage)> = of_kernel.chain(of_jobs).chain(of_mcp).collect();
    let mut text = String::new();
    for (name, kind, help, number) in FAMILIES {
        let family = family_of(name);
        // Writing into a string does not fail.
        let _ = writeln!(text, "# HELP gantry_{family} {help}\n# TYPE gantry_{family} {kind}");
        for (resource, usage) in &resources {
            let _ = writeln!(text, "gantry_{name}{{resource=\"{resource}\"}} {}", number(usage));
        }
        // Deliveries are jobs: workers do them, and the queue is where they wait.
        if let (Some(jobs), "places_max" | "places_held") = (door.jobs(), name) {
            let number = match name {
                "places_max" => jobs.settings().concurrency,
                _ => jobs.handled_now(jobs::webhooks::DELIVERY_JOB),
            };
            let _ = writeln!(text, "gantry_{name}{{resource=\"deliveries\"}} {number}");
        }
    }
    let connections = door.connections().usage();
    let of_connections = [
        ("connections_max", "gauge", "Connections that may be open.", wide(connections.most)),
        ("connections", "gauge", "Connections that are open.", wide(connections.open)),
        (
            "connections_unauthenticated",
            "gauge",
            "Open connections that have shown no good token.",
            wide(connections.strangers),
        ),
        ("connections_evicted_total", "counter", "Idle connections that had to make room.", connections.evicted),
        ("connections_refused_total", "counter", "Connections beyond the share of their tenant.", connections.refused),
    ];
    for (name, kind, help, number) in of_connections {
        let family = family_of(name);
        let _ = writeln!(
            text,
            "# HELP gantry_server_{family} {help}\n# TYPE gantry_server_{family} {kind}\ngantry_server_{name} {number}"
        );
    }
    text
}

/// What OpenMetrics calls the family of a metric: a counter without its `_total`.
fn family_of(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

fn wide(number: usize) -> u64 {
    u64::saturating_from(number)
}
