//! Which modules a Python distribution has, and which modules need none. Names are in lower case.

/// Distributions whose modules have another name: `distribution module`.
const MODULES: &str = include_str!("../../data/python-modules.txt");
/// Modules of Python itself.
const STDLIB: &str = include_str!("../../data/python-stdlib.txt");

fn entries(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Top modules of a distribution: those of the table, or else its own name.
pub(super) fn modules_of(package: &str) -> Vec<String> {
    let known: Vec<String> = entries(MODULES)
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| *name == package)
        .map(|(_, module)| module.to_owned())
        .collect();
    if !known.is_empty() {
        return known;
    }
    let mut modules = vec![package.replace(['-', '.'], "_")];
    // Families that share a top module, such as google-cloud-storage and zope.interface.
    modules.extend(package.split_once(['-', '.']).map(|(family, _)| family.to_owned()));
    modules.extend(package.strip_prefix("python-").map(|rest| rest.replace('-', "_")));
    modules.extend(package.strip_suffix("-py").map(|rest| rest.replace('-', "_")));
    modules.extend(package.strip_prefix("py").map(|rest| rest.trim_start_matches('-').replace('-', "_")));
    modules
}

/// The distribution that most likely has a module.
pub(super) fn package_of(module: &str) -> String {
    let known = entries(MODULES).filter_map(|line| line.split_once(' ')).find(|(_, name)| *name == module);
    known.map_or_else(|| module.replace('_', "-"), |(package, _)| package.to_owned())
}

/// Whether a module comes with Python.
pub(super) fn is_stdlib(module: &str) -> bool {
    module.is_empty() || entries(STDLIB).any(|name| name == module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_distributions_whose_modules_have_other_names_when_one_is_asked_for_then_it_is_among_them() {
        for (package, module) in [
            ("markdown-it-py", "markdown_it"),
            ("pygobject", "gi"),
            ("pywavelets", "pywt"),
            ("some-thing-py", "some_thing"),
            ("requests", "requests"),
        ] {
            assert!(modules_of(package).iter().any(|one| one == module), "{package}: {:?}", modules_of(package));
        }
        for (module, package) in [("markdown_it", "markdown-it-py"), ("gi", "pygobject"), ("pywt", "pywavelets")] {
            assert_eq!(package_of(module), package);
        }
    }
}
