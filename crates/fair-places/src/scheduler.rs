//! Who gets a place, and who waits for one: the rules of [`super::FairPlaces`], without time and without waiting. Pure.
//!
//! Places are given to *flows* (the calls of one agent, the deliveries to one address) of tenants. Nothing is ever taken back
//! from whoever holds a place, so fairness is made when places are given:
//!
//! ```text
//! a tenant may take one more while it holds fewer than 3 × the free places     one alone: 3/4 of all, two: 3/7 each, …
//! the last free place is for a tenant that holds none
//! a flow may do the same with the places its tenant could still take
//! ```
//!
//! So whoever comes next finds room, however much those before it want: each takes at most three quarters of what is left,
//! and the last place is for one that holds none. Whoever gets none waits in a line of its
//! flow; lines take turns, tenant by tenant and within a tenant flow by flow, the one first that was served longest ago.
//!
//! Invariants
//! - FAIR-1: never more places are held than there are, nor more by one flow than its bound, nor more waiters than theirs.
//! - FAIR-2: no place is free while somebody waits who may take it.
//! - FAIR-3: whoever may take a place is served after each other tenant and each other flow of its own was served once, and
//!   after those who came before it in its own line.
//! - FAIR-4: a tenant that holds nothing gets a place at once while one is free.
//! - FAIR-5: a tenant without places and waiters takes up no memory.

use std::collections::{BTreeMap, VecDeque};

use contract::ids::TenantId;

/// A tenant may hold so many times the free places.
const HELD_PER_FREE: usize = 3;

/// How many places there are, and how many may wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceBounds {
    /// Places in all.
    pub capacity: usize,
    /// Places of one flow at most.
    pub per_flow: usize,
    /// Waiters in all. One tenant may make up three quarters of them.
    pub waiting: usize,
}

/// A place in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// What became of the wish for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Granted,
    Waits(Ticket),
    /// Too many wait already.
    Full,
}

/// A waiter that has its place now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) ticket: Ticket,
    pub(super) tenant: TenantId,
    pub(super) flow: String,
}

#[derive(Debug, Default)]
struct Tenant {
    held: usize,
    waiting: usize,
    /// The turn in which it was served last.
    served: u64,
    flows: BTreeMap<String, Flow>,
}

#[derive(Debug, Default)]
struct Flow {
    held: usize,
    served: u64,
    line: VecDeque<Ticket>,
}

/// The state of all places of one kind.
#[derive(Debug)]
pub(super) struct Scheduler {
    bounds: PlaceBounds,
    held: usize,
    waiting: usize,
    turns: u64,
    tickets: u64,
    tenants: BTreeMap<TenantId, Tenant>,
}

impl Scheduler {
    pub(super) fn new(bounds: PlaceBounds) -> Self {
        Self { bounds, held: 0, waiting: 0, turns: 0, tickets: 0, tenants: BTreeMap::new() }
    }

    pub(super) fn bounds(&self) -> PlaceBounds {
        self.bounds
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn held_by(&self, tenant: &TenantId, flow: &str) -> usize {
        self.tenants.get(tenant).and_then(|of| of.flows.get(flow)).map_or(0, |flow| flow.held)
    }

    /// A place for this flow, if it may take one now.
    pub(super) fn take(&mut self, tenant: &TenantId, flow: &str) -> bool {
        let held_by_tenant = self.tenants.get(tenant).map_or(0, |of| of.held);
        if !self.may_take(held_by_tenant, self.held_by(tenant, flow)) {
            return false;
        }
        self.give(tenant, flow);
        true
    }

    /// A place for this flow, now or in its turn.
    pub(super) fn ask(&mut self, tenant: &TenantId, flow: &str) -> Asked {
        // FAIR-2: whoever waits in this flow's line may not take one either, so nobody is overtaken.
        if self.take(tenant, flow) {
            return Asked::Granted;
        }
        let waits = self.tenants.get(tenant).map_or(0, |of| of.waiting);
        if room(self.bounds.waiting.saturating_sub(self.waiting), waits) == 0 {
            return Asked::Full;
        }
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = Ticket(self.tickets);
        self.waiting += 1;
        // Who comes new is served after those who wait already: coming and going is worth no turn.
        let served = self.turns;
        let of = self.tenants.entry(tenant.clone()).or_insert_with(|| Tenant { served, ..Tenant::default() });
        of.waiting += 1;
        let of_flow = of.flows.entry(flow.to_owned()).or_insert_with(|| Flow { served, ..Flow::default() });
        of_flow.line.push_back(ticket);
        Asked::Waits(ticket)
    }

    /// Takes a waiter out of its line; `false` if it is in none.
    pub(super) fn leave(&mut self, tenant: &TenantId, flow: &str, ticket: Ticket) -> bool {
        let Some(of) = self.tenants.get_mut(tenant) else { return false };
        let Some(of_flow) = of.flows.get_mut(flow) else { return false };
        let Some(at) = of_flow.line.iter().position(|other| *other == ticket) else { return false };
        of_flow.line.remove(at);
        of.waiting = of.waiting.saturating_sub(1);
        self.waiting = self.waiting.saturating_sub(1);
        self.forget(tenant, flow);
        true
    }

    /// Takes a place back, and says who has it now.
    pub(super) fn release(&mut self, tenant: &TenantId, flow: &str) -> Vec<Grant> {
        self.held = self.held.saturating_sub(1);
        if let Some(of) = self.tenants.get_mut(tenant) {
            of.held = of.held.saturating_sub(1);
            if let Some(of_flow) = of.flows.get_mut(flow) {
                of_flow.held = of_flow.held.saturating_sub(1);
            }
        }
        self.forget(tenant, flow);
        self.grants()
    }

    /// Gives places while somebody waits who may take one.
    fn grants(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        while self.waiting > 0
            && let Some((tenant, flow)) = self.next()
        {
            let Some(ticket) = self.step_forward(&tenant, &flow) else { break };
            self.give(&tenant, &flow);
            grants.push(Grant { ticket, tenant, flow });
        }
        grants
    }

    /// The flow whose turn it is (FAIR-3).
    fn next(&self) -> Option<(TenantId, String)> {
        let may = |of: &Tenant, flow: &Flow| !flow.line.is_empty() && self.may_take(of.held, flow.held);
        let (name, of) = self
            .tenants
            .iter()
            .filter(|(_, of)| of.waiting > 0 && of.flows.values().any(|flow| may(of, flow)))
            .min_by_key(|(_, of)| of.served)?;
        let (flow, _) = of.flows.iter().filter(|(_, flow)| may(of, flow)).min_by_key(|(_, flow)| flow.served)?;
        Some((name.clone(), flow.clone()))
    }

    fn step_forward(&mut self, tenant: &TenantId, flow: &str) -> Option<Ticket> {
        let of = self.tenants.get_mut(tenant)?;
        let ticket = of.flows.get_mut(flow)?.line.pop_front()?;
        of.waiting = of.waiting.saturating_sub(1);
        self.waiting = self.waiting.saturating_sub(1);
        Some(ticket)
    }

    fn give(&mut self, tenant: &TenantId, flow: &str) {
        self.turns += 1;
        self.held += 1;
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Tenant::default());
        }
        let Some(of) = self.tenants.get_mut(tenant) else { return };
        of.held += 1;
        of.served = self.turns;
        if !of.flows.contains_key(flow) {
            of.flows.insert(flow.to_owned(), Flow::default());
        }
        let Some(of_flow) = of.flows.get_mut(flow) else { return };
        of_flow.held += 1;
        of_flow.served = self.turns;
    }

    /// FAIR-5.
    fn forget(&mut self, tenant: &TenantId, flow: &str) {
        let Some(of) = self.tenants.get_mut(tenant) else { return };
        if of.flows.get(flow).is_some_and(|flow| flow.held == 0 && flow.line.is_empty()) {
            of.flows.remove(flow);
        }
        if of.flows.is_empty() {
            self.tenants.remove(tenant);
        }
    }

    /// May a flow that holds so many, of a tenant that holds so many, take one more?
    fn may_take(&self, held_by_tenant: usize, held_by_flow: usize) -> bool {
        let of_tenant = room(self.bounds.capacity.saturating_sub(self.held), held_by_tenant);
        held_by_flow < self.bounds.per_flow && room(of_tenant, held_by_flow) > 0
    }
}

/// How many of `free` places somebody could take who holds `held`, if all others stood still.
fn room(free: usize, held: usize) -> usize {
    if free == 0 {
        return 0;
    }
    // The `i`-th is allowed while `held + i < 3 × (free - i)`, and it is not the last one free.
    let by_share = (free.saturating_mul(HELD_PER_FREE)).saturating_sub(held).div_ceil(HELD_PER_FREE + 1);
    let most = by_share.min(free - 1);
    if held == 0 { most.max(1) } else { most }
}

/// How many of `all` places one tenant can hold at most, and one flow of it, when nobody else holds any.
pub fn shares(all: usize) -> (usize, usize) {
    let tenant = (0..all).take_while(|held| room(all - held, *held) > 0).count();
    let flow = (0..all).take_while(|held| room(room(all - held, *held), *held) > 0).count();
    (tenant, flow)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant(number: usize) -> TenantId {
        format!("tenant-{number}").parse().unwrap()
    }

    fn flow(number: usize) -> String {
        format!("agent-{number}")
    }

    fn scheduler(capacity: usize, per_flow: usize, waiting: usize) -> Scheduler {
        Scheduler::new(PlaceBounds { capacity, per_flow, waiting })
    }

    #[test]
    fn one_tenant_alone_leaves_a_quarter_and_one_flow_of_it_leaves_some_to_its_neighbours() {
        assert_eq!(shares(1), (1, 1));
        assert_eq!(shares(2), (1, 1));
        assert_eq!(shares(4), (3, 2));
        assert_eq!(shares(8), (6, 5));
        assert_eq!(shares(1024), (768, 576));
    }

    #[test]
    fn three_tenants_that_take_all_they_can_leave_a_place_for_the_next() {
        let mut places = scheduler(64, 64, 0);
        for number in 0..3 {
            for of in 0..64 {
                while places.take(&tenant(number), &flow(of)) {}
            }
        }
        assert!(places.take(&tenant(99), &flow(0)), "{places:?}");
    }

    #[test]
    fn lines_take_turns_by_tenant_and_then_by_flow() {
        let mut places = scheduler(1, 1, 100);
        assert!(places.take(&tenant(0), &flow(0)));
        let mut names = std::collections::HashMap::new();
        for (of, agent, times) in [(0, 0, 4), (1, 0, 3), (1, 1, 1), (2, 0, 1)] {
            for _ in 0..times {
                let Asked::Waits(ticket) = places.ask(&tenant(of), &flow(agent)) else { panic!("{places:?}") };
                names.insert(ticket, (of, agent));
            }
        }
        let mut order = Vec::new();
        let mut holder = (tenant(0), flow(0));
        while let Some(grant) = places.release(&holder.0, &holder.1).pop() {
            order.push(names[&grant.ticket]);
            holder = (grant.tenant, grant.flow);
        }
        assert_eq!(order, [(0, 0), (1, 0), (2, 0), (0, 0), (1, 1), (0, 0), (1, 0), (0, 0), (1, 0)]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Ask(usize, usize),
        Take(usize, usize),
        Release(usize),
        Leave(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let who = || (0_usize..4, 0_usize..3);
        let step = prop_oneof![
            5 => who().prop_map(|(tenant, flow)| Step::Ask(tenant, flow)),
            1 => who().prop_map(|(tenant, flow)| Step::Take(tenant, flow)),
            4 => any::<usize>().prop_map(Step::Release),
            1 => any::<usize>().prop_map(Step::Leave),
        ];
        prop::collection::vec(step, 0..120)
    }

    /// What is held and who waits, kept beside the scheduler.
    #[derive(Default)]
    struct Model {
        held: Vec<(TenantId, String)>,
        waiting: Vec<(Ticket, TenantId, String)>,
    }

    impl Model {
        fn granted(&mut self, grants: Vec<Grant>) {
            for grant in grants {
                let at = self.waiting.iter().position(|(ticket, ..)| *ticket == grant.ticket).unwrap();
                let first = self.waiting.iter().find(|(_, of, flow)| *of == grant.tenant && *flow == grant.flow);
                assert_eq!(first.unwrap().0, grant.ticket, "first come, first served within a flow");
                self.waiting.remove(at);
                self.held.push((grant.tenant, grant.flow));
            }
        }

        fn held_by(&self, tenant: &TenantId, flow: Option<&str>) -> usize {
            self.held.iter().filter(|(of, its)| of == tenant && flow.is_none_or(|flow| flow == its)).count()
        }
    }

    fn check(places: &Scheduler, model: &Model) {
        let bounds = places.bounds();
        assert_eq!((places.held(), places.waiting()), (model.held.len(), model.waiting.len()));
        assert!(model.held.len() <= bounds.capacity, "FAIR-1");
        assert!(model.waiting.len() <= bounds.waiting, "FAIR-1");
        for (tenant, flow) in &model.held {
            assert!(model.held_by(tenant, Some(flow)) <= bounds.per_flow, "FAIR-1");
        }
        for (_, tenant, flow) in &model.waiting {
            let (of, its) = (model.held_by(tenant, None), model.held_by(tenant, Some(flow)));
            assert!(!places.may_take(of, its), "FAIR-2: {tenant} {flow} could go on\n{places:?}");
        }
        let known: std::collections::BTreeSet<_> =
            model.held.iter().map(|(of, _)| of).chain(model.waiting.iter().map(|(_, of, _)| of)).collect();
        assert_eq!(places.tenants.len(), known.len(), "FAIR-5");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// FAIR-1, FAIR-2, FAIR-4 and FAIR-5, whatever happens in whatever order.
        #[test]
        fn the_bounds_hold_and_no_place_is_idle_while_somebody_may_take_it(
            capacity in 1_usize..12, per_flow in 1_usize..6, waiting in 0_usize..20, steps in steps(),
        ) {
            let mut places = scheduler(capacity, per_flow, waiting);
            let mut model = Model::default();
            for step in steps {
                match step {
                    Step::Ask(of, agent) => {
                        let (of, agent) = (tenant(of), flow(agent));
                        let is_new = model.held_by(&of, None) == 0;
                        let is_room = model.held.len() < places.bounds().capacity;
                        match places.ask(&of, &agent) {
                            Asked::Granted => model.held.push((of, agent)),
                            Asked::Waits(ticket) => {
                                prop_assert!(!(is_new && is_room), "FAIR-4");
                                model.waiting.push((ticket, of, agent));
                            }
                            Asked::Full => prop_assert!(!(is_new && is_room), "FAIR-4"),
                        }
                    }
                    Step::Take(of, agent) => {
                        if places.take(&tenant(of), &flow(agent)) {
                            model.held.push((tenant(of), flow(agent)));
                        }
                    }
                    Step::Release(at) if !model.held.is_empty() => {
                        let (of, agent) = model.held.remove(at % model.held.len());
                        model.granted(places.release(&of, &agent));
                    }
                    Step::Leave(at) if !model.waiting.is_empty() => {
                        let (ticket, of, agent) = model.waiting.remove(at % model.waiting.len());
                        prop_assert!(places.leave(&of, &agent, ticket));
                        prop_assert!(!places.leave(&of, &agent, ticket));
                    }
                    Step::Release(_) | Step::Leave(_) => {}
                }
                check(&places, &model);
            }
        }

        /// FAIR-3: a waiter of a tenant with little is served after a number of releases that depends on how many tenants and
        /// flows there are, and not on how much the others want.
        #[test]
        fn nobody_starves(capacity in 1_usize..8, hostile in 1_usize..60, others in 1_usize..4) {
            let mut places = scheduler(capacity, capacity, 1_000);
            let mut model = Model::default();
            let mut ask = |model: &mut Model, of: usize, agent: usize| match places.ask(&tenant(of), &flow(agent)) {
                Asked::Granted => model.held.push((tenant(of), flow(agent))),
                Asked::Waits(ticket) => model.waiting.push((ticket, tenant(of), flow(agent))),
                Asked::Full => {}
            };
            for _ in 0..hostile {
                ask(&mut model, 0, 0);
            }
            for of in 1..=others {
                ask(&mut model, of, 0);
            }
            let neighbour = model.held.len() + model.waiting.len();
            ask(&mut model, 0, 1);
            prop_assert_eq!(model.held.len() + model.waiting.len(), neighbour + 1);
            // The hostile flow asks again each time a place is given back; the oldest holder ends.
            let mut releases = 0;
            let waits = |model: &Model| {
                model.waiting.iter().any(|(_, of, agent)| *of != tenant(0) || *agent == flow(1))
            };
            while waits(&model) {
                let (of, agent) = model.held.remove(0);
                model.granted(places.release(&of, &agent));
                if let Asked::Waits(ticket) = places.ask(&tenant(0), &flow(0)) {
                    model.waiting.push((ticket, tenant(0), flow(0)));
                } else {
                    model.held.push((tenant(0), flow(0)));
                }
                releases += 1;
                prop_assert!(releases <= capacity + (others + 1) * 2, "{places:?}");
            }
        }
    }
}
