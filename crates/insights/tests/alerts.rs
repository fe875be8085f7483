//! Alerts on their way to those who are told, with the clock and whoever announces in the test's hand.

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use contract::cost::Prices;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use gantry_insights::health::HealthSettings;
use gantry_insights::{InsightParts, Insights};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::event_announcer::{AlertNotice, EventAnnouncer, VersionEvent};
use store::memory::MemoryStore;

/// Time stands still until it is stepped.
#[derive(Debug, Default)]
struct SteppedTime(AtomicI64);

impl Clock for SteppedTime {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

#[derive(Debug)]
struct Zeros;

impl Entropy for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// Announces alerts, but none of a tenant whose queue is full.
#[derive(Debug, Default)]
struct Announced {
    alerts: Mutex<Vec<AlertNotice>>,
    full: Mutex<Option<TenantId>>,
}

#[async_trait]
impl EventAnnouncer for Announced {
    async fn announce_alert(&self, alert: &AlertNotice) -> Result<usize, Refusal> {
        if self.full.lock().unwrap().as_ref() == Some(&alert.tenant) {
            return Err(Refusal::new(ErrorCode::E3701, "the queue of this tenant is full"));
        }
        self.alerts.lock().unwrap().push(alert.clone());
        Ok(1)
    }

    async fn announce_version_event(&self, _: &VersionEvent) -> Result<usize, Refusal> {
        Ok(0)
    }
}

#[tokio::test]
async fn a_tenant_whose_queue_is_full_holds_up_nobody_else_s_alerts() {
    let (clock, announced) = (Arc::new(SteppedTime::default()), Arc::new(Announced::default()));
    let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
    let insights = Insights::open(InsightParts {
        usage: Arc::clone(&store) as _,
        health: Arc::clone(&store) as _,
        version_use: store,
        clock: Arc::clone(&clock) as _,
        entropy: Arc::new(Zeros),
        thresholds: HealthSettings::default(),
        prices: Prices::default(),
        retention_days: 1,
        announcer: Some(Arc::clone(&announced) as _),
    })
    .await
    .unwrap();
    let tenants: Vec<TenantId> = (0..6).map(|number| format!("tenant_{number}").parse().unwrap()).collect();
    for tenant in &tenants {
        insights.approvals_pending(tenant, 1_000_000);
    }
    *announced.full.lock().unwrap() = Some(tenants[0].clone());
    insights.look().await;
    clock.0.fetch_add(24 * 3600 * 1000, Ordering::SeqCst);
    insights.look().await;
    let told = || -> BTreeSet<TenantId> {
        announced.alerts.lock().unwrap().iter().map(|alert| alert.tenant.clone()).collect()
    };
    assert_eq!(told(), tenants[1..].iter().cloned().collect());
    *announced.full.lock().unwrap() = None;
    insights.look().await;
    assert_eq!(told(), tenants.iter().cloned().collect(), "and is told when there is room again");
    assert_eq!(announced.alerts.lock().unwrap().len(), tenants.len(), "each once");
    let alerts = announced.alerts.lock().unwrap();
    assert!(alerts.iter().all(|alert| alert.data["alert"] == alert.rule.as_str() && alert.resolved_at.is_none()));
}
