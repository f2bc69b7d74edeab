//! Which files of a crate import which, read from their text: `use` and paths, without tests and comments.
//!
//! A path belongs to the file of its longest module; a name that a module only hands on belongs to where it comes from.
//! What a module only hands on (`pub use`) is no import of its own, and a crate's root, which names all modules, is left
//! out. Macros are not seen. Cost: a pass over the text.

use std::collections::{BTreeMap, BTreeSet};

/// A module: its names from the root on, none for the root.
type Module = Vec<String>;

/// The source files of a crate.
pub struct Sources {
    files: BTreeMap<Module, File>,
}

struct File {
    name: String,
    /// Without tests, comments and literals.
    code: String,
    /// What stands for what by `use`.
    names: BTreeMap<String, Module>,
    children: BTreeSet<String>,
}

impl Sources {
    /// Of files by their paths below `src` and their texts.
    pub fn of(files: &[(String, String)]) -> Sources {
        let mut all = BTreeMap::new();
        for (name, text) in files {
            let code = code_of(text);
            let children = words_after(&code, "mod ").map(str::to_owned).collect();
            let file = File { name: name.clone(), code, names: BTreeMap::new(), children };
            all.insert(module_of(name), file);
        }
        let mut sources = Sources { files: all };
        let named: Vec<(Module, BTreeMap<String, Module>)> = sources
            .files
            .iter()
            .map(|(module, file)| {
                let uses = used_paths(&file.code).into_iter();
                let paths = uses.filter_map(|path| sources.absolute(module, file, &path));
                (module.clone(), paths.filter_map(|path| Some((path.last()?.clone(), path))).collect())
            })
            .collect();
        for (module, names) in named {
            sources.files.get_mut(&module).expect("it was there").names = names;
        }
        sources
    }

    /// The files that import each other in a circle, of each circle.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.files.keys().map(|module| (module, self.reached_from(module))).collect();
        let mut circles: BTreeSet<Vec<&Module>> = BTreeSet::new();
        for (module, reaches) in &reached {
            let circle: Vec<&Module> =
                reaches.iter().filter(|other| reached[*other].contains(*module)).copied().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        let name = |module: &Module| self.files[module].name.clone();
        circles.into_iter().map(|circle| circle.into_iter().map(name).collect()).collect()
    }

    fn reached_from(&self, from: &Module) -> BTreeSet<&Module> {
        let (mut found, mut todo) = (BTreeSet::new(), self.imports(from));
        while let Some(module) = todo.pop() {
            if found.insert(module) {
                todo.extend(self.imports(module));
            }
        }
        found
    }

    /// The files that a file imports from.
    pub fn imports(&self, from: &Module) -> Vec<&Module> {
        let file = &self.files[from];
        if from.is_empty() {
            return Vec::new();
        }
        let mut paths = imported_paths(&file.code);
        paths.extend(written_paths(&file.code));
        let all = paths.iter().filter_map(|path| self.absolute(from, file, path));
        let homes: BTreeSet<&Module> = all.filter_map(|path| self.home(&path, 8)).collect();
        homes.into_iter().filter(|home| *home != from && !home.is_empty()).collect()
    }

    /// A path from the root on; none for what is of another crate.
    fn absolute(&self, module: &Module, file: &File, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut absolute = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            child if file.children.contains(child) => [module.as_slice(), &[child.to_owned()]].concat(),
            _ => return None,
        };
        for part in rest {
            match part.as_str() {
                "super" => drop(absolute.pop()),
                part => absolute.push(part.to_owned()),
            }
        }
        Some(absolute)
    }

    /// The file of what a path names.
    fn home(&self, path: &[String], patience: usize) -> Option<&Module> {
        let depth = (0..=path.len()).rev().find(|depth| self.files.contains_key(&path[..*depth]))?;
        let (module, file) = self.files.get_key_value(&path[..depth])?;
        match path.get(depth).and_then(|name| file.names.get(name)) {
            Some(elsewhere) if patience > 0 && elsewhere != path => {
                self.home(&[elsewhere.as_slice(), &path[depth + 1..]].concat(), patience - 1)
            }
            _ => Some(module),
        }
    }

    /// Types whose methods stand in files that are neither the type's nor below its module: each with those files.
    pub fn scattered(&self) -> BTreeMap<String, Vec<String>> {
        let mut homes: BTreeMap<&str, Vec<&Module>> = BTreeMap::new();
        for (module, file) in &self.files {
            for kind in ["struct ", "enum ", "union ", "type "] {
                words_after(&file.code, kind).for_each(|name| homes.entry(name).or_default().push(module));
            }
        }
        let mut scattered: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (module, file) in &self.files {
            let types: BTreeSet<&str> = inherent_impls(&file.code).collect();
            for name in types {
                let Some(homes) = homes.get(name) else { continue };
                if !homes.iter().any(|home| module.starts_with(home) && (!home.is_empty() || module.len() <= 1)) {
                    scattered.entry(name.to_owned()).or_default().push(file.name.clone());
                }
            }
        }
        scattered
    }
}

fn module_of(name: &str) -> Module {
    let path = name.strip_suffix(".rs").unwrap_or(name);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// A text without its tests, which stand last, its comments and what its literals hold.
fn code_of(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_literal = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if in_literal => drop(characters.next()),
                '\'' if !in_literal && characters.peek() == Some(&'"') => drop(characters.next()),
                '"' => in_literal = !in_literal,
                '/' if !in_literal && characters.peek() == Some(&'/') => break,
                _ if in_literal => {}
                other => code.push(other),
            }
        }
        code.push('\n');
    }
    code
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The word behind each place where a line's declaration has `keyword`.
fn words_after<'a>(code: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    code.lines().filter_map(move |line| {
        let line = line.trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
            Some(rest) => rest.trim_start(),
            None => line,
        };
        let rest = line.strip_prefix(keyword)?;
        rest.split(|character| !is_word(character)).next().filter(|word| !word.is_empty())
    })
}

/// The paths of all `use`, one for each name.
fn used_paths(code: &str) -> Vec<Vec<String>> {
    paths_of_uses(code, |_| true)
}

/// The same without what is only handed on.
fn imported_paths(code: &str) -> Vec<Vec<String>> {
    paths_of_uses(code, |before| !before.lines().last().unwrap_or(before).trim_start().starts_with("pub"))
}

fn paths_of_uses(code: &str, is_meant: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for part in code.split(';') {
        let Some(at) = part.rfind("use ").filter(|at| !part[..*at].ends_with(is_word)) else { continue };
        if is_meant(&part[..at]) {
            expand(&mut Vec::new(), part[at + 4..].trim(), &mut paths);
        }
    }
    paths
}

/// Takes a tree of `use` apart.
fn expand(before: &mut Vec<String>, tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if let Some(list) = tree.strip_prefix('{') {
        let list = list.trim_end().strip_suffix('}').unwrap_or(list);
        let (mut depth, mut from) = (0, 0);
        for (at, character) in list.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(before, &list[from..at], paths);
                    from = at + 1;
                }
                _ => {}
            }
        }
        if !list[from..].trim().is_empty() {
            expand(before, &list[from..], paths);
        }
    } else if let Some((first, rest)) = tree.split_once("::") {
        before.push(first.trim().to_owned());
        expand(before, rest, paths);
        before.pop();
    } else {
        let name = tree.split_whitespace().next().unwrap_or_default();
        let last = (!matches!(name, "self" | "*" | "")).then(|| name.to_owned());
        paths.push(before.iter().cloned().chain(last).collect());
    }
}

/// Paths of two names and more that stand in code.
fn written_paths(code: &str) -> Vec<Vec<String>> {
    let is_path = |character: char| is_word(character) || character == ':';
    let lines = code.lines().filter(|line| !line.contains("use "));
    let paths =
        lines.flat_map(|line| line.split(move |character| !is_path(character))).filter(|path| path.contains("::"));
    paths.map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}

/// The types of `impl` without a trait.
fn inherent_impls(code: &str) -> impl Iterator<Item = &str> {
    code.split("\nimpl").skip(1).filter_map(|rest| {
        let head = rest.split('{').next()?;
        let head = match head.strip_prefix('<') {
            Some(_) => {
                let mut depth = 0;
                let end = head.find(|character| {
                    depth += i32::from(character == '<') - i32::from(character == '>');
                    depth == 0
                })?;
                &head[end + 1..]
            }
            None => head,
        };
        if head.split_whitespace().any(|word| word == "for") {
            return None;
        }
        head.trim_start().split(|character| !is_word(character)).next().filter(|name| !name.is_empty())
    })
}

#[test]
fn circles_and_scattered_methods_are_found() {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let sources = Sources::of(&[
        file("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Handed;\n"),
        // By a path, not in a literal, not in a comment.
        file("a.rs", "pub struct A;\nfn f() { crate::b::g(\"crate::c::x\") } // crate::d::y\n"),
        // By a tree, and by what the root hands on.
        file("b.rs", "mod deep;\nuse crate::{d::{self, D}, Handed};\nimpl crate::a::A { }\nimpl<T> Foreign<T> { }\n"),
        file("b/deep.rs", "use super::super::d;\nstruct Deep;\nimpl Deep { }\n"),
        file(
            "c.rs",
            "use crate::a::A;\npub struct Handed;\nimpl A {\n}\n#[cfg(test)]\nmod tests {\n use crate::d;\n}\n",
        ),
        file("d.rs", "pub struct D;\nimpl std::fmt::Display for D { }\n"),
    ]);
    assert_eq!(sources.circles(), [["a.rs", "b.rs", "c.rs"]]);
    assert_eq!(sources.scattered(), BTreeMap::from([("A".to_owned(), vec!["c.rs".to_owned()])]));
}
