//! Code that was imported: an isolated copy, what is found in it, and changes of the copy.
//!
//! - `PROJECT-1` the copy is content by its hash in the blob store ([`copy`]): no path of an imported project is ever a path of this
//!   machine, so that nothing can lead out of the copy, and a change of it is one event.
//! - `PROJECT-2` what was read has the same hash before and after the import ([`import`]).
//! - `PROJECT-3` nothing of a project is executed by an analysis ([`analyzers`]); linters read a temporary folder in a sandbox, and
//!   so do the project's own tests, when somebody asks for them ([`own_tests`]).
//! - `PROJECT-5` no secret that is found goes to a model, into a report or into an event ([`masks`]).
//! - `PROJECT-4` a rewrite that does not parse though the file did, or that loses a public name unasked, is no proposal ([`improve`]).

pub mod analyzers;
mod aside;
pub mod copy;
mod data_format;
mod definitions;
pub mod error;
mod evidence;
pub mod finding;
mod folder;
pub mod import;
pub mod imports;
pub mod improve;
mod installed;
pub mod language;
pub mod masks;
pub mod own_tests;
pub mod pack;
pub mod page;
pub mod patch;
pub mod progress;
mod python;
pub mod report;
pub mod review;
pub mod settings;
pub mod surface;
pub mod text;
pub mod tools;
mod words;

pub use aside::aside;
pub use copy::{CopyStore, Tree};
pub use error::ProjectError;
pub use finding::{Finding, Severity};
pub use report::Report;
pub use settings::ProjectSettings;
