//! `riverrun dlq show`.

use std::path::PathBuf;

use base64::Engine;
use riverrun_api::wire::DeadLetterEntry;
use riverrun_schemas::{agreed, counted};

use crate::client::encode;
use crate::error::{CliError, Exit, WRITABLE};
use crate::host::Connection;
use crate::output::{Output, tell};

/// Bytes of a record that people see.
const SHOWN: usize = 512;

pub async fn run(connection: &Connection, id: &str, to: Option<PathBuf>, output: Output) -> Result<(), CliError> {
    let letter: DeadLetterEntry = connection.client.get(&format!("/dlq/{}", encode(id))).await?;
    let encoded = letter.payload_base64.as_deref().unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|error| CliError::new(Exit::Failed, format!("the record's bytes can't be read: {error}")))?;
    if let Some(path) = to {
        std::fs::write(&path, &bytes).map_err(|error| {
            CliError::new(Exit::Failed, format!("writing {} failed: {error}", path.display())).hint(WRITABLE)
        })?;
        tell(&format!("{} {} in {}", counted(bytes.len(), "byte"), agreed(bytes.len(), "is", "are"), path.display()));
    }
    output.show(&letter, |letter| {
        let mut lines = vec![
            format!("{} · {} · {}", letter.id, letter.status, letter.at),
            format!(
                "from {}/{}@{}, given up by {} after {}",
                letter.topic,
                letter.partition,
                letter.offset,
                letter.group,
                counted(letter.attempts, "try")
            ),
            format!("{}: {}", letter.code, letter.reason),
        ];
        lines.extend(letter.schema_id.map(|id| format!("schema id {id}")));
        lines.extend(letter.key.as_ref().map(|key| format!("key {key}")));
        lines.push(counted(bytes.len(), "byte"));
        lines.push(hex(&bytes[..bytes.len().min(SHOWN)]));
        lines.join("\n")
    })
}

/// Sixteen bytes a line, in hexadecimal and as far as they are text.
fn hex(bytes: &[u8]) -> String {
    let line = |(number, chunk): (usize, &[u8])| {
        let digits: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            chunk.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }).collect();
        format!("{:06x}  {:<47}  {text}", number * 16, digits.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect::<Vec<_>>().join("\n")
}
