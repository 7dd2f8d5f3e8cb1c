/// Why an outside schema registry is of no use, now or at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It can't be reached, took too long, or says itself that it can't answer now.
    #[error("{address} does not answer: {reason}")]
    Away {
        /// Where it was asked, without credentials.
        address: String,
        /// What happened.
        reason: String,
    },
    /// It does not know who asks, or does not let them.
    #[error("{address} refuses the credentials (status {status})")]
    Unauthorized {
        /// Where it was asked.
        address: String,
        /// 401 or 403.
        status: u16,
    },
    /// What answers is no schema registry, or has another base path.
    #[error("{address} does not answer as a schema registry: {reason}")]
    NotARegistry {
        /// Where it was asked.
        address: String,
        /// What it answered.
        reason: String,
    },
    /// It takes no writes, and schemas of this build are missing.
    #[error("subject {subject} lacks a schema of this version, and the registry is in mode {mode}")]
    ReadOnly {
        /// The subject.
        subject: String,
        /// The mode that it says.
        mode: String,
    },
    /// It can't be told which id a schema has.
    #[error("the registry does not take subject {subject} with its ids: {reason}")]
    NoImport {
        /// The subject.
        subject: String,
        /// What it said.
        reason: String,
    },
    /// An id that this build uses is another schema there.
    #[error("schema id {id} is {theirs} in the registry and {ours} here")]
    IdTaken {
        /// The id.
        id: u32,
        /// The record of this build.
        ours: String,
        /// What the registry has.
        theirs: String,
    },
    /// A version of a subject is another schema there, or has another id.
    #[error("version {version} of subject {subject} is {theirs} in the registry and schema id {id} here")]
    VersionTaken {
        /// The subject.
        subject: String,
        /// The version.
        version: u32,
        /// The id of this build.
        id: u32,
        /// What the registry has.
        theirs: String,
    },
    /// The registry's rule of compatibility does not let a schema in.
    #[error("version {version} of subject {subject} is incompatible with what the registry has: {reasons}")]
    Incompatible {
        /// The subject.
        subject: String,
        /// The version.
        version: u32,
        /// What the registry says.
        reasons: String,
    },
    /// It took a schema and gave it another id.
    #[error("the registry gave subject {subject} schema id {given} instead of {wanted}")]
    IdIgnored {
        /// The subject.
        subject: String,
        /// The id that was said.
        wanted: u32,
        /// The id that it has now.
        given: u64,
    },
    /// A schema that was registered is not there any more.
    #[error("the registry has no schema id {id}, which is {record}")]
    Missing {
        /// The id.
        id: u32,
        /// The record of this build.
        record: String,
    },
    /// Another process that registers was faster with a subject's mode.
    #[error("subject {subject} can't be registered now: {reason}")]
    Busy {
        /// The subject.
        subject: String,
        /// What the registry said.
        reason: String,
    },
    /// Something else that the registry refuses.
    #[error("the registry refuses to {doing}: {reason}")]
    Refused {
        /// What was asked.
        doing: String,
        /// What it said.
        reason: String,
    },
    /// The client can't be made of these settings.
    #[error("a client for {address} can't be made: {reason}")]
    Client {
        /// The address.
        address: String,
        /// What is wrong.
        reason: String,
    },
}

impl RegistryError {
    /// Whether the same call may succeed later, with nothing changed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Busy { .. } => true,
            Self::Unauthorized { .. }
            | Self::NotARegistry { .. }
            | Self::ReadOnly { .. }
            | Self::NoImport { .. }
            | Self::IdTaken { .. }
            | Self::VersionTaken { .. }
            | Self::Incompatible { .. }
            | Self::IdIgnored { .. }
            | Self::Missing { .. }
            | Self::Refused { .. }
            | Self::Client { .. } => false,
        }
    }

    /// The fix.
    pub fn hint(&self) -> String {
        let fix = match self {
            Self::Away { .. } => "start the schema registry, or check RIVERRUN_SCHEMA_REGISTRY_URL",
            Self::Unauthorized { .. } => {
                "set RIVERRUN_SCHEMA_REGISTRY_USER and …_PASSWORD, or …_TOKEN, to those of somebody who may read and write subjects riverrun.*"
            }
            Self::NotARegistry { .. } => {
                "set RIVERRUN_SCHEMA_REGISTRY_URL to the address that ends in front of /subjects, such as http://host:8081"
            }
            Self::ReadOnly { .. } => {
                "let it take writes for the start (PUT /mode), or unset RIVERRUN_SCHEMA_REGISTRY_URL"
            }
            Self::NoImport { .. } | Self::IdIgnored { .. } => {
                "use a registry with mode IMPORT and credentials that may change modes, or unset RIVERRUN_SCHEMA_REGISTRY_URL: riverrun's own address serves its schemas"
            }
            Self::IdTaken { .. } | Self::VersionTaken { .. } => {
                "give riverrun a registry of its own, or a context of it: RIVERRUN_SCHEMA_REGISTRY_URL=http://host:8081/contexts/.riverrun"
            }
            Self::Incompatible { .. } => {
                "somebody changed the subject: delete the version that does not belong there, or use a context of riverrun's own"
            }
            Self::Missing { .. } => "restart riverrun, which registers what is missing",
            Self::Busy { .. } => "start again when the other processes have started",
            Self::Refused { .. } => "the log of the registry says more",
            Self::Client { .. } => {
                "correct RIVERRUN_SCHEMA_REGISTRY_URL, or the PEM file of RIVERRUN_SCHEMA_REGISTRY_CA_FILE"
            }
        };
        fix.to_owned()
    }
}
