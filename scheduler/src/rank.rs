//! The one order of all requests.

/// A request's place in the order: lower goes first. It is fixed at arrival.
///
/// Priorities with ageing usually mean numbers that change every step. They need not: if every
/// waiting step makes up for `1 / ageing_steps` of a level, the *difference* of two requests never
/// changes, so comparing `arrival step - priority * ageing_steps` once and for all gives the same
/// order. A fixed order is what makes preemption free of cycles: blocks only ever move up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The step of arrival, moved by the priority.
    due: i128,
    /// Number of the request, in order of arrival: no two are equal.
    arrival: u64,
}

impl Rank {
    /// The rank of request number `arrival`, which arrived at step `step`.
    pub fn new(step: u64, arrival: u64, priority: i32, ageing_steps: u64) -> Self {
        // 64 bits and a sign, minus 32 bits times 64: fits 128 bits with room to spare.
        Self { due: i128::from(step) - i128::from(priority) * i128::from(ageing_steps), arrival }
    }

    /// Number of the request, in order of arrival.
    pub fn arrival(&self) -> u64 {
        self.arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_priorities_go_by_arrival() {
        assert!(Rank::new(5, 0, 0, 64) < Rank::new(5, 1, 0, 64));
        assert!(Rank::new(5, 0, 0, 64) < Rank::new(6, 1, 0, 64));
    }

    #[test]
    fn a_level_of_priority_is_worth_ageing_steps() {
        let old = Rank::new(100, 0, 0, 64);
        assert!(Rank::new(163, 1, 1, 64) < old);
        assert!(Rank::new(164, 1, 1, 64) > old, "equal age: first come, first served");
        assert!(Rank::new(165, 1, 1, 64) > old);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let low = Rank::new(u64::MAX, 0, i32::MIN, u64::MAX);
        let high = Rank::new(0, 1, i32::MAX, u64::MAX);
        assert!(high < low);
    }
}
