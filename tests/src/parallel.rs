//! Independent pieces of work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// What `work` makes of every item, in the order of the items. `watch` sees each as it is done.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
    mut watch: impl FnMut(&R),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut done = std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    if sender.send((at, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().inspect(|(_, result)| watch(result)).collect::<Vec<_>>()
    });
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_each_once() {
        let items: Vec<u64> = (0..100).collect();
        let mut seen = 0;
        let squares = each(&items, 4, |&n| n * n, |_| seen += 1);
        assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(seen, 100);
        assert!(each(&[] as &[u64], 0, |&n| n, |_| ()).is_empty());
    }
}
