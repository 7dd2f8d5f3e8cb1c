use std::time::Duration;

use riverrun_schemas::agent::ToolEffect;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tools::ToolLimits;

/// Waits, then gives text of a length.
struct Given {
    name: &'static str,
    namespace: Option<&'static str>,
    limits: ToolLimits,
    wait: Duration,
    length: usize,
}

impl Default for Given {
    fn default() -> Self {
        Self { name: "given", namespace: None, limits: ToolLimits::default(), wait: Duration::ZERO, length: 3 }
    }
}

#[async_trait]
impl Tool for Given {
    fn manifest(&self) -> ToolManifest {
        let mut manifest =
            ToolManifest::builtin(self.name, "", json!({ "type": "object" }), ToolEffect::None).limited(self.limits);
        manifest.namespace = self.namespace.map(|name| name.parse().unwrap());
        manifest
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        tokio::time::sleep(self.wait).await;
        Ok(json!("x".repeat(self.length)))
    }
}

fn toolbox(tools: Vec<Given>) -> Toolbox {
    Toolbox::new(tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect())
}

fn context(namespace: &str) -> ToolContext {
    ToolContext {
        namespace: namespace.parse().unwrap(),
        collections: None,
        call_id: "call".into(),
        cancel: CancellationToken::new(),
        memory: None,
    }
}

fn names(selected: Result<Vec<ToolManifest>, UnknownTool>) -> Vec<String> {
    selected.unwrap().into_iter().map(|tool| tool.name).collect()
}

#[tokio::test]
async fn given_tools_of_namespaces_when_one_asks_then_it_sees_and_calls_only_its_own() {
    let tools = toolbox(vec![
        Given { name: "all", ..Given::default() },
        Given { name: "a", namespace: Some("team"), ..Given::default() },
        Given { name: "b", namespace: Some("team-b"), ..Given::default() },
    ]);
    for (namespace, expected) in
        [("team", vec!["all", "a"]), ("team-b", vec!["all", "b"]), ("tea", vec!["all"]), ("default", vec!["all"])]
    {
        let namespace: Namespace = namespace.parse().unwrap();
        assert_eq!(names(tools.select(&namespace, None)), expected, "{namespace}");
    }
    let team: Namespace = "team".parse().unwrap();
    assert_eq!(names(tools.select(&team, Some(&["a".into()]))), ["a"]);
    let error = tools.select(&team, Some(&["b".into()])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no tool \"b\"; the tools are all, a",
        "no name of another namespace is told"
    );
    assert!(tools.call("b", json!({}), &context("team-b")).await.is_ok());
    assert!(matches!(tools.call("b", json!({}), &context("team")).await, Err(ToolError::NotSent(_))));
}

#[tokio::test]
async fn given_limits_when_a_call_goes_past_them_then_the_error_says_which() {
    let limits = ToolLimits { timeout: Duration::from_millis(20), result_bytes: 10 };
    let slow = toolbox(vec![Given { limits, wait: Duration::from_secs(600), ..Given::default() }]);
    assert_eq!(slow.call("given", json!({}), &context("a")).await, Err(ToolError::TimedOut(Duration::from_millis(20))));
    let long = toolbox(vec![Given { limits, length: 9, ..Given::default() }]);
    assert_eq!(
        long.call("given", json!({}), &context("a")).await,
        Err(ToolError::TooLarge { bytes: 11, limit: 10 }),
        "nine letters and two quotes"
    );
    let fits = toolbox(vec![Given { limits, length: 8, ..Given::default() }]);
    assert_eq!(fits.call("given", json!({}), &context("a")).await, Ok(json!("xxxxxxxx")));
}

#[tokio::test]
async fn given_a_cancelled_run_when_a_tool_is_called_then_it_is_not() {
    let context = context("a");
    context.cancel.cancel();
    assert_eq!(toolbox(vec![Given::default()]).call("given", json!({}), &context).await, Err(ToolError::Cancelled));
}
