//! With blocks to spare nothing is evicted, so a hit must be as long as a naive search's.

use crate::cases;
use crate::memory::{Memory, config};
use proptest::prelude::*;
use redline_kv_cache::SequenceKv;
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn every_prefix_that_was_committed_is_found(
        shift in 0..3u32,
        prompts in prop::collection::vec(
            (0..2u64, prop::collection::vec(0..2u32, 1..14), any::<bool>()),
            1..20,
        ),
    ) {
        let size = 1usize << shift;
        let mut memory = Memory::new(&config(400, size as u32));
        let (mut known, mut kept) = (BTreeSet::new(), Vec::new());
        for (salt, tokens, keep) in prompts {
            let max = tokens.len() - 1;
            let is_known = |end: &usize| known.contains(&(salt, tokens[..*end].to_vec()));
            let expected = (size..tokens.len()).step_by(size).take_while(is_known).last();
            let mut seq = SequenceKv::new(salt);
            prop_assert_eq!(seq.find_prefix(&mut memory.kv, &tokens, max), expected.unwrap_or(0));
            let hits = seq.attach_prefix(&mut memory.kv, &tokens, max);
            prop_assert_eq!(hits, expected.unwrap_or(0));
            memory.commit(&mut seq, salt, &tokens);
            memory.check(&seq, salt, &tokens);
            for end in (size..=tokens.len()).step_by(size) {
                known.insert((salt, tokens[..end].to_vec()));
            }
            if keep { kept.push(seq) } else { seq.release(&mut memory.kv) }
            memory.kv.audit(&kept).unwrap();
        }
        memory.finish(kept);
    }
}
