//! What a Python project declares, in whichever file: `requirements*.txt`, `pyproject.toml`, `Pipfile`, `setup.cfg`, `setup.py` and
//! conda's `environment.yml`. They are read as texts and syntax trees; nothing of them is executed.

use super::limits::{MAX_MANIFEST, MAX_PARSED};

mod conda;
mod requirement;
mod setup_cfg;
mod setup_py;
mod tables;

use requirement::without_comment;
pub(super) use requirement::{Requirement, Role};

/// What one file declares.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) requirements: Vec<Requirement>,
    /// Whether it may declare more than what was read of it: that is put together when it is executed, or can't be read.
    pub(super) is_open: bool,
}

impl Manifest {
    /// One of which nothing is known.
    fn unknown() -> Self {
        Self { requirements: Vec::new(), is_open: true }
    }
}

/// What a file declares; `None` for one that declares no packages.
pub(super) fn manifest(path: &str, content: &[u8]) -> Option<Manifest> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_requirements = name.starts_with("requirements") && name.ends_with(".txt");
    let read: fn(&str) -> Manifest = match name {
        "pyproject.toml" => tables::pyproject,
        "Pipfile" => tables::pipfile,
        "setup.cfg" => setup_cfg::read,
        "setup.py" => setup_py::read,
        "environment.yml" | "environment.yaml" => conda::read,
        // A template of conda's builder.
        "meta.yaml" => |_| Manifest::unknown(),
        _ if is_requirements => requirements,
        _ => return None,
    };
    let most = if matches!(name, "pyproject.toml" | "Pipfile") { MAX_MANIFEST } else { MAX_PARSED };
    let text = std::str::from_utf8(content).ok().filter(|text| text.len() <= most);
    Some(text.map_or_else(Manifest::unknown, read))
}

fn requirements(text: &str) -> Manifest {
    let of = |(index, line): (usize, &str)| Requirement::read(without_comment(line), index + 1, Role::Needed);
    Manifest { requirements: text.lines().enumerate().filter_map(of).collect(), is_open: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines such as `4 numpy needed pinned 1.2`.
    fn read(path: &str, text: &str) -> (Vec<String>, bool) {
        let manifest = manifest(path, text.as_bytes()).unwrap();
        let shown = |one: &Requirement| {
            let role = match one.role {
                Role::Needed => "needed",
                Role::Optional => "optional",
                Role::Build => "build",
            };
            let pinned = if one.is_pinned { "pinned" } else { "any" };
            let exact = one.exact.as_deref().unwrap_or("-");
            format!("{} {} {role} {pinned} {exact}", one.line, one.package)
        };
        (manifest.requirements.iter().map(shown).collect(), manifest.is_open)
    }

    #[test]
    fn given_each_kind_of_manifest_when_it_is_read_then_packages_versions_and_lines_are_its_own() {
        let pyproject = "[build-system]\nrequires = [\"hatchling\"]\n[project]\ndependencies = [\n  \"requests[socks]>=2\",\n  \"rich\",\n]\n[project.optional-dependencies]\nx = [\"numpy==1.2 ; python_version > '3'\"]\n[dependency-groups]\ndev = [\"pytest\", {include-group = \"x\"}]\n";
        let poetry = "[tool.poetry.dependencies]\npython = \"^3.9\"\nrequests = \"*\"\nflask = \"2.0.1\"\nmine = { path = \"../mine\" }\nextra = { version = \"^1\", optional = true }\n[tool.poetry.group.dev.dependencies]\npytest = \"^7\"\n";
        let pipfile = "[packages]\nrequests = \"*\"\n\"ruamel.yaml\" = {version = \"==0.17.1\"}\n[dev-packages]\npytest = \"~=7.0\"\n";
        let cfg = "[metadata]\nname = m\n[options]\ninstall_requires =\n    # the web\n    requests>=2; python_version < '4'\n    attrs\n[options.extras_require]\nyaml = pyyaml==6.0\n";
        let py = "from setuptools import setup\nWANTED = ['requests>=2',  # the web\n    'attrs']\nsetup(name='m', install_requires=WANTED, extras_require={'x': ['numpy==1.2']})\n";
        let conda = "name: m\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.9\n  - conda-forge::numpy=1.2.3=py39_0\n  - scipy\n  - pandas >=2\n  - pip:\n    - flask==2.0.1\n    - attrs\nprefix: /x\n";
        for (path, text, expected) in [
            (
                "requirements-dev.txt",
                "# all\n-r more.txt\na.b_c==1.0 # why\ngit+https://h/x.git#egg=x\n./local\nz; python_version > '3'\n",
                vec!["3 a.b-c needed pinned 1.0", "6 z needed any -"],
            ),
            (
                "pyproject.toml",
                pyproject,
                vec![
                    "5 requests needed pinned -",
                    "6 rich needed any -",
                    "9 numpy optional pinned 1.2",
                    "11 pytest optional any -",
                    "2 hatchling build any -",
                ],
            ),
            (
                "pyproject.toml",
                poetry,
                vec![
                    "3 requests needed any -",
                    "4 flask needed pinned 2.0.1",
                    "5 mine needed pinned -",
                    "6 extra optional pinned -",
                    "8 pytest optional pinned -",
                ],
            ),
            (
                "Pipfile",
                pipfile,
                vec!["2 requests needed any -", "3 ruamel.yaml needed pinned 0.17.1", "5 pytest optional pinned -"],
            ),
            (
                "setup.cfg",
                cfg,
                vec!["6 requests needed pinned -", "7 attrs needed any -", "9 pyyaml optional pinned 6.0"],
            ),
            ("setup.py", py, vec!["2 requests needed pinned -", "3 attrs needed any -", "4 numpy optional pinned 1.2"]),
            (
                "environment.yml",
                conda,
                vec![
                    "6 numpy optional pinned 1.2.3",
                    "7 scipy optional any -",
                    "8 pandas optional pinned -",
                    "10 flask needed pinned 2.0.1",
                    "11 attrs needed any -",
                ],
            ),
        ] {
            let (mut found, is_open) = read(path, text);
            let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            found.sort();
            expected.sort();
            assert_eq!((found, is_open), (expected, false), "{path}: {text}");
        }
    }

    #[test]
    fn given_requirements_whose_words_stand_before_them_too_when_they_are_read_then_each_has_its_own_line() {
        let text = "[project]\nname = \"rich-demo\"\ndescription = \"rich, attrs>=2 and pytest\"\n# rich\ndependencies = [\n  \"attrs>=2\",\n  'rich',\n]\n[project.optional-dependencies]\nrich = [\n  \"é\", \"pytest\",\n]\n[dependency-groups]\nattrs = [\"numpy\"]\n[build-system]\nrequires = [\n  \"hatch\"]\n";
        let (mut found, _) = read("pyproject.toml", text);
        found.retain(|one| !one.contains('é'));
        found.sort();
        let expected = [
            "11 pytest optional any -",
            "14 numpy optional any -",
            "17 hatch build any -",
            "6 attrs needed pinned -",
            "7 rich needed any -",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn given_manifests_that_are_put_together_or_broken_when_they_are_read_then_they_may_declare_more() {
        for (path, text) in [
            ("setup.py", "from setuptools import setup\nsetup(install_requires=open('r').read().split())\n"),
            ("setup.py", "from setuptools import setup\nR = ['a']\nR.append('b')\nsetup(install_requires=R)\n"),
            ("setup.py", "from setuptools import setup\nR = ['a']\nR = R + ['b']\nsetup(install_requires=R)\n"),
            ("setup.py", "from setuptools import setup\nsetup(install_requires=['a', f'b=={V}'])\n"),
            ("setup.py", "from setuptools import setup\nsetup(**metadata)\n"),
            ("setup.py", "import build\nbuild.go()\n"),
            ("setup.cfg", "[options]\ninstall_requires = file: wanted.txt\n"),
            ("pyproject.toml", "[project]\ndynamic = [\"version\", \"dependencies\"]\n"),
            ("pyproject.toml", "[broken\n"),
            ("Pipfile", "packages = \"none\n"),
            ("environment.yaml", "dependencies: [numpy, pip]\n"),
            ("environment.yml", "dependencies:\n- anaconda=2023\n"),
            ("meta.yaml", "{% set x = 1 %}\n"),
        ] {
            assert!(read(path, text).1, "{path}: {text}");
        }
        for (path, text) in [
            ("setup.py", "import setuptools\nsetuptools.setup()\n"),
            ("setup.cfg", "[options]\npackages = find:\n"),
            ("pyproject.toml", "[tool.ruff]\nline-length = 100\n"),
        ] {
            assert_eq!(read(path, text), (Vec::new(), false), "{path}: {text}");
        }
        assert_eq!(manifest("a/b.py", b""), None);
        assert!(manifest("setup.cfg", b"\xff").unwrap().is_open);
    }
}
