//! An encoder in its caller's process: what `scripts/bench/models.py` measures ONNX Runtime beside, which has no server in between either.
//!
//! `encoder MODEL` reads lines, each a JSON list of texts, until the end of its input, and answers each with a line:
//! `{"seconds": 0.0021, "vectors": [[...]]}`. Settings are those of riverrun (`RIVERRUN_MODELS_DIR`, `RIVERRUN_MODEL_THREADS`).

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use riverrun_models::{EmbedPurpose, EmbedRequest, Local, ModelSettings, Provider};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: encoder MODEL")?;
    let local = Local::new(&ModelSettings::from_env(&|name| std::env::var(name).ok())?)?;
    for line in std::io::stdin().lock().lines() {
        let inputs: Vec<String> = serde_json::from_str(&line?)?;
        let request = EmbedRequest { model: model.clone(), inputs, purpose: EmbedPurpose::Document, dimensions: None };
        let began = Instant::now();
        let reply = local.embed(request).await?;
        let seconds = began.elapsed().as_secs_f64();
        writeln!(std::io::stdout(), "{}", json!({ "seconds": seconds, "vectors": reply.vectors }))?;
    }
    Ok(())
}
