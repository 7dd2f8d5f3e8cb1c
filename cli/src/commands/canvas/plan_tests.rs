use super::*;

fn agent(id: &str, y: f64, task: &str) -> Node {
    let data = AgentData {
        agent: Some("react".into()),
        task: task.into(),
        name: None,
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
    for (task, given) in [
        (" ", None),
        ("", Some(" ")),
        ("{{input}}", None),
        ("Work this out: {{input}}", None),
        ("On {{input}}", Some(" ")),
    ] {
        let refused = first(task, given).unwrap_err();
        assert!(refused.message.contains("no task") && refused.hint.unwrap().contains("--task"), "{task:?} {given:?}");
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

fn called(id: &str, y: f64, name: &str) -> Node {
    let mut node = agent(id, y, "x");
    if let Content::Agent(data) = &mut node.content {
        data.name = Some(name.into());
    }
    node
}

fn names_in(canvas: &Canvas) -> Vec<(String, Vec<String>)> {
    let chain = chain_of(canvas, "team", &turns(canvas, Some("b")).unwrap(), None).unwrap();
    chain.runs.into_iter().map(|run| (run.name, run.after)).collect()
}

#[test]
fn given_agents_with_names_when_the_chain_is_made_then_its_runs_are_called_so_unless_two_have_the_same() {
    let rows = [
        (called("a", 0.0, "Researcher"), called("b", 1.0, "Critic"), ["Researcher", "Critic"]),
        (agent("a", 0.0, "x"), called("b", 1.0, "Critic"), ["a", "Critic"]),
        (called("a", 0.0, "Critic"), called("b", 1.0, "Critic"), ["a", "b"]),
        (called("a", 0.0, "b"), agent("b", 1.0, "x"), ["a", "b"]),
    ];
    for (first, second, [before, after]) in rows {
        let canvas = canvas(vec![first, second], &[("a", "b")]);
        assert_eq!(names_in(&canvas), [(before.to_owned(), vec![]), (after.to_owned(), vec![before.to_owned()])]);
    }
}

#[test]
fn given_a_name_when_it_says_which_agent_to_run_then_the_only_one_of_it_runs_and_of_several_their_ids_are_said() {
    let canvas = canvas(vec![called("a", 0.0, "Critic"), called("b", 1.0, "Critic"), called("c", 2.0, "b")], &[]);
    assert_eq!(ids(&canvas, Some("b")), ["b"], "ids go before names");
    let several = turns(&canvas, Some("Critic")).unwrap_err();
    assert!(several.message.contains("2 agents are called \"Critic\""), "{several}");
    assert!(several.hint.unwrap().contains("a (Critic), b (Critic)"));
    let alone = super::Canvas { nodes: vec![called("a", 0.0, "Critic"), agent("d", 1.0, "x")], ..canvas };
    assert_eq!(ids(&alone, Some("Critic")), ["a"]);
    assert!(turns(&alone, Some("z")).unwrap_err().hint.unwrap().contains("a (Critic), d"));
}

#[test]
fn given_an_agent_with_a_name_but_no_task_when_it_is_to_run_then_it_is_said_by_its_name() {
    let mut node = called("a", 0.0, "Critic");
    if let Content::Agent(data) = &mut node.content {
        data.task = String::new();
    }
    let canvas = canvas(vec![node], &[]);
    let error = task_of(&turns(&canvas, None).unwrap()[0], None).unwrap_err();
    assert_eq!(error.message, "agent Critic has no task");
}
