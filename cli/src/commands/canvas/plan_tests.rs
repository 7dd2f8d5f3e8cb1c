use super::*;

fn agent(id: &str, y: f64, task: &str) -> Node {
    let data = AgentData {
        agent: Some("react".into()),
        task: task.into(),
        model: None,
        max_iters: None,
        approval: None,
        session: None,
    };
    Node { id: id.into(), x: 0.0, y, content: Content::Agent(data) }
}

fn other(id: &str, content: Content) -> Node {
    Node { id: id.into(), x: 0.0, y: 0.0, content }
}

fn canvas(nodes: Vec<Node>, edges: &[(&str, &str)]) -> Canvas {
    let edges = edges.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    Canvas { name: "c".into(), namespace: "default".into(), nodes, edges }
}

fn ids(canvas: &Canvas, wanted: Option<&str>) -> Vec<String> {
    turns(canvas, wanted).unwrap().iter().map(|turn| turn.node.id.clone()).collect()
}

#[test]
fn given_agents_that_wait_for_each_other_when_one_is_wanted_then_each_runs_once_and_after_those_it_waits_for() {
    let nodes = vec![agent("d", 0.0, "x"), agent("a", 0.0, "x"), agent("b", 2.0, "x"), agent("c", 1.0, "x")];
    let canvas = canvas(nodes, &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]);
    assert_eq!(ids(&canvas, None), ["a", "c", "b", "d"]);
    assert_eq!(ids(&canvas, Some("b")), ["a", "b"]);
    assert_eq!(turns(&canvas, None).unwrap()[3].before, ["c", "b"], "from above to below");
    assert!(turns(&canvas, Some("z")).unwrap_err().hint.unwrap().contains("d, a, b, c"));
}

#[test]
fn given_no_single_last_agent_when_none_is_named_then_it_is_said_which_there_are() {
    let two = canvas(vec![agent("a", 0.0, "x"), agent("b", 0.0, "x")], &[]);
    assert!(turns(&two, None).unwrap_err().hint.unwrap().contains("--node: a, b"));
    assert!(turns(&canvas(vec![other("t", Content::Tool("clock".into()))], &[]), None).is_err());
}

#[test]
fn given_a_task_when_it_is_made_then_input_and_answers_stand_where_it_says() {
    let first = |task: &str, given: Option<&str>| {
        let canvas = canvas(vec![agent("a", 0.0, task)], &[]);
        task_of(&turns(&canvas, None).unwrap()[0], given)
    };
    assert_eq!(first("drawn", None).unwrap(), "drawn");
    assert_eq!(first("drawn", Some("given")).unwrap(), "given");
    assert_eq!(first("About {{input}}: {{input}}", Some("$1")).unwrap(), "About $1: $1");
    for (task, given) in [(" ", None), ("", Some(" ")), ("{{input}}", None)] {
        assert!(first(task, given).unwrap_err().message.contains("no task"), "{task:?} {given:?}");
    }
    let later = |task: &str| {
        let canvas = canvas(vec![agent("a", 0.0, "x"), agent("b", 0.0, task)], &[("a", "b")]);
        task_of(&turns(&canvas, None).unwrap()[1], Some("never here")).unwrap()
    };
    for (task, made) in [("Shorten: {{input}}", "Shorten: {{input}}"), ("Shorten", "Shorten"), (" ", "{{input}}")] {
        assert_eq!(later(task), made, "the server puts the answers in");
    }
}

#[test]
fn given_what_is_connected_when_the_request_is_made_then_it_has_exactly_that() {
    let nodes = vec![
        agent("a", 0.0, "x"),
        agent("b", 0.0, "x"),
        other("t1", Content::Tool("clock".into())),
        other("t2", Content::Tool("calculator".into())),
        other("t3", Content::Tool("clock".into())),
        other("c", Content::Collection("docs".into())),
        other("n", Content::Note),
    ];
    let canvas = canvas(nodes, &[("t1", "a"), ("t2", "a"), ("t3", "a"), ("c", "b"), ("a", "b")]);
    let turns = turns(&canvas, None).unwrap();
    let bodies: Vec<RunBody> =
        turns.iter().map(|turn| body_of(&canvas, "team", turn, turn.agent.task.clone())).collect();
    assert_eq!(bodies[0].tools.as_deref().unwrap(), ["calculator", "clock"]);
    assert_eq!(bodies[0].collections.as_deref().unwrap(), [""; 0]);
    assert_eq!(bodies[1].tools.as_deref().unwrap(), ["knowledge_search"]);
    assert_eq!(bodies[1].collections.as_deref().unwrap(), ["docs"]);
    assert_eq!(bodies[1].namespace.as_deref(), Some("team"));
    assert_eq!(bodies[1].metadata.as_ref().unwrap()["node"], "b");
}

#[test]
fn given_agents_that_wait_for_each_other_when_the_chain_is_made_then_each_names_those_it_waits_for() {
    let nodes = vec![agent("a", 0.0, "{{input}}"), agent("b", 0.0, ""), agent("c", 1.0, "Join: {{input}}")];
    let canvas = canvas(nodes, &[("a", "b"), ("a", "c"), ("b", "c")]);
    let chain = chain_of(&canvas, "team", &turns(&canvas, None).unwrap(), Some("go")).unwrap();
    let made: Vec<(&str, Vec<&str>, &str)> = chain
        .runs
        .iter()
        .map(|run| (run.name.as_str(), run.after.iter().map(String::as_str).collect(), run.run.task.as_str()))
        .collect();
    assert_eq!(made, [("a", vec![], "go"), ("b", vec!["a"], "{{input}}"), ("c", vec!["a", "b"], "Join: {{input}}"),]);
    assert_eq!(chain.namespace.as_deref(), Some("team"));
    assert!(chain_of(&canvas, "team", &turns(&canvas, None).unwrap(), None).is_err(), "the first has no task");
}
