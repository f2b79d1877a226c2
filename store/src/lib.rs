//! Object stores: what Floe asks of one, and every way to have one.
//!
//! [`open`](open::open) gives a bare store by its address. Around it belong [`Counted`], which
//! counts every request, and [`Retrying`], which repeats what may be repeated and settles ambiguous
//! puts.

pub mod budget;
pub mod counted;
pub mod directory;
pub mod identity;
pub mod key;
#[doc(hidden)]
pub mod layer;
pub mod memory;
pub mod object;
pub mod open;
pub mod options;
pub mod probe;
pub mod remote;
pub mod retry;
#[doc(hidden)]
pub mod suite;

pub use budget::PutBudget;
pub use counted::{CallCounts, CallKind, Counted, EndedCall, StoreCounters, StoreCounts};
pub use directory::DirectoryStore;
pub use identity::{
    ClusterIdentity, Incarnation, create_identity, read_identity, read_incarnation,
    record_incarnation,
};
#[doc(hidden)]
pub use layer::StoreLayer;
pub use memory::MemoryStore;
pub use object::{ObjectMeta, ObjectStore, PutOutcome};
pub use open::open;
pub use options::{AzureOptions, GcsOptions, S3Options, Secret, StoreOptions};
pub use probe::probe;
pub use remote::RemoteStore;
pub use retry::{RetryPolicy, Retrying, holds_content};
