//! Runs told to a tracing service, and the same runs without one.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use parking_lot::Mutex;
use riverrun_schemas::{RunId, TraceId};
use riverrun_workers::tracer::{OtlpConfig, TracingService, TracingSettings};
use serde_json::{Value, json};

use crate::harness::{Api, wait_for};

/// Bodies that a service was sent.
type Told = Arc<Mutex<Vec<Bytes>>>;

async fn service() -> (String, Told) {
    let told = Told::default();
    let keep = |State(told): State<Told>, body: Bytes| async move { told.lock().push(body) };
    let routes = Router::new().route("/v1/traces", post(keep)).with_state(told.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (format!("http://{address}/v1/traces"), told)
}

fn tracing(endpoint: &str) -> TracingService {
    let config = OtlpConfig { content: true, ..OtlpConfig::new(endpoint.parse().unwrap()) };
    TracingService::new(TracingSettings::On(Box::new(config)))
}

fn count(body: &[u8], part: &[u8]) -> usize {
    body.windows(part.len()).filter(|window| *window == part).count()
}

async fn row(api: &Api) -> Value {
    let diagnosis = api.get("/diagnose").await.body;
    diagnosis["services"].as_array().unwrap().iter().find(|row| row["name"] == "tracing").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tracing_service_when_a_run_ends_then_the_result_names_its_trace_and_the_service_has_it_before_the_stop()
 {
    let (endpoint, told) = service().await;
    let api = Api::traced(tracing(&endpoint)).await;
    wait_for("tracing to be up", async || (row(&api).await["status"] == "up").then_some(())).await;
    let run = api.post("/agent/run", json!({"task": "add up [[steps=2 id=traced]]", "agent": "react"})).await.body;
    let run_id: RunId = run["run_id"].as_str().unwrap().parse().unwrap();
    let trace = TraceId::from(run_id);
    assert_eq!(run["trace_id"], trace.to_string(), "{run}");
    assert_eq!(api.get(&format!("/runs/{run_id}")).await.body["trace_id"], trace.to_string());
    let page = api.get("/metrics").await.body.as_str().unwrap().to_owned();
    for line in [
        "riverrun_tracing_up 1\n",
        "riverrun_tool_calls_total{tool=\"calculator\",outcome=\"ok\"} 2\n",
        "riverrun_runs_finished_total{status=\"succeeded\",stop_reason=\"answered\"} 1\n",
        "riverrun_runs_silent 0\n",
        "riverrun_retrieval_stage_seconds_count{stage=\"dense\"} 0\n",
        "riverrun_consumer_lag{group=\"riverrun.tracer\"",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    api.stop().await;
    let body = told.lock().concat();
    assert!(count(&body, &trace.bytes()) >= 6, "the trace id stands in each span");
    assert_eq!((count(&body, b"invoke_agent react"), count(&body, b"execute_tool calculator")), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_tracing_service_that_is_away_when_a_run_ends_then_it_succeeds_without_a_trace_and_nothing_required_is_down()
 {
    let api = Api::traced(tracing("http://127.0.0.1:1/v1/traces")).await;
    let run = api.post("/agent/run", json!({"task": "add up [[steps=1 id=untraced]]", "agent": "react"})).await.body;
    assert_eq!((&run["status"], &run["trace_id"]), (&json!("succeeded"), &Value::Null), "{run}");
    let row = row(&api).await;
    assert_eq!((&row["status"], &row["required"]), (&json!("down"), &json!(false)), "{row}");
    assert!(row["fix"].as_str().unwrap().contains("RIVERRUN_TRACING_ENDPOINT"));
    assert!(api.get("/metrics").await.body.as_str().unwrap().contains("riverrun_tracing_up 0\n"));
    api.stop().await;
}
