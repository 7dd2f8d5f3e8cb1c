//! What stands within the public names of a file: methods and attributes of classes, functions of types, items of modules.

use std::collections::HashSet;

use tree_sitter::Node;

use super::{Definition, Reach, definitions, public_names};
use crate::language::{Language, named, text};
use crate::python::Module;

/// How deep classes and modules are looked into: deeper ones are made by a machine, or to do harm.
const MAX_DEPTH: usize = 16;

/// The names that others can use, those of the project too, and behind them those of their members (`C.m`, `Type::f`, `module::f`).
/// In order, each once.
pub(crate) fn names_with_members(language: Language, source: &[u8]) -> Vec<String> {
    if language == Language::Python {
        return Module::parse(source).map(|module| module.names_with_members()).unwrap_or_default();
    }
    let Some(tree) = language.parse(source) else { return Vec::new() };
    let root = tree.root_node();
    let mut names = match language {
        // A method goes by its type: by itself it may be the one of another.
        Language::Go | Language::Python => Vec::new(),
        Language::Rust | Language::JavaScript | Language::TypeScript | Language::Tsx => {
            public_names(language, root, source, Reach::Project)
        }
    };
    match language {
        Language::Python => {}
        Language::Rust => rust(&named(root), "", source, MAX_DEPTH, &mut names),
        Language::JavaScript | Language::TypeScript | Language::Tsx => script(language, root, source, &mut names),
        Language::Go => go(root, source, &mut names),
    }
    names.sort();
    names.dedup();
    names
}

fn is_public(one: &Definition<'_, '_>) -> bool {
    one.reach != Reach::File
}

fn own_name<'s>(node: Node<'_>, source: &'s [u8]) -> Option<&'s str> {
    node.child_by_field_name("name").map(|name| text(name, source))
}

fn body(node: Node<'_>) -> Vec<Node<'_>> {
    node.child_by_field_name("body").map(named).unwrap_or_default()
}

// ---- Rust ------------------------------------------------------------------------------------------------------------

/// What can be used of types, traits and modules among some items; `before` stands before their names.
fn rust(items: &[Node<'_>], before: &str, source: &[u8], depth: usize, found: &mut Vec<String>) {
    let own: Vec<Definition<'_, '_>> = items.iter().flat_map(|item| super::rust(*item, source)).collect();
    let hidden: HashSet<&str> = own.iter().filter(|one| !is_public(one)).map(|one| one.name).collect();
    let public = |name: &&str| !hidden.contains(*name);
    for item in items {
        match item.kind() {
            "impl_item" if item.child_by_field_name("trait").is_none() => {
                let name = item.child_by_field_name("type").and_then(named_type).map(|name| text(name, source));
                let Some(name) = name.filter(public) else { continue };
                found.extend(offered(*item, source).iter().map(|member| format!("{before}{name}::{member}")));
            }
            // What a trait has is as public as the trait.
            "trait_item" => {
                let Some(name) = own_name(*item, source).filter(public) else { continue };
                let members = body(*item).into_iter().filter_map(|member| own_name(member, source));
                found.extend(members.map(|member| format!("{before}{name}::{member}")));
            }
            "mod_item" if depth > 0 => {
                let Some(name) = own_name(*item, source).filter(public) else { continue };
                let before = format!("{before}{name}::");
                found.extend(offered(*item, source).iter().map(|member| format!("{before}{member}")));
                rust(&body(*item), &before, source, depth - 1, found);
            }
            _ => {}
        }
    }
}

/// The names within a body that say that others can use them.
fn offered<'s>(item: Node<'_>, source: &'s [u8]) -> Vec<&'s str> {
    let all = body(item).into_iter().flat_map(|member| super::rust(member, source));
    all.filter(|one| is_public(one)).map(|one| one.name).collect()
}

/// The name of a type without its path and arguments.
fn named_type(node: Node<'_>) -> Option<Node<'_>> {
    let node = if node.kind() == "generic_type" { node.child_by_field_name("type")? } else { node };
    match node.kind() {
        "type_identifier" => Some(node),
        "scoped_type_identifier" => node.child_by_field_name("name"),
        _ => None,
    }
}

// ---- JavaScript and TypeScript ---------------------------------------------------------------------------------------

fn script(language: Language, root: Node<'_>, source: &[u8], found: &mut Vec<String>) {
    let all = definitions(language, root, source);
    for one in all.iter().filter(|one| is_public(one)) {
        let members = class_of(one.node).map(body).unwrap_or_default();
        let names = members.into_iter().filter_map(|member| member_name(member, source));
        found.extend(names.map(|name| format!("{}.{name}", one.name)));
    }
}

/// The class or interface that a name stands for.
fn class_of(node: Node<'_>) -> Option<Node<'_>> {
    match node.kind() {
        "class_declaration" | "abstract_class_declaration" | "interface_declaration" => Some(node),
        "variable_declarator" => node.child_by_field_name("value").filter(|value| value.kind() == "class"),
        _ => None,
    }
}

/// The name of a member that others can use: not `#a`, `_a` or `private a`, and not the constructor, which goes by its class.
fn member_name<'s>(member: Node<'_>, source: &'s [u8]) -> Option<&'s str> {
    let name = member.child_by_field_name("name").or_else(|| member.child_by_field_name("property"))?;
    let is_private = |node: Node<'_>| node.kind() == "accessibility_modifier" && text(node, source) == "private";
    let is_reachable = name.kind() == "property_identifier" && !named(member).into_iter().any(is_private);
    let name = text(name, source);
    (is_reachable && name != "constructor" && !name.starts_with('_')).then_some(name)
}

// ---- Go --------------------------------------------------------------------------------------------------------------

fn go(root: Node<'_>, source: &[u8], found: &mut Vec<String>) {
    let all = definitions(Language::Go, root, source);
    found.extend(all.iter().filter(|one| is_public(one)).map(|one| match receiver(one.node, source) {
        Some(of) => format!("{of}.{}", one.name),
        None => one.name.to_owned(),
    }));
}

/// The type that a method belongs to, without its pointer and arguments.
fn receiver<'s>(method: Node<'_>, source: &'s [u8]) -> Option<&'s str> {
    let parameter = method.child_by_field_name("receiver")?.named_child(0)?;
    let mut node = parameter.child_by_field_name("type")?;
    loop {
        node = match node.kind() {
            "type_identifier" => return Some(text(node, source)),
            "generic_type" => node.child_by_field_name("type")?,
            "pointer_type" | "parenthesized_type" => node.named_child(0)?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_of_each_language_when_names_are_listed_with_members_then_those_that_others_can_use_are_among_them() {
        for (language, source, expected) in [
            (
                Language::Python,
                "class C(B):\n    a, b = 1, 2\n    c: int\n    _d = 3\n    def m(self):\n        self.x = 1\n    @property\n    def p(self): pass\n    \
                 def __init__(self): pass\n    if A:\n        def n(self): pass\n    class D:\n        def o(self): pass\n\
                 class _P:\n    def m(self): pass\n@wrapped\nclass E:\n    def f(self): pass\n",
                vec!["C", "C.D", "C.D.o", "C.a", "C.b", "C.c", "C.m", "C.n", "C.p", "E", "E.f"],
            ),
            (
                Language::Python,
                "__all__ = ['C']\nclass C:\n    def m(self): pass\nclass D:\n    def m(self): pass\n",
                vec!["C", "C.m"],
            ),
            (
                Language::Rust,
                "pub struct S<T>(T);\nstruct P;\nimpl<T> S<T> {\n    pub const N: u8 = 1;\n    pub fn f() {}\n    pub(crate) fn g() {}\n    fn h() {}\n}\n\
                 impl P {\n    pub fn f() {}\n}\nimpl Clone for S<u8> {\n    fn clone(&self) -> Self {}\n}\nimpl crate::other::O {\n    pub async fn f() {}\n}\n\
                 pub trait T {\n    type A;\n    fn m(&self);\n    fn n(&self) {}\n}\ntrait U {\n    fn m(&self);\n}\n",
                vec!["O::f", "S", "S::N", "S::f", "S::g", "T", "T::A", "T::m", "T::n"],
            ),
            (
                Language::Rust,
                "pub mod a {\n    pub fn f() {}\n    fn g() {}\n    pub use x::Y;\n    pub mod b {\n        pub struct S;\n        impl S {\n            pub fn f() {}\n        }\n    }\n}\n\
                 mod c {\n    pub fn f() {}\n}\npub mod d;\n",
                vec!["a", "a::Y", "a::b", "a::b::S", "a::b::S::f", "a::f", "d"],
            ),
            (
                Language::JavaScript,
                "export class C extends B {\n  constructor() {}\n  a = 1;\n  #b = 2;\n  static s() {}\n  get v() { return 1; }\n  set v(x) {}\n  async m() {}\n  _n() {}\n  [o]() {}\n}\n\
                 class P { m() {} }\nexport const D = class { m() {} };\nclass E { m() {} }\nexport default E;\n",
                vec!["C", "C.a", "C.m", "C.s", "C.v", "D", "D.m", "E", "E.m"],
            ),
            (
                Language::TypeScript,
                "export abstract class C {\n  private a = 1;\n  protected b = 2;\n  readonly c: number = 3;\n  private d() {}\n  abstract e(): void;\n  f(x: string): void;\n  f(x: any) {}\n}\n\
                 export interface I {\n  a: number;\n  m(): void;\n}\ninterface J { m(): void }\n",
                vec!["C", "C.b", "C.c", "C.e", "C.f", "I", "I.a", "I.m"],
            ),
            (
                Language::Go,
                "package m\nfunc F() {}\ntype T struct{}\nfunc (t T) M() {}\nfunc (t *T) N() {}\nfunc (t *T) o() {}\ntype G[K any] struct{}\nfunc (g *G[K]) M() {}\nfunc (T) Q() {}\n",
                vec!["F", "G", "G.M", "T", "T.M", "T.N", "T.Q"],
            ),
        ] {
            assert_eq!(names_with_members(language, source.as_bytes()), expected, "{source}");
        }
    }

    #[test]
    fn given_modules_within_each_other_without_end_when_they_are_listed_then_only_the_outer_ones_are_looked_into() {
        let deep = format!("{}{}", "pub mod a {".repeat(5_000), "}".repeat(5_000));
        let names = names_with_members(Language::Rust, deep.as_bytes());
        assert_eq!((names.len(), names[0].as_str()), (MAX_DEPTH + 1, "a"));
    }
}
