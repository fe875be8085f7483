//! Would the shared state work? A Redis is greeted, looked at and written to, as a server would.

use shared_state::{NotUsable, RedisTrouble, SeenServer};

use super::Finding;
use crate::config::shared_state::SharedStateSection;

const WHAT: &str = "shared state";
/// Under this name it is asked; no server has it.
const DOCTOR: &str = "doctor";

pub(super) async fn finding(section: &SharedStateSection) -> Finding {
    let SharedStateSection::Redis(redis) = section else {
        return Finding::well(WHAT, "in memory: breakers and limits are each server's own");
    };
    let settings = redis.settings(DOCTOR.to_owned());
    let place = settings.shown();
    match shared_state::look(&settings).await {
        Ok(seen) => usable(&place, &seen),
        Err(error) => unusable(&place, &error),
    }
}

fn usable(place: &str, seen: &SeenServer) -> Finding {
    let detail = format!("{place} is Redis {} and takes what is written", seen.version);
    if let Some(policy) = &seen.throws_away {
        return Finding::warning(
            WHAT,
            format!("{detail}, but throws keys away when it is full ({policy})"),
            "set `maxmemory-policy noeviction`: what is thrown away is an open breaker or a used-up limit",
        );
    }
    if seen.is_old {
        return Finding::warning(WHAT, format!("{detail}, but is older than what is tested"), "use Redis 7 or newer");
    }
    Finding::well(WHAT, detail)
}

fn unusable(place: &str, error: &NotUsable) -> Finding {
    let hint = match error.trouble {
        RedisTrouble::Unreachable | RedisTrouble::Slow => {
            "check that Redis runs there and `[shared_state]`; servers start without it, and go on by themselves where that is safe"
        }
        RedisTrouble::Denied => {
            "check user and password in `[shared_state] url`; docs/shared-state.md says which rights they need"
        }
        RedisTrouble::Full => {
            "give it more `maxmemory`, or find out who fills it; servers go on by themselves where that is safe"
        }
        RedisTrouble::Cluster => {
            "name a single Redis 7 server, or one behind Sentinel (docs/shared-state.md); no server starts with it"
        }
        RedisTrouble::NotServing => "it still loads, or is a replica that cannot write: name the first one",
        RedisTrouble::Garbled => {
            "check that it is a Redis 7, and that nobody else uses these keys: `[shared_state] namespace`"
        }
    };
    Finding::failed(WHAT, format!("{place}: {error}"), hint)
}
