//! What a file defines at its outermost level, and who can use it; of what stands within it, the names alone ([`names_with_members`]).
//! Of Python [`Module`](crate::python::Module) says it.

use std::collections::HashSet;

use tree_sitter::Node;

use crate::language::{Language, each, named, text};
pub(crate) use members::names_with_members;

mod members;

/// Who can use a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The file (in Go: the package).
    File,
    /// The project, such as `pub(crate)`.
    Project,
    /// Everybody.
    World,
}

/// Something that has a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition<'t, 's> {
    pub(crate) name: &'s str,
    /// For people: `function`, `class`, `variable`, …
    pub(crate) kind: &'static str,
    /// All of it, with its decorators.
    pub(crate) node: Node<'t>,
    pub(crate) reach: Reach,
    /// Decorated, declared for others or derived from something: it may be used without being named.
    pub(crate) is_marked: bool,
}

/// The definitions of a file, in their order.
pub(crate) fn definitions<'t, 's>(language: Language, root: Node<'t>, source: &'s [u8]) -> Vec<Definition<'t, 's>> {
    match language {
        // It has no such tree.
        Language::Python => Vec::new(),
        Language::Rust => named(root).into_iter().flat_map(|node| rust(node, source)).collect(),
        Language::JavaScript | Language::TypeScript | Language::Tsx => script(root, source),
        Language::Go => named(root).into_iter().flat_map(|node| go(node, source)).collect(),
    }
}

/// The names that others can use: those of the project besides when `least` is [`Reach::Project`]. In order, each once.
pub(crate) fn public_names(language: Language, root: Node<'_>, source: &[u8], least: Reach) -> Vec<String> {
    let is_wanted = |reach: Reach| reach == Reach::World || least == Reach::Project && reach == Reach::Project;
    let all = definitions(language, root, source);
    let mut names: Vec<String> = all.iter().filter(|one| is_wanted(one.reach)).map(|one| one.name.to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

// ---- Rust ------------------------------------------------------------------------------------------------------------

fn rust<'t, 's>(node: Node<'t>, source: &'s [u8]) -> Vec<Definition<'t, 's>> {
    let visibility = named(node).into_iter().find(|child| child.kind() == "visibility_modifier");
    let reach = match visibility.map(|node| text(node, source)) {
        None => Reach::File,
        Some("pub") => Reach::World,
        Some(_) => Reach::Project,
    };
    let names = match node.kind() {
        "use_declaration" if reach == Reach::File => Vec::new(),
        "use_declaration" => node.child_by_field_name("argument").map(used).unwrap_or_default(),
        _ => node.child_by_field_name("name").into_iter().collect(),
    };
    let definition = |name| Definition { name: text(name, source), kind: "item", node, reach, is_marked: false };
    names.into_iter().map(definition).collect()
}

/// The names that a `use` brings.
fn used(tree: Node<'_>) -> Vec<Node<'_>> {
    match tree.kind() {
        "identifier" | "use_wildcard" => vec![tree],
        "scoped_identifier" => tree.child_by_field_name("name").into_iter().collect(),
        "use_as_clause" => tree.child_by_field_name("alias").into_iter().collect(),
        "scoped_use_list" => tree.child_by_field_name("list").map(used).unwrap_or_default(),
        "use_list" => named(tree).into_iter().flat_map(used).collect(),
        _ => Vec::new(),
    }
}

// ---- JavaScript and TypeScript ---------------------------------------------------------------------------------------

fn script<'t, 's>(root: Node<'t>, source: &'s [u8]) -> Vec<Definition<'t, 's>> {
    let handed_out = handed_out(root, source);
    let is_module = !handed_out.is_empty() || is_module(root, source);
    let mut found = Vec::new();
    for node in named(root) {
        match node.kind() {
            "export_statement" => {
                let declared = node.child_by_field_name("declaration");
                let names = declared.into_iter().flat_map(|declaration| declared_names(declaration, source));
                found.extend(names.map(|(name, kind, node)| exported(name, kind, node)));
                let clause = named(node).into_iter().filter(|child| child.kind() == "export_clause").flat_map(named);
                for specifier in clause {
                    let name = specifier.child_by_field_name("alias").or(specifier.child_by_field_name("name"));
                    found.extend(name.map(|name| exported(text(name, source), "export", specifier)));
                }
            }
            kind => {
                let is_marked = kind == "ambient_declaration" || node.child_by_field_name("decorator").is_some();
                for (name, kind, node) in declared_names(node, source) {
                    let is_public = !is_module || is_marked || handed_out.contains(name);
                    let reach = if is_public { Reach::World } else { Reach::File };
                    found.push(Definition { name, kind, node, reach, is_marked });
                }
            }
        }
    }
    let own: HashSet<&str> = found.iter().map(|one| one.name).collect();
    let others = handed_out.into_iter().filter(|name| !own.contains(name)).collect::<Vec<&str>>();
    found.extend(others.into_iter().map(|name| exported(name, "export", root)));
    found
}

fn exported<'t, 's>(name: &'s str, kind: &'static str, node: Node<'t>) -> Definition<'t, 's> {
    Definition { name, kind, node, reach: Reach::World, is_marked: true }
}

/// Whether names of a file are its own: it imports, exports or requires.
fn is_module(root: Node<'_>, source: &[u8]) -> bool {
    let mut found = false;
    each(root, |node| {
        found |= match node.kind() {
            "import_statement" | "export_statement" => true,
            "call_expression" => {
                node.child_by_field_name("function").is_some_and(|function| text(function, source) == "require")
            }
            _ => false,
        };
    });
    found
}

/// The names that `export { a }`, `export default a`, `exports.a =` and `module.exports =` hand out.
fn handed_out<'s>(root: Node<'_>, source: &'s [u8]) -> HashSet<&'s str> {
    let mut found = HashSet::new();
    each(root, |node| match node.kind() {
        "export_specifier" if node.child_by_field_name("alias").is_none() => {
            found.extend(node.child_by_field_name("name").map(|name| text(name, source)));
        }
        "export_statement" => {
            let value = node.child_by_field_name("value").filter(|value| value.kind() == "identifier");
            found.extend(value.map(|value| text(value, source)));
        }
        "assignment_expression" => {
            let (left, right) = (node.child_by_field_name("left"), node.child_by_field_name("right"));
            let (Some(left), Some(right)) = (left.map(|left| text(left, source)), right) else { return };
            match left.strip_prefix("module.exports").or_else(|| left.strip_prefix("exports")) {
                Some("") => found.extend(values(right).into_iter().map(|name| text(name, source))),
                Some(rest) if rest.starts_with('.') => {
                    found.insert(&left[left.len() - rest.len() + 1..]);
                }
                _ => {}
            }
        }
        _ => {}
    });
    found
}

/// The names of an object, or the one name.
fn values(right: Node<'_>) -> Vec<Node<'_>> {
    match right.kind() {
        "identifier" => vec![right],
        "object" => named(right)
            .into_iter()
            .filter_map(|entry| match entry.kind() {
                "shorthand_property_identifier" => Some(entry),
                "pair" => entry.child_by_field_name("key").filter(|key| key.kind() == "property_identifier"),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The names that a statement declares, each with what it stands in.
fn declared_names<'t, 's>(node: Node<'t>, source: &'s [u8]) -> Vec<(&'s str, &'static str, Node<'t>)> {
    let kind = match node.kind() {
        "function_declaration" | "generator_function_declaration" | "function_signature" => "function",
        "class_declaration" | "abstract_class_declaration" => "class",
        "interface_declaration" | "type_alias_declaration" | "enum_declaration" => "type",
        "lexical_declaration" | "variable_declaration" => {
            let names = named(node).into_iter().filter_map(|one| Some((one.child_by_field_name("name")?, one)));
            let names = names.filter(|(name, _)| name.kind() == "identifier");
            return names.map(|(name, one)| (text(name, source), "variable", one)).collect();
        }
        "ambient_declaration" => {
            return named(node).into_iter().flat_map(|inner| declared_names(inner, source)).collect();
        }
        _ => return Vec::new(),
    };
    node.child_by_field_name("name").map(|name| (text(name, source), kind, node)).into_iter().collect()
}

// ---- Go --------------------------------------------------------------------------------------------------------------

fn go<'t, 's>(node: Node<'t>, source: &'s [u8]) -> Vec<Definition<'t, 's>> {
    let definition = |node: Node<'t>, name: Node<'t>, kind| {
        let name = text(name, source);
        let reach = if name.starts_with(char::is_uppercase) { Reach::World } else { Reach::File };
        Definition { name, kind, node, reach, is_marked: false }
    };
    let own_name = |node: Node<'t>| node.child_by_field_name("name");
    match node.kind() {
        "function_declaration" => own_name(node).map(|name| definition(node, name, "function")).into_iter().collect(),
        "method_declaration" => own_name(node).map(|name| definition(node, name, "method")).into_iter().collect(),
        "type_declaration" => {
            let specs = named(node).into_iter();
            specs.filter_map(|spec| Some(definition(spec, own_name(spec)?, "type"))).collect()
        }
        "const_declaration" => {
            specs(node, "const_spec").map(|(spec, name)| definition(spec, name, "constant")).collect()
        }
        "var_declaration" => specs(node, "var_spec").map(|(spec, name)| definition(spec, name, "variable")).collect(),
        _ => Vec::new(),
    }
}

/// The names of a declaration, each with what it stands in.
fn specs<'t>(declaration: Node<'t>, kind: &'static str) -> impl Iterator<Item = (Node<'t>, Node<'t>)> {
    let direct = named(declaration).into_iter();
    let all = direct.flat_map(|node| if node.kind() == "var_spec_list" { named(node) } else { vec![node] });
    all.filter(move |spec| spec.kind() == kind).flat_map(|spec| {
        let mut cursor = spec.walk();
        let names: Vec<Node<'t>> = spec.children_by_field_name("name", &mut cursor).collect();
        names.into_iter().filter(|name| name.kind() == "identifier").map(move |name| (spec, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(language: Language, source: &str, least: Reach) -> Vec<String> {
        let tree = language.parse(source.as_bytes()).unwrap();
        public_names(language, tree.root_node(), source.as_bytes(), least)
    }

    #[test]
    fn given_files_of_each_language_when_their_names_are_listed_then_only_what_others_can_use_is_among_them() {
        for (language, source, expected) in [
            (
                Language::Rust,
                "pub use a::{B, c as D};\nuse e::F;\npub fn f() {}\npub(crate) fn g() {}\nfn h() {}\npub struct S;\n",
                vec!["B", "D", "S", "f"],
            ),
            (
                Language::JavaScript,
                "export function f() {}\nfunction g() {}\nexport const x = 1, y = 2;\nconst z = 1;\nexport { z as w };\nexport default g;\n",
                vec!["f", "g", "w", "x", "y"],
            ),
            (
                Language::JavaScript,
                "function f() {}\nfunction g() {}\nfunction h() {}\nmodule.exports = { f, other: g };\n",
                vec!["f", "other"],
            ),
            (Language::JavaScript, "function f() {}\nvar x = 1;\n", vec!["f", "x"]),
            (Language::TypeScript, "export interface I {}\ntype T = I;\nexport abstract class C {}\n", vec!["C", "I"]),
            (
                Language::Go,
                "package m\nfunc F() {}\nfunc g() {}\ntype T struct{}\nconst (\n\tA = 1\n\tb = 2\n)\nvar X, y int\nfunc (t T) M() {}\n",
                vec!["A", "F", "M", "T", "X"],
            ),
        ] {
            assert_eq!(names(language, source, Reach::World), expected, "{source}");
        }
        let project = names(Language::Rust, "pub(crate) fn g() {}\nfn h() {}\n", Reach::Project);
        assert_eq!(project, ["g"]);
    }
}
