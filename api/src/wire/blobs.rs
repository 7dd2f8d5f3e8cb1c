//! The blob store.

use riverrun_stores::read_models::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// So many blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobSum {
    /// How many.
    pub blobs: u64,
    /// Their size.
    pub bytes: u64,
}

/// A blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobEntry {
    /// Its name: the SHA-256 of its content, in lower-case hex.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// Whether a sweep has set it aside; who asks for it brings it back.
    pub aside: bool,
    /// When it was written, or set aside.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// What lies in the blob store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobList {
    /// All that is in its place.
    pub kept: BlobSum,
    /// All that was set aside.
    pub aside: BlobSum,
    /// The largest, largest first.
    pub items: Vec<BlobEntry>,
}

/// How to sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobSweepBody {
    /// Hours that a blob is left alone after it was written, and again after it was set aside, 1 to 8,760; 24 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_hours: Option<u64>,
}

/// What a sweep of the blob store did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobSweep {
    /// Whether it only looked.
    pub dry_run: bool,
    /// Hours that a blob was left alone.
    pub grace_hours: u64,
    /// Records of the log that were read.
    pub records: u64,
    /// Named by something that lives.
    pub named: BlobSum,
    /// Named by nothing, for less than the time of grace.
    pub waiting: BlobSum,
    /// Named by nothing: set aside, to be removed by a sweep after the time of grace.
    pub set_aside: BlobSum,
    /// Set aside earlier and named again.
    pub brought_back: BlobSum,
    /// Set aside earlier and not missed since: gone.
    pub removed: BlobSum,
    /// The first hundred names of what was set aside or removed.
    pub names: Vec<String>,
}
