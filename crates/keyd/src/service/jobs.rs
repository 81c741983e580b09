//! What takes longer than a request may: begun by one request, asked for by others.
//!
//! ```text
//!  POST /v1/backups        --> begin(the request's id, work) --> {"job": ID}       one at a time; the same request again is the same job
//!  GET  /v1/backups/jobs/ID --> look(ID) --> working, so far / done, what came of it / the problem that it ended with
//! ```
//! A job goes on when whoever asked for it has gone. What it makes counts only by what they do with it: so a job that
//! nobody looks at any more changes nothing. The last one is remembered until the next begins, or the node ends.
//!
//! **Locks:** its own, never held across an await.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_keys::Name;
use capstan_keys::api::{JobSeen, JobStarted, Problem, RequestId};
use capstan_service::problem::Refusal;
use tracing::Instrument;

/// One kind of job.
pub(super) struct Jobs<T> {
    /// What it makes, as in "a backup".
    what: &'static str,
    last: Mutex<Option<Job<T>>>,
}

struct Job<T> {
    id: RequestId,
    by: Name,
    progress: Arc<JobProgress>,
    outcome: Option<Result<T, Problem>>,
}

/// How far a job is, in steps of its own.
#[derive(Default)]
pub(super) struct JobProgress {
    done: AtomicU64,
    of: AtomicU64,
}

impl JobProgress {
    /// So many steps are known of by now.
    pub(super) fn expect(&self, steps: u64) {
        self.of.store(steps, Ordering::Relaxed);
    }

    /// One more is done.
    pub(super) fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T: Clone + Send + 'static> Jobs<T> {
    pub(super) fn new(what: &'static str) -> Arc<Self> {
        Arc::new(Self { what, last: Mutex::default() })
    }

    /// Begins a job, unless this request has begun it already, or another one is under way: of the same person it is
    /// that one.
    pub(super) fn begin<F>(
        self: &Arc<Self>,
        id: RequestId,
        by: Name,
        work: impl FnOnce(Arc<JobProgress>) -> F,
    ) -> Result<JobStarted, Refusal>
    where
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let progress = Arc::new(JobProgress::default());
        {
            let mut last = self.lock();
            if let Some(job) = &*last {
                let under_way = job.outcome.is_none();
                if job.id == id || (under_way && job.by == by) {
                    return Ok(JobStarted { job: job.id });
                }
                if under_way {
                    let detail = format!("{} makes {} here at the moment: wait for it.", job.by, self.what);
                    return Err(Refusal::conflict(detail));
                }
            }
            *last = Some(Job { id, by, progress: progress.clone(), outcome: None });
        }
        // A task of its own, so that one that panics ends as a failure and not as one that is under way for ever; its
        // lines in the log are those of the request that began it.
        let (jobs, work) = (self.clone(), tokio::spawn(work(progress).in_current_span()));
        tokio::spawn(async move {
            let outcome = work.await.unwrap_or_else(|_| Err(Refusal::failed()));
            let mut last = jobs.lock();
            if let Some(job) = last.as_mut().filter(|job| job.id == id) {
                job.outcome = Some(outcome.map_err(|Refusal(problem)| *problem));
            }
        });
        Ok(JobStarted { job: id })
    }

    /// What has become of a job.
    pub(super) fn look(&self, id: RequestId) -> Result<JobSeen<T>, Refusal> {
        let last = self.lock();
        let gone = || {
            let detail = format!(
                "No job {id} is known here: another was begun since, this node was started anew, or it is another node."
            );
            Refusal::not_found(detail)
        };
        let job = last.as_ref().filter(|job| job.id == id).ok_or_else(gone)?;
        match &job.outcome {
            None => Ok(JobSeen::Working {
                done: job.progress.done.load(Ordering::Relaxed),
                of: job.progress.of.load(Ordering::Relaxed),
            }),
            Some(Ok(made)) => Ok(JobSeen::Done(made.clone())),
            Some(Err(problem)) => Err(problem.clone().into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Job<T>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use tokio::sync::oneshot;

    use super::*;

    fn id(of: u8) -> RequestId {
        RequestId([of; 16])
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Until it is no longer under way.
    async fn ended(jobs: &Jobs<u32>, job: u8) -> Result<u32, Refusal> {
        loop {
            match jobs.look(id(job))? {
                JobSeen::Working { .. } => tokio::task::yield_now().await,
                JobSeen::Done(made) => return Ok(made),
            }
        }
    }

    #[tokio::test]
    async fn one_at_a_time_and_the_same_request_is_the_same_job() {
        let jobs = Jobs::new("a thing");
        let (finish, finished) = oneshot::channel();
        let begun = jobs.begin(id(1), name("bo"), async |progress| {
            progress.expect(2);
            progress.step();
            Ok(finished.await.unwrap())
        });
        assert_eq!(begun.unwrap().job, id(1));
        let other = async |_| -> Result<u32, Refusal> { unreachable!("another is under way") };
        // Sent again, and asked anew by somebody who broke off: both are the one that is under way.
        assert_eq!(jobs.begin(id(1), name("bo"), other).unwrap().job, id(1));
        assert_eq!(jobs.begin(id(2), name("bo"), other).unwrap().job, id(1));
        let refused = jobs.begin(id(3), name("al"), other).unwrap_err();
        assert!(refused.0.status == 409 && refused.0.detail.contains("bo makes a thing"), "{refused:?}");
        assert_eq!(jobs.look(id(3)).unwrap_err().0.status, 404);
        finish.send(7).unwrap();
        assert_eq!(ended(&jobs, 1).await, Ok(7));
        // It stays so, also for a request that comes again; then there is room for the next.
        assert_eq!(jobs.begin(id(1), name("bo"), other).unwrap().job, id(1));
        assert_eq!(ended(&jobs, 1).await, Ok(7));
        jobs.begin(id(3), name("al"), async |_| Ok(8)).unwrap();
        assert_eq!(ended(&jobs, 3).await, Ok(8));
        assert_eq!(ended(&jobs, 1).await.unwrap_err().0.status, 404);
    }

    #[tokio::test]
    async fn a_failure_is_told_to_who_asks_and_makes_room() {
        let jobs: Arc<Jobs<u32>> = Jobs::new("a thing");
        jobs.begin(id(1), name("bo"), async |_| Err(Refusal::conflict("no"))).unwrap();
        assert_eq!(ended(&jobs, 1).await.unwrap_err().0.detail, "no");
        jobs.begin(id(2), name("bo"), async |_| panic!("it is meant to")).unwrap();
        assert_eq!(ended(&jobs, 2).await.unwrap_err().0.status, 500);
        jobs.begin(id(3), name("bo"), async |_| Ok(1)).unwrap();
        assert_eq!(ended(&jobs, 3).await, Ok(1));
    }
}
