//! The end, told to everybody who serves.

use tokio::sync::watch;

/// Begins the end. Dropping it does too.
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Tells when the end has begun. Clones tell the same.
#[derive(Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl ShutdownTrigger {
    /// A trigger and what it triggers.
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Shutdown(receiver))
    }

    /// Begins the end: nothing new is taken in, and what is under way is finished.
    pub fn begin(&self) {
        // Nobody listens any more: then there is nothing to end.
        let _ = self.0.send(true);
    }
}

impl Shutdown {
    /// Waits for the end to begin.
    pub async fn begun(&mut self) {
        // An error says that the trigger is gone.
        let _ = self.0.wait_for(|begun| *begun).await;
    }
}
