//! Canvases that the server keeps: `riverrun canvas ls|show|save|rm`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use riverrun_api::wire::{CanvasBody, CanvasEntry, CanvasRemoved, CanvasView, Page};
use riverrun_schemas::CanvasId;
use serde_json::Value;

use super::document::{bytes_of, read};
use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, print_json, table};
use crate::paging::PageArgs;

/// What to do with canvases of the server.
#[derive(Debug, Subcommand)]
pub enum SavedCommand {
    /// List the canvases that the server keeps
    Ls {
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Print a canvas as it is exported
    Show {
        /// Its id
        id: String,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Keep an exported canvas on the server
    Save(CanvasSaveArgs),
    /// Remove a canvas from the server
    Rm {
        /// Its id
        id: String,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
}

/// Options of `canvas save`.
#[derive(Debug, Args)]
pub struct CanvasSaveArgs {
    /// A canvas that was exported
    pub file: PathBuf,
    /// Its id: a-z, 0-9, - and _; made from its name when left out
    #[arg(long)]
    pub id: Option<String>,
    /// The revision that was changed; 0 is a canvas that is new
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub revision: i64,
    /// The namespace; the one that the canvas names when left out
    #[arg(short, long)]
    pub namespace: Option<String>,
}

/// Does it.
pub async fn run(connection: &Connection, command: SavedCommand, output: Output) -> Result<(), CliError> {
    match command {
        SavedCommand::Ls { namespace, page } => ls(connection, namespace, page, output).await,
        SavedCommand::Show { id, namespace } => {
            let view = get(connection, &id, namespace.as_deref()).await?;
            if output.json { print_json(&view) } else { print_json(&view.document) }
        }
        SavedCommand::Save(args) => save(connection, args, output).await,
        SavedCommand::Rm { id, namespace } => {
            let gone: CanvasRemoved = connection.client.delete(&path_of(&id, namespace.as_deref())).await?;
            output.show(&gone, |gone| format!("{} is gone (it was at revision {})", gone.canvas_id, gone.revision))
        }
    }
}

fn path_of(id: &str, namespace: Option<&str>) -> String {
    with_query(&format!("/canvases/{}", encode(id)), &[("namespace", namespace.map(str::to_owned))])
}

async fn get(connection: &Connection, id: &str, namespace: Option<&str>) -> Result<CanvasView, CliError> {
    connection.client.get(&path_of(id, namespace)).await
}

/// A canvas by its id, or by the name that only one has.
pub(super) async fn find(
    connection: &Connection,
    wanted: &str,
    namespace: Option<&str>,
) -> Result<CanvasView, CliError> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let query =
            [("namespace", namespace.map(str::to_owned)), ("limit", Some("500".to_owned())), ("cursor", cursor)];
        let page: Page<CanvasEntry> = connection.client.get(&with_query("/canvases", &query)).await?;
        if page.items.iter().any(|entry| entry.canvas_id == wanted) {
            return get(connection, wanted, namespace).await;
        }
        ids.extend(page.items.into_iter().filter(|entry| entry.name == wanted).map(|entry| entry.canvas_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    match ids.as_slice() {
        [id] => get(connection, id, namespace).await,
        [] => Err(CliError::new(Exit::Refused, format!("{wanted:?} is no file and no canvas of the server"))
            .hint("riverrun canvas ls shows those of a namespace (-n)")),
        several => Err(CliError::new(Exit::Refused, format!("{} canvases are called {wanted:?}", several.len()))
            .hint(format!("name one by its id: {}", several.join(", ")))),
    }
}

async fn ls(
    connection: &Connection,
    namespace: Option<String>,
    page: PageArgs,
    output: Output,
) -> Result<(), CliError> {
    let [limit, cursor] = page.query();
    let path = with_query("/canvases", &[("namespace", namespace), limit, cursor]);
    let found: Page<CanvasEntry> = connection.client.get(&path).await?;
    output.show(&found, |found| {
        let row = |entry: &CanvasEntry| {
            [
                entry.canvas_id.clone(),
                entry.name.clone(),
                entry.revision.to_string(),
                entry.size_bytes.to_string(),
                entry.saved_at.to_string(),
            ]
        };
        table(
            ["canvas", "name", "revision", "bytes", "saved"],
            found.items.iter().map(row).collect(),
            "there are no canvases in this namespace; keep one: riverrun canvas save <file>",
        )
    })?;
    output.tell_rest(found.next_cursor.as_deref());
    Ok(())
}

async fn save(connection: &Connection, args: CanvasSaveArgs, output: Output) -> Result<(), CliError> {
    let bytes = bytes_of(&args.file)?;
    let canvas = read(&bytes)?;
    let id = match args.id {
        Some(id) => id,
        None => id_from(&canvas.name)?,
    };
    let document: Value = serde_json::from_slice(&bytes).map_err(std::io::Error::other)?;
    let namespace = Some(args.namespace.unwrap_or(canvas.namespace));
    let body = CanvasBody { revision: args.revision, document, namespace };
    let kept: CanvasEntry = connection.client.put(&path_of(&id, None), &body).await?;
    output.show(&kept, |kept| {
        format!("{} is kept in namespace {}, revision {}", kept.canvas_id, kept.namespace, kept.revision)
    })
}

/// An id that people recognise: the letters and digits of the name, joined by `-`.
fn id_from(name: &str) -> Result<String, CliError> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id: String = words.collect::<Vec<_>>().join("-").to_ascii_lowercase().chars().take(63).collect();
    if id.parse::<CanvasId>().is_ok() {
        return Ok(id);
    }
    Err(CliError::new(Exit::Usage, format!("no id can be made from the name {name:?}")).hint("--id my-canvas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_when_ids_are_made_of_them_then_each_is_one_or_refused() {
        assert_eq!(id_from("Two in a row!").unwrap(), "two-in-a-row");
        assert_eq!(id_from(&"x".repeat(100)).unwrap().len(), 63);
        for bad in ["", "—", "  ", "日本"] {
            assert_eq!(id_from(bad).unwrap_err().exit, Exit::Usage);
        }
    }
}
