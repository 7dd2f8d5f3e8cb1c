//! From a request to its answer: decoding, one module a family of requests, encoding.

mod admin;
mod configs;
mod fetch;
mod groups;
mod metadata;
mod offset_delete;
mod offsets;
mod operations;
mod produce;
mod sasl;
mod txn;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tokio::time::Instant;

use crate::groups::attendance::Attendance;
use crate::node::Node;
use crate::pace::Pace;
use crate::security::authentication::Authentication;
use crate::versions::announced;
use crate::wire::shape::{self, ShapeError};

/// Who asks, and of whom.
#[derive(Clone)]
pub(crate) struct Context {
    /// The broker.
    pub node: Arc<Node>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where it is.
    pub peer: SocketAddr,
    /// The address of ours that it has connected to.
    pub local: SocketAddr,
    /// Host and port that its listener tells to clients, if not that address.
    pub advertised: Option<(String, u16)>,
    /// What its connection is used for.
    pub pace: Pace,
    /// Who joined groups over it.
    pub attendance: Arc<Attendance>,
}

impl Context {
    /// Host and port under which this client finds the broker.
    pub(crate) fn advertised(&self) -> (StrBytes, i32) {
        match &self.advertised {
            Some((host, port)) => (text(host.clone()), i32::from(*port)),
            None => (text(self.local.ip().to_string()), i32::from(self.local.port())),
        }
    }
}

/// Why a connection must be closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// Too short for a header, or a header that is none.
    #[error("malformed request header")]
    Header,
    /// Nothing that was announced.
    #[error("request {key} version {version} is not announced")]
    Unknown {
        /// The API's number.
        key: i16,
        /// Its version.
        version: i16,
    },
    /// Lengths that cannot be.
    #[error("malformed request: {0}")]
    Shape(#[from] ShapeError),
    /// The codec refuses.
    #[error("malformed request: {0}")]
    Codec(String),
    /// Records of a client that wants no answer.
    #[error("records for partition {partition}, of which no acknowledgement is wanted, are refused: {reason}")]
    Refused {
        /// Index in its topic.
        partition: i32,
        /// Why.
        reason: String,
    },
    /// A request before the client has said who it is, or after it could not.
    #[error("request {key} before authentication")]
    Unauthenticated {
        /// The API's number.
        key: i16,
    },
}

/// An answer in the making; none for requests that want no answer.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Option<Bytes>, RequestError>> + Send>>;

/// Begins to work on a frame.
///
/// A produce request is queued before this returns, so that the order of a connection's requests is the order in the log;
/// its answer waits for the disk. Who joins a group or leaves it does so before this returns: a member that waits for the others and
/// goes must not wait for them to be heard. Everything else starts when the answer is awaited.
pub(crate) async fn begin(
    context: &Context,
    authentication: &mut Authentication,
    frame: Bytes,
) -> Result<Answer, RequestError> {
    if authentication.takes_bare_token() {
        return sasl::bare_token(authentication, &frame).await;
    }
    let (key, version, header, body) = parse_header(frame)?;
    let mut context = context.clone();
    context.client_id = header.client_id.map(|id| id.to_string()).unwrap_or_default();
    context.pace.arrived(key, Instant::now());
    let correlation = header.correlation_id;
    let unsupported = announced(key as i16).is_none_or(|api| !(api.min..=api.max).contains(&version));
    if unsupported {
        if key == ApiKey::ApiVersions {
            // A client that is newer than us is told, in version 0, what we speak.
            let answer = metadata::api_versions(0, ResponseError::UnsupportedVersion.code());
            return Ok(ready(encode(ApiKey::ApiVersions, 0, correlation, &answer).map(Some)));
        }
        return Err(RequestError::Unknown { key: key as i16, version });
    }
    shape::check(key, version, &body)?;
    match key {
        ApiKey::SaslHandshake => return sasl::handshake(authentication, version, correlation, body),
        ApiKey::SaslAuthenticate => return sasl::authenticate(authentication, version, correlation, body).await,
        ApiKey::ApiVersions => {}
        _ if authentication.is_done() => {}
        _ => return Err(RequestError::Unauthenticated { key: key as i16 }),
    }
    if key == ApiKey::Produce {
        let request = decode::<ProduceRequest>(body, version)?;
        let answer = produce::begin(&context, version, request).await;
        return Ok(Box::pin(async move {
            match answer.await? {
                Some(answer) => encode(ApiKey::Produce, version, correlation, &answer).map(Some),
                None => Ok(None),
            }
        }));
    }
    match key {
        ApiKey::JoinGroup => {
            let joining = groups::join_group(&context, version, decode(body, version)?);
            Ok(Box::pin(async move { encode(key, version, correlation, &joining.await).map(Some) }))
        }
        ApiKey::LeaveGroup => {
            let left = groups::leave_group(&context, version, decode(body, version)?);
            Ok(ready(encode(key, version, correlation, &left).map(Some)))
        }
        _ => Ok(Box::pin(async move { answer(&context, key, version, correlation, body).await.map(Some) })),
    }
}

fn ready(result: Result<Option<Bytes>, RequestError>) -> Answer {
    Box::pin(std::future::ready(result))
}

fn parse_header(mut frame: Bytes) -> Result<(ApiKey, i16, RequestHeader, Bytes), RequestError> {
    if frame.len() < 8 {
        return Err(RequestError::Header);
    }
    let (mut key, mut version) = (&frame[..2], &frame[2..4]);
    let (key, version) = (key.get_i16(), version.get_i16());
    let key = ApiKey::try_from(key).map_err(|()| RequestError::Unknown { key, version })?;
    // A version that is not known cannot say how its header looks; ApiVersions alone must be answered nevertheless, and
    // its correlation id stands in the same place in every version.
    let header_version =
        if key == ApiKey::ApiVersions && version > 4 { 1 } else { key.request_header_version(version) };
    let header = RequestHeader::decode(&mut frame, header_version).map_err(|_| RequestError::Header)?;
    Ok((key, version, header, frame))
}

fn decode<T: Decodable>(mut body: Bytes, version: i16) -> Result<T, RequestError> {
    // Bytes behind the request are ignored, as Apache Kafka does: librdkafka sends some with `Metadata` for all topics.
    T::decode(&mut body, version).map_err(|error| RequestError::Codec(error.to_string()))
}

fn encode<T: Encodable + HeaderVersion>(
    key: ApiKey,
    version: i16,
    correlation: i32,
    answer: &T,
) -> Result<Bytes, RequestError> {
    let fail = |error: anyhow::Error| {
        tracing::error!(?key, version, error = %error, "answer not encodable");
        RequestError::Codec(error.to_string())
    };
    let size = answer.compute_size(version).map_err(fail)?;
    let mut out = BytesMut::with_capacity(size + 16);
    out.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut out, T::header_version(version)).map_err(fail)?;
    answer.encode(&mut out, version).map_err(fail)?;
    let length = (out.len() - 4) as i32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    Ok(out.freeze())
}

async fn answer(
    context: &Context,
    key: ApiKey,
    version: i16,
    correlation: i32,
    body: Bytes,
) -> Result<Bytes, RequestError> {
    macro_rules! with {
        ($request:ty, $handler:path) => {{
            let request = decode::<$request>(body, version)?;
            let answer = $handler(context, version, request).await;
            encode(key, version, correlation, &answer)
        }};
    }
    match key {
        ApiKey::ApiVersions => with!(ApiVersionsRequest, metadata::handle_api_versions),
        ApiKey::Metadata => with!(MetadataRequest, metadata::metadata),
        ApiKey::DescribeCluster => with!(DescribeClusterRequest, metadata::describe_cluster),
        ApiKey::FindCoordinator => with!(FindCoordinatorRequest, metadata::find_coordinator),
        ApiKey::Fetch => with!(FetchRequest, fetch::fetch),
        ApiKey::ListOffsets => with!(ListOffsetsRequest, offsets::list_offsets),
        ApiKey::OffsetForLeaderEpoch => with!(OffsetForLeaderEpochRequest, offsets::offset_for_leader_epoch),
        ApiKey::OffsetCommit => with!(OffsetCommitRequest, offsets::offset_commit),
        ApiKey::OffsetFetch => with!(OffsetFetchRequest, offsets::offset_fetch),
        ApiKey::OffsetDelete => with!(OffsetDeleteRequest, offset_delete::offset_delete),
        ApiKey::SyncGroup => with!(SyncGroupRequest, groups::sync_group),
        ApiKey::Heartbeat => with!(HeartbeatRequest, groups::heartbeat),
        ApiKey::ListGroups => with!(ListGroupsRequest, groups::list_groups),
        ApiKey::DescribeGroups => with!(DescribeGroupsRequest, groups::describe_groups),
        ApiKey::DeleteGroups => with!(DeleteGroupsRequest, groups::delete_groups),
        ApiKey::CreateTopics => with!(CreateTopicsRequest, admin::create_topics),
        ApiKey::DeleteTopics => with!(DeleteTopicsRequest, admin::delete_topics),
        ApiKey::CreatePartitions => with!(CreatePartitionsRequest, admin::create_partitions),
        ApiKey::DeleteRecords => with!(DeleteRecordsRequest, admin::delete_records),
        ApiKey::DescribeConfigs => with!(DescribeConfigsRequest, configs::describe_configs),
        ApiKey::AlterConfigs => with!(AlterConfigsRequest, configs::alter_configs),
        ApiKey::IncrementalAlterConfigs => with!(IncrementalAlterConfigsRequest, configs::incremental_alter_configs),
        ApiKey::InitProducerId => with!(InitProducerIdRequest, txn::init_producer_id),
        ApiKey::AddPartitionsToTxn => with!(AddPartitionsToTxnRequest, txn::add_partitions_to_txn),
        ApiKey::AddOffsetsToTxn => with!(AddOffsetsToTxnRequest, txn::add_offsets_to_txn),
        ApiKey::TxnOffsetCommit => with!(TxnOffsetCommitRequest, txn::txn_offset_commit),
        ApiKey::EndTxn => with!(EndTxnRequest, txn::end_txn),
        ApiKey::DescribeProducers => with!(DescribeProducersRequest, txn::describe_producers),
        ApiKey::DescribeTransactions => with!(DescribeTransactionsRequest, txn::describe_transactions),
        ApiKey::ListTransactions => with!(ListTransactionsRequest, txn::list_transactions),
        _ => Err(RequestError::Unknown { key: key as i16, version }),
    }
}

/// An error as a coordinator of groups or transactions tells it. Of a write that was refused clients are told what has them look
/// for the coordinator and try again: the storage's own error would end a transactional producer for good.
fn of_coordinator(error: ResponseError) -> ResponseError {
    match error {
        ResponseError::KafkaStorageError => ResponseError::CoordinatorNotAvailable,
        other => other,
    }
}

/// Text for the wire.
fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// Kafka's number for an outcome.
fn code<T>(result: &Result<T, ResponseError>) -> i16 {
    result.as_ref().err().map_or(0, ResponseError::code)
}
