//! A signal that everything long-lived waits on: once given, never taken back.

use tokio::sync::watch;

/// The waiting side; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// The giving side.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// A signal that has not been given yet.
pub fn shutdown_signal() -> (ShutdownTrigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownTrigger(sender), Shutdown(receiver))
}

impl ShutdownTrigger {
    /// Gives the signal.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// True once the signal was given or its trigger is gone.
    pub fn is_triggered(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits for the signal.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        // A lost trigger means that its owner is gone, which is a shutdown too.
        let _ = receiver.wait_for(|given| *given).await;
    }
}
