use std::collections::BTreeMap;

use riverrun_knowledge::web::WebPolicy;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::tools::{ToolContext, ToolError, Toolbox};

fn config(secrets: &[(&str, &str)]) -> DefinedConfig {
    let secrets: BTreeMap<String, String> =
        secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let policy: WebPolicy = "127.0.0.1".parse().unwrap();
    DefinedConfig {
        file: None,
        must_exist: true,
        web: GuardedClient::new(policy),
        sandbox: Some(Sandbox::new("/bin/true")),
        secrets: Arc::new(move |name| secrets.get(name).cloned()),
    }
}

pub(super) fn load(text: &str) -> DefinedTools {
    DefinedTools::parse(Path::new("tools.toml"), text, &config(&[("SET", "canary-secret")]))
}

pub(super) fn context() -> ToolContext {
    ToolContext {
        namespace: Namespace::default(),
        collections: None,
        call_id: "call_1".into(),
        cancel: CancellationToken::new(),
        memory: None,
    }
}

const HTTP: &str = "[[tool]]\nname = \"t\"\ndescription = \"d\"\neffect = \"none\"\n";

#[test]
fn given_a_whole_file_when_it_is_loaded_then_every_kind_of_tool_is_there_with_its_manifest() {
    let tools = load(
        r#"
        [[tool]]
        name = "weather"
        description = "The weather of a city."
        effect = "none"
        namespace = "team"
        timeout_s = 7
        max_result_bytes = 1000
        optional = ["days"]
        [tool.arguments.city]
        type = "string"
        description = "The city"
        [tool.arguments.days]
        type = "integer"
        minimum = 1
        [tool.http]
        url = "https://api.example/v1/{city}?days={days}"
        [tool.http.headers]
        authorization = { env = "SET", prefix = "Bearer " }

        [[tool]]
        name = "words"
        description = "Counts words."
        effect = "none"
        arguments.text = { type = "string", maxLength = 100 }
        command = { program = "/bin/cat", args = ["-u"], stdin = "{text}", memory_mb = 64 }

        [[tool]]
        name = "stock"
        description = "What is left of a part."
        effect = "idempotent"
        arguments.part = { type = "string", enum = ["a", "b"] }
        kafka = {}

        [[mcp]]
        name = "time"
        command = "/bin/cat"

        [[mcp]]
        name = "remote"
        namespace = "team"
        url = "http://127.0.0.1:1/mcp"
        trust_read_only = true
        "#,
    );
    assert_eq!(tools.problems(), []);
    let manifests: Vec<ToolManifest> = tools.tools().iter().map(|tool| tool.manifest()).collect();
    let shown: Vec<_> = manifests.iter().map(|m| (m.name.as_str(), m.source.as_str(), m.namespace.is_some())).collect();
    assert_eq!(shown, [("weather", "http", true), ("words", "command", false), ("stock", "kafka", false)]);
    assert_eq!((manifests[0].limits.timeout.as_secs(), manifests[0].limits.result_bytes), (7, 1000));
    assert_eq!(
        manifests[0].input_schema,
        json!({
            "type": "object",
            "properties": {
                "city": { "description": "The city", "maxLength": 2000, "type": "string" },
                "days": { "minimum": 1, "type": "integer" },
            },
            "required": ["city"],
            "additionalProperties": false,
        })
    );
    let servers: Vec<_> = tools.servers().into_iter().map(|server| (server.name, server.tools)).collect();
    assert_eq!(servers, [("time".to_owned(), 0), ("remote".to_owned(), 0)], "nothing is started by loading");
    let team: Namespace = "team".parse().unwrap();
    assert_eq!(tools.prefixes(), [(None, "time__".to_owned()), (Some(team), "remote__".to_owned())]);
    assert!(tools.has_commands());
}

#[test]
fn given_an_entry_that_can_not_be_used_when_it_is_loaded_then_the_problem_has_the_line_and_a_fix_and_the_rest_works() {
    let good = "[[tool]]\nname = \"good\"\ndescription = \"d\"\neffect = \"none\"\nkafka = {}\n";
    for (entry, says) in [
        ("[[tool]]\nname = \"Bad-Name\"\ndescription = \"d\"\neffect = \"none\"\nkafka = {}", "no name of a tool"),
        ("[[tool]]\nname = \"a__b\"\ndescription = \"d\"\neffect = \"none\"\nkafka = {}", "no name of a tool"),
        ("[[tool]]\nname = \"calculator\"\ndescription = \"d\"\neffect = \"none\"\nkafka = {}", "riverrun's own"),
        ("[[tool]]\nname = \"good\"\ndescription = \"d\"\neffect = \"none\"\nkafka = {}", "defined twice"),
        ("[[tool]]\nname = \"t\"\ndescription = \" \"\neffect = \"none\"\nkafka = {}", "description has 0"),
        ("[[tool]]\nname = \"t\"\ndescription = \"d\"\neffect = \"none\"", "not exactly one"),
        (&format!("{HTTP}kafka = {{}}\nhttp = {{ url = \"https://a.example/\" }}"), "not exactly one"),
        (&format!("{HTTP}timeout_s = 0\nkafka = {{}}"), "timeout_s is 0"),
        (&format!("{HTTP}max_result_bytes = 999999999\nkafka = {{}}"), "max_result_bytes"),
        (&format!("{HTTP}optional = [\"x\"]\nkafka = {{}}"), "no argument"),
        (&format!("{HTTP}arguments.x = {{ description = \"no type\" }}\nkafka = {{}}"), "has no type"),
        (&format!("{HTTP}arguments.x = {{ type = \"text\" }}\nkafka = {{}}"), "no JSON schema"),
        (&format!("{HTTP}arguments.\"a b\" = {{ type = \"string\" }}\nkafka = {{}}"), "no usable name"),
        (&format!("{HTTP}http = {{ url = \"http://10.0.0.1/\" }}"), "private"),
        (&format!("{HTTP}http = {{ url = \"file:///etc/passwd\" }}"), "http or https"),
        (&format!("{HTTP}http = {{ url = \"https://a.example/{{x}}\" }}"), "no argument"),
        (&format!("{HTTP}http = {{ url = \"https://a.example/\", method = \"TRACE\" }}"), "TRACE"),
        (
            &format!("{HTTP}http = {{ url = \"https://a.example/\", headers = {{ Host = \"x\" }} }}"),
            "set by the client",
        ),
        (&format!("{HTTP}http = {{ url = \"https://a.example/\", headers = {{ x = \"a\\nb\" }} }}"), "line break"),
        (
            &format!("{HTTP}http = {{ url = \"https://a.example/\", headers = {{ x = {{ env = \"UNSET\" }} }} }}"),
            "UNSET",
        ),
        (&format!("{HTTP}http = {{ url = \"https://a.example/\", body = {{ a = 1 }} }}"), "has a body"),
        (
            &format!("{HTTP}arguments.x = {{ type = \"string\" }}\nhttp = {{ url = \"https://a.example/\" }}"),
            "used nowhere",
        ),
        (
            &format!(
                "{HTTP}optional = [\"x\"]\narguments.x = {{ type = \"string\" }}\nhttp = {{ url = \"https://a.example/{{x}}\" }}"
            ),
            "is optional",
        ),
        (&format!("{HTTP}command = {{ program = \"sh\" }}"), "no absolute path"),
        (&format!("{HTTP}command = {{ program = \"/no/such\" }}"), "is not there"),
        (&format!("{HTTP}command = {{ program = \"/bin/cat\", args = [\"-x={{y}}\"] }}"), "mixes text"),
        (&format!("{HTTP}command = {{ program = \"/bin/cat\", env = {{ LD_PRELOAD = \"/x\" }} }}"), "LD_PRELOAD"),
        (&format!("{HTTP}command = {{ program = \"/bin/cat\", write = [\"x\"] }}"), "no absolute path"),
        ("[[mcp]]\nname = \"m\"", "exactly one of command and url"),
        ("[[mcp]]\nname = \"m\"\ncommand = \"uvx\"", "no absolute path"),
        ("[[mcp]]\nname = \"m\"\nurl = \"http://169.254.169.254/\"", "metadata"),
        ("[[mcp]]\nname = \"m\"\nurl = \"https://user:pw@a.example/\"", "user name"),
        ("[[mcp]]\nname = \"m\"\nurl = \"https://a.example/\"\nargs = [\"x\"]", "no args"),
    ] {
        let tools = load(&format!("{good}\n{entry}\n"));
        let [problem] = tools.problems() else { panic!("{entry}: {:?}", tools.problems()) };
        assert!(problem.reason.contains(says), "{entry}: {problem}");
        assert!(!problem.fix.is_empty() && problem.line == 8, "{entry}: {problem} {}", problem.line);
        assert_eq!(tools.count(), 1, "{entry}: the good one is there");
    }
}

#[test]
fn given_a_file_that_is_none_when_it_is_loaded_then_the_problem_names_the_line_and_not_its_text() {
    for (text, line) in [
        ("[[tool]]\nname = \"x\"\nsecret = \"canary\"\n", 3),
        ("[[tool]]\nname = \"x\"\ndescription = \"d\"\neffect = \"maybe canary\"\n", 4),
        ("[[tools]]\n", 1),
        ("\nname = canary\n", 2),
    ] {
        let tools = load(text);
        let [problem] = tools.problems() else { panic!("{text}") };
        assert_eq!(problem.line, line, "{problem}");
        assert!(!problem.to_string().contains("canary\"") || text.contains("maybe"), "{problem}");
    }
    let mut config = config(&[]);
    config.file = Some("/no/such/tools.toml".into());
    assert_eq!(DefinedTools::load(&config).problems()[0].line, 0);
    config.must_exist = false;
    assert_eq!(DefinedTools::load(&config).problems(), []);
}

/// Answers each request with its own text, as JSON.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut text = vec![0; 16 << 10];
                let read = socket.read(&mut text).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&text[..read]).into_owned();
                let status = if request.contains("fail") { "500 Oops" } else { "200 OK" };
                let body = json!({ "request": request }).to_string();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn given_an_http_tool_when_it_is_called_then_the_request_is_the_templates_and_no_secret_comes_back() {
    let server = echo().await;
    let tools = load(&format!(
        r#"
        [[tool]]
        name = "order"
        description = "d"
        effect = "external"
        arguments.id = {{ type = "string" }}
        arguments.count = {{ type = "integer" }}
        arguments.note = {{ type = "string" }}
        optional = ["note"]
        [tool.http]
        method = "POST"
        url = "{server}/orders/{{id}}"
        [tool.http.headers]
        authorization = {{ env = "SET", prefix = "Bearer " }}
        "#
    ));
    assert_eq!(tools.problems(), []);
    let toolbox = Toolbox::default().with_set(Arc::new(tools));
    let result = toolbox.call("order", json!({ "id": "a/b?c", "count": 3 }), &context()).await.unwrap();
    let request = result["body"]["request"].as_str().unwrap();
    assert!(request.starts_with("POST /orders/a%2Fb%3Fc HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("idempotency-key: call_1"), "{request}");
    assert!(request.ends_with("{\"count\":3}"), "{request}");
    assert!(request.contains("Bearer ***") && !request.contains("canary"), "{request}");

    let error = toolbox.call("order", json!({ "id": "fail", "count": 1 }), &context()).await.unwrap_err().to_string();
    assert!(error.contains("answered 500") && !error.contains("canary"), "{error}");
    for bad in
        [json!({ "id": "x" }), json!({ "id": 7, "count": 1 }), json!({ "id": "x", "count": 1, "more": 1 }), json!([])]
    {
        let error = toolbox.call("order", bad.clone(), &context()).await.unwrap_err();
        assert!(matches!(error, ToolError::Arguments(_)), "{bad}: {error}");
    }
    let huge = Value::from("x".repeat(10 << 20));
    let error = toolbox.call("order", json!({ "id": huge, "count": 1 }), &context()).await.unwrap_err();
    assert!(error.to_string().len() < 1_000, "an error does not repeat ten megabytes");
}

#[tokio::test]
async fn given_a_request_that_was_sent_when_the_connection_breaks_off_then_its_outcome_is_not_known_and_one_unsent_failed()
 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tools = load(&format!(
        r#"
        [[tool]]
        name = "pay"
        description = "d"
        effect = "external"
        [tool.http]
        method = "POST"
        url = "http://{address}/pay"
        "#
    ));
    assert_eq!(tools.problems(), []);
    let toolbox = Toolbox::default().with_set(Arc::new(tools));
    let context = context();
    let breaks_off = async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert!(socket.read(&mut request).await.unwrap() > 0);
    };
    let (broken, ()) = tokio::join!(toolbox.call("pay", json!({}), &context), breaks_off);
    let broken = broken.unwrap_err();
    assert!(matches!(broken, ToolError::Lost(_)), "{broken:?}");
    // Nobody listens there any more: nothing was sent.
    let refused = toolbox.call("pay", json!({}), &context).await.unwrap_err();
    assert!(matches!(refused, ToolError::NotSent(_)), "{refused:?}");
}

#[tokio::test]
async fn given_a_server_that_tls_can_not_be_spoken_with_when_a_tool_calls_it_then_nothing_was_sent_and_the_call_failed()
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tools = load(&format!(
        r#"
        [[tool]]
        name = "pay"
        description = "d"
        effect = "external"
        timeout_s = 1
        [tool.http]
        method = "POST"
        url = "https://{}/pay"
        "#,
        listener.local_addr().unwrap()
    ));
    assert_eq!(tools.problems(), []);
    let toolbox = Toolbox::default().with_set(Arc::new(tools));
    let context = context();
    for says in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let speaks_no_tls = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.write_all(says.as_bytes()).await.unwrap();
            socket
        };
        let (failed, _open) = tokio::join!(toolbox.call("pay", json!({}), &context), speaks_no_tls);
        let failed = failed.unwrap_err();
        assert!(matches!(failed, ToolError::NotSent(_)), "{says:?}: {failed:?}");
    }
}

#[tokio::test]
async fn given_a_server_that_does_not_start_when_it_is_needed_then_its_trouble_is_told_and_it_is_not_tried_in_a_spin() {
    let tools = load("[[mcp]]\nname = \"gone\"\ncommand = \"/bin/false\"\n");
    let namespace = Namespace::default();
    tools.prepare(&namespace).await;
    let [server] = &tools.servers()[..] else { panic!() };
    assert!(server.trouble.is_some() && server.tools == 0, "{server:?}");
    let before = server.trouble.clone();
    tools.prepare(&namespace).await;
    assert_eq!(tools.servers()[0].trouble, before, "the second try waits for its pause");
}
