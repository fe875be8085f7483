//! The moment in which a request leaves for its server, or is taken back before that: one of the two, and never both.
//!
//! A request on a shared line waits for the line. Whoever drops it meanwhile must know whether it will still leave, because a
//! call that was never sent can be made again under its key (decision 0047).
//!
//! Invariants
//! - DEP-1: a request that was taken back does not leave.
//! - DEP-2: the call is released before its request leaves, so nobody takes a call for unsent whose first byte is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ports::executor::CallDispatch;

const WAITING: u8 = 0;
const LEFT: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// Of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestDeparture {
    state: AtomicU8,
    /// The call that is made with it, if one is.
    dispatch: Option<Arc<CallDispatch>>,
}

impl RequestDeparture {
    pub(crate) fn of(dispatch: Option<Arc<CallDispatch>>) -> Self {
        Self { state: AtomicU8::new(WAITING), dispatch }
    }

    /// To be asked right before the first byte leaves. False: it was taken back, and must not.
    pub(crate) fn leaves(&self) -> bool {
        // DEP-2.
        if let Some(dispatch) = &self.dispatch {
            dispatch.release();
        }
        let moved = self.state.compare_exchange(WAITING, LEFT, Ordering::AcqRel, Ordering::Acquire);
        moved.is_ok() || moved == Err(LEFT)
    }

    /// Nothing was done with it: not a byte of it could be written after all, or the server has turned it away.
    pub(crate) fn stayed(&self) {
        if self.state.compare_exchange(LEFT, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
            && let Some(dispatch) = &self.dispatch
        {
            dispatch.hold();
        }
    }

    /// Nobody wants it any more. True: it has left already.
    pub(crate) fn take_back(&self) -> bool {
        self.state.compare_exchange(WAITING, TAKEN_BACK, Ordering::AcqRel, Ordering::Acquire) == Err(LEFT)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.state.load(Ordering::Acquire) == LEFT
    }
}

#[cfg(test)]
mod tests {
    use ports::executor::ExecutionReach;

    use super::*;

    fn held() -> (RequestDeparture, Arc<CallDispatch>) {
        let dispatch = Arc::new(CallDispatch::default());
        dispatch.hold();
        (RequestDeparture::of(Some(Arc::clone(&dispatch))), dispatch)
    }

    #[test]
    fn what_was_taken_back_does_not_leave_and_was_not_sent() {
        let (departure, dispatch) = held();
        assert!(!departure.take_back(), "it had not left");
        assert_eq!(dispatch.reach(), ExecutionReach::NotSent);
        assert!(!departure.leaves());
        assert!(!departure.has_left());
    }

    #[test]
    fn what_has_left_may_have_run_whoever_takes_it_back() {
        let (departure, dispatch) = held();
        assert!(departure.leaves() && departure.has_left());
        assert!(departure.take_back(), "the server has to be told");
        assert_eq!(dispatch.reach(), ExecutionReach::MayHaveRun);
    }

    #[test]
    fn what_could_not_be_written_stayed() {
        let (departure, dispatch) = held();
        assert!(departure.leaves());
        departure.stayed();
        assert!(!departure.has_left());
        assert_eq!(dispatch.reach(), ExecutionReach::NotSent);
    }
}
