//! Work on many things by several threads, whose results are taken in the order of the things.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, available_parallelism};

/// Results of one thing that wait to be taken.
const AHEAD: usize = 256;

/// Does the work on the thing of a number, and tells each of its results, until it hears that no more are taken.
type Work<'w, T, E> = dyn Fn(usize, &mut dyn FnMut(T) -> ControlFlow<()>) -> E + Sync + 'w;

/// A result of a thing, or how its work ended.
enum Told<T, E> {
    Result(T),
    End(E),
}

/// The number of a thing, and its results.
type Begun<T, E> = (usize, Receiver<Told<T, E>>);

/// What threads work on, the caller takes.
pub(crate) struct InOrder<'w, T, E> {
    work: &'w Work<'w, T, E>,
    /// Where threads say what they have begun; none where the caller does the work itself.
    begun: Option<Receiver<Begun<T, E>>>,
    /// What was begun and is not taken yet.
    waiting: Vec<Begun<T, E>>,
}

impl<T, E> InOrder<'_, T, E> {
    /// Takes the results of a thing until `take` says to break; the things are asked for in their order. Gives how its
    /// work ended, unless it was left behind a break.
    pub(crate) fn each(&mut self, number: usize, take: &mut dyn FnMut(T) -> ControlFlow<()>) -> Option<E> {
        while let Some(begun) = &self.begun {
            if let Some(at) = self.waiting.iter().position(|(other, _)| *other == number) {
                let results = self.waiting.swap_remove(at).1;
                return taken(&results, take);
            }
            match begun.recv() {
                Ok(next) => self.waiting.push(next),
                // No thread could be had, or all have ended.
                Err(_) => self.begun = None,
            }
        }
        Some((self.work)(number, take))
    }
}

/// Takes what a thread tells, which hears of a break by the next word that nobody listens to.
fn taken<T, E>(results: &Receiver<Told<T, E>>, take: &mut dyn FnMut(T) -> ControlFlow<()>) -> Option<E> {
    // One that ends without its last word panicked, and so does the scope that waits for it.
    while let Ok(told) = results.recv() {
        match told {
            Told::Result(result) => {
                if take(result).is_break() {
                    return None;
                }
            }
            Told::End(end) => return Some(end),
        }
    }
    None
}

/// Has threads work on so many things while `caller` takes the results.
pub(crate) fn in_order<T: Send, E: Send, R>(
    (count, threads_max): (usize, usize),
    work: &Work<'_, T, E>,
    caller: impl FnOnce(&mut InOrder<'_, T, E>) -> R,
) -> R {
    let threads = available_parallelism().map_or(1, usize::from).min(threads_max).min(count);
    if threads < 2 {
        return caller(&mut InOrder { work, begun: None, waiting: Vec::new() });
    }
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        // Whoever is ahead waits: the caller takes what has begun until the thing it wants is there.
        let (begins, begun) = sync_channel(threads);
        for _ in 0..threads {
            let (begins, next, is_over): (SyncSender<_>, _, _) = (begins.clone(), &next, &is_over);
            let works = move || {
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (tells, results) = sync_channel(AHEAD);
                    if number >= count || begins.send((number, results)).is_err() {
                        return;
                    }
                    let end = work(number, &mut |result| told(&tells, Told::Result(result)));
                    let _ = told(&tells, Told::End(end));
                }
            };
            // Where there is no thread to be had, there are fewer.
            let _ = thread::Builder::new().name("search".to_owned()).spawn_scoped(scope, works);
        }
        drop(begins);
        let result = caller(&mut InOrder { work, begun: Some(begun), waiting: Vec::new() });
        // Whoever waits to be heard hears that nobody listens: the caller's end is gone.
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn told<T, E>(tells: &SyncSender<Told<T, E>>, what: Told<T, E>) -> ControlFlow<()> {
    if tells.send(what).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thing has as many results as its number says.
    fn work(number: usize, tell: &mut dyn FnMut(usize) -> ControlFlow<()>) -> usize {
        let told = (0..number).take_while(|at| tell(number * 1000 + at).is_continue()).count();
        number + told
    }

    #[test]
    fn results_come_in_the_order_of_things() {
        let mut all = Vec::new();
        let ends: Vec<_> = in_order((400, 8), &work, |several| {
            let mut take = |result| {
                all.push(result);
                ControlFlow::Continue(())
            };
            (0..400).map(|number| several.each(number, &mut take)).collect()
        });
        assert!(all.is_sorted() && all.len() == 400 * 399 / 2);
        assert!(ends.iter().enumerate().all(|(number, end)| *end == Some(2 * number)));
    }

    #[test]
    fn whoever_takes_no_more_waits_for_nobody() {
        let begun = AtomicUsize::new(0);
        let endless = |_: usize, tell: &mut dyn FnMut(usize) -> ControlFlow<()>| {
            begun.fetch_add(1, Ordering::Relaxed);
            (0..).take_while(|at| tell(*at).is_continue()).count()
        };
        let mut taken = 0;
        let end = in_order((1000, 8), &endless, |several| {
            several.each(0, &mut |_| {
                taken += 1;
                if taken == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        assert_eq!((end, taken), (None, 1000));
        // One more may begin between the break and the end.
        assert!(begun.into_inner() <= 9);
    }
}
