//! Every known wrong variant is caught, and the doubles without a bug are not. One run of each that takes sampling;
//! `redline-tests teeth` repeats them and says how probably they would be missed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline_tests::teeth::{By, findings};

#[test]
fn every_wrong_variant_is_caught_and_no_right_one() {
    let findings = findings(1, 1);
    for finding in &findings {
        assert_eq!(finding.caught, !finding.control, "{finding:#?}");
    }
    let by = |by: By| findings.iter().filter(|f| !f.control && f.by == by).count();
    for (what, least) in [(By::Enumeration, 30), (By::Equality, 9), (By::Sampling, 20)] {
        assert!(by(what) >= least, "{} by {what}", by(what));
    }
}
