//! `riverrun openapi`.

use crate::error::CliError;
use crate::output::print_json;

pub fn run() -> Result<(), CliError> {
    print_json(&riverrun_api::openapi())
}
