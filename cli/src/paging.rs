//! Lists that come in pages: how a page is asked for, and where the next one is.

use clap::Args;

/// Which page of a list.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Most entries of a page, 1 to 500; 50 when left out
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Where the list goes on: `next_cursor` of the page before
    #[arg(long)]
    cursor: Option<String>,
}

impl PageArgs {
    /// As the routes take it.
    pub fn query(self) -> [(&'static str, Option<String>); 2] {
        [("limit", self.limit.map(|limit| limit.to_string())), ("cursor", self.cursor)]
    }
}
