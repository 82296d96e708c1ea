//! Renaming of tensors in files of other libraries.

use std::fmt;
use std::str::FromStr;

/// A pattern for tensor names, in which each `*` stands for any text: `h.*.attn.bias`. Each `*`
/// matches as little as possible.
///
/// ```
/// use remat::checkpoint::Pattern;
///
/// let masks: Pattern = "h.*.attn.bias".parse()?;
/// assert!(masks.matches("h.11.attn.bias") && !masks.matches("h.11.attn.c_attn.bias"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// A renaming rule, such as `transformer.*=*`. The n-th `*` on the right is replaced by the text
/// that the n-th `*` on the left matches.
///
/// ```
/// use remat::checkpoint::{Names, Rename};
///
/// let rule: Rename = "encoder.layer.*.output.*=h.*.out.*".parse()?;
/// let names = Names::new().rename(rule);
/// assert_eq!(names.renamed("encoder.layer.3.output.weight"), "h.3.out.weight");
/// assert!("a.*=b".parse::<Rename>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    from: Pattern,
    to: Pattern,
}

/// Rules that rename the tensors of a file for a network, and patterns of tensors that are left
/// out.
///
/// ```
/// use remat::checkpoint::Names;
///
/// let names = Names::new().rename("model.*=*".parse()?).skip("*.mask".parse()?);
/// assert_eq!(names.renamed("model.fc1.weight"), "fc1.weight");
/// assert!(names.skips("model.fc1.mask") && !names.skips("model.fc1.weight"));
/// assert_eq!(Names::gpt2().renamed("transformer.h.0.ln_1.bias"), "h.0.ln_1.bias");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    renames: Vec<Rename>,
    skips: Vec<Pattern>,
    /// Pairs of names: the tensor of the first name must equal the tensor of the second.
    ties: Vec<(&'static str, &'static str)>,
}

/// Prefixes that PyTorch's wrappers add: `module.` for data parallelism, `_orig_mod.` for compiled
/// modules, in either order.
const WRAPPERS: [&str; 3] = ["module.*=*", "_orig_mod.*=*", "module.*=*"];

/// Batch counters of batch norms, which are unused.
const COUNTS: [&str; 2] = ["*.num_batches_tracked", "num_batches_tracked"];

/// Layer names of a DenseNet in torchvision's published files.
const OLD_LAYERS: [&str; 2] = [
    "features.denseblock*.denselayer*.norm.*=features.denseblock*.denselayer*.norm*",
    "features.denseblock*.denselayer*.conv.*=features.denseblock*.denselayer*.conv*",
];

impl Names {
    /// Keeps all names as they are.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// assert_eq!(Names::new().renamed("fc1.weight"), "fc1.weight");
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names of GPT-2 in the transformers library, with or without its head, for
    /// [`gpt`](crate::nn::gpt). Masks are left out. `lm_head.weight` must equal `wte.weight`. If
    /// `wte.weight` is missing, `lm_head.weight` replaces it.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::gpt2();
    /// assert_eq!(names.renamed("transformer.h.0.ln_1.weight"), "h.0.ln_1.weight");
    /// assert!(names.skips("transformer.h.0.attn.masked_bias"));
    /// ```
    #[must_use]
    pub fn gpt2() -> Self {
        let mut names =
            Self::known(&["transformer.*=*"], &["h.*.attn.bias", "h.*.attn.masked_bias"]);
        names.ties.push(("lm_head.weight", "wte.weight"));
        names
    }

    /// Names of torchvision, for [`resnet`](crate::nn::resnet), [`densenet`](crate::nn::densenet)
    /// and [`vit`](crate::nn::vit). `num_batches_tracked` is left out.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::torchvision();
    /// assert_eq!(names.renamed("module.layer1.0.conv1.weight"), "layer1.0.conv1.weight");
    /// assert!(names.skips("layer1.0.bn1.num_batches_tracked"));
    /// ```
    #[must_use]
    pub fn torchvision() -> Self {
        Self::known(&OLD_LAYERS, &COUNTS)
    }

    /// Makes rules that also remove prefixes of wrappers.
    fn known(renames: &[&str], skips: &[&str]) -> Self {
        let renames = WRAPPERS.iter().chain(renames).map(|rule| rule.parse().expect("a rule"));
        let skips = skips.iter().map(|name| Pattern((*name).to_owned()));
        Self { renames: renames.collect(), skips: skips.collect(), ties: Vec::new() }
    }

    /// Adds a rule, which is applied to the result of the earlier rules.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::new().rename("net.*=*".parse()?).rename("fc.*=head.*".parse()?);
    /// assert_eq!(names.renamed("net.fc.weight"), "head.weight");
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn rename(mut self, rule: Rename) -> Self {
        self.renames.push(rule);
        self
    }

    /// Leaves out tensors whose name matches the pattern before or after renaming.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::new().skip("*.mask".parse()?);
    /// assert!(names.skips("h.0.mask"));
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn skip(mut self, name: Pattern) -> Self {
        self.skips.push(name);
        self
    }

    /// Appends the rules of `others`.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::torchvision().then(Names::new().rename("fc.*=head.*".parse()?));
    /// assert_eq!(names.renamed("module.fc.weight"), "head.weight");
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn then(mut self, others: Self) -> Self {
        self.renames.extend(others.renames);
        self.skips.extend(others.skips);
        self.ties.extend(others.ties);
        self
    }

    /// The name of a tensor after renaming.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::new().rename("transformer.*=*".parse()?);
    /// assert_eq!(names.renamed("transformer.wpe.weight"), "wpe.weight");
    /// assert_eq!(names.renamed("wpe.weight"), "wpe.weight");
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn renamed(&self, name: &str) -> String {
        self.renames.iter().fold(name.to_owned(), |name, rule| rule.apply(&name).unwrap_or(name))
    }

    /// Whether the tensor with this name in a file is left out.
    ///
    /// ```
    /// use remat::checkpoint::Names;
    ///
    /// let names = Names::gpt2();
    /// assert!(names.skips("h.0.attn.bias") && !names.skips("h.0.attn.c_attn.bias"));
    /// ```
    #[must_use]
    pub fn skips(&self, name: &str) -> bool {
        let renamed = self.renamed(name);
        self.skips.iter().any(|skip| skip.matches(name) || skip.matches(&renamed))
    }

    /// Pairs of names: the tensor of the first name must equal the tensor of the second.
    pub(super) fn ties(&self) -> &[(&'static str, &'static str)] {
        &self.ties
    }
}

impl Pattern {
    /// Whether the pattern matches a name.
    ///
    /// ```
    /// use remat::checkpoint::Pattern;
    ///
    /// let biases: Pattern = "*.bias".parse()?;
    /// assert!(biases.matches("fc1.bias") && !biases.matches("fc1.weight"));
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.parts(name).is_some()
    }

    /// The texts of a name that the stars match; `None` if the pattern does not match.
    fn parts<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        let mut fixed = self.0.split('*');
        let mut rest = name.strip_prefix(fixed.next()?)?;
        let mut parts = Vec::new();
        let mut fixed: Vec<&str> = fixed.collect();
        let Some(end) = fixed.pop() else { return rest.is_empty().then_some(parts) };
        // The earliest match of each fixed text leaves the longest rest for the later fixed texts.
        for text in fixed {
            let (part, after) = rest.split_once(text)?;
            parts.push(part);
            rest = after;
        }
        parts.push(rest.strip_suffix(end)?);
        Some(parts)
    }

    fn stars(&self) -> usize {
        self.0.matches('*').count()
    }
}

impl Rename {
    /// The new name; `None` if the rule does not match.
    fn apply(&self, name: &str) -> Option<String> {
        let parts = self.from.parts(name)?;
        let mut fixed = self.to.0.split('*');
        let mut new = fixed.next()?.to_owned();
        for (part, text) in parts.iter().zip(fixed) {
            new.push_str(part);
            new.push_str(text);
        }
        Some(new)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.contains("**") {
            true => Err(format!("`{text}` has two * in a row; a single * stands for any text")),
            false if text.is_empty() => Err("a name is missing".to_owned()),
            false => Ok(Self(text.to_owned())),
        }
    }
}

impl FromStr for Rename {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (from, to) = text.split_once('=').ok_or("give FROM=TO, such as 'transformer.*=*'")?;
        let rule = Self { from: from.parse()?, to: to.parse()? };
        match [rule.from.stars(), rule.to.stars()] {
            [a, b] if a == b => Ok(rule),
            [a, b] => {
                Err(format!("`{from}` has {a} * and `{to}` has {b}, expected the same number"))
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Rename {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_take_as_little_as_they_can() {
        for (rule, name, expected) in [
            ("transformer.*=*", "transformer.h.0.ln_1.bias", Some("h.0.ln_1.bias")),
            ("transformer.*=*", "h.0.ln_1.bias", None),
            ("*=net.*", "a.b", Some("net.a.b")),
            ("a=b", "a", Some("b")),
            ("a=b", "a.a", None),
            ("*.gamma=*.weight", "a.gamma.gamma", Some("a.gamma.weight")),
            ("l*.n.*=l*.n*", "l1.n.2.n.3", Some("l1.n2.n.3")),
            ("*.*=*/*", "a.b.c", Some("a/b.c")),
            ("a*a=<*>", "a", None),
            ("a*a=<*>", "aa", Some("<>")),
            ("é*=*", "éa", Some("a")),
        ] {
            let rule: Rename = rule.parse().unwrap();
            assert_eq!(rule.apply(name).as_deref(), expected, "{rule} of {name}");
            assert_eq!(rule.to_string().parse::<Rename>().unwrap(), rule);
        }
        for wrong in ["", "a", "a*=b", "a=*", "**=**", "=a", "a="] {
            assert!(wrong.parse::<Rename>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_are_applied_in_turn_and_known_ones_take_wrappers_off() {
        let names = Names::new().rename("a.*=b.*".parse().unwrap());
        let names = names.rename("b.*=c.*".parse().unwrap());
        assert_eq!((names.renamed("a.x"), names.renamed("d.x")), ("c.x".into(), "d.x".into()));
        let gpt2 = Names::gpt2();
        for name in
            ["wte.weight", "transformer.wte.weight", "module._orig_mod.transformer.wte.weight"]
        {
            assert_eq!(gpt2.renamed(name), "wte.weight");
        }
        for (name, skipped) in [
            ("transformer.h.11.attn.bias", true),
            ("h.0.attn.masked_bias", true),
            ("h.0.attn.c_attn.bias", false),
            ("h.0.attn.c_proj.bias", false),
            ("lm_head.weight", false),
        ] {
            assert_eq!(gpt2.skips(name), skipped, "{name}");
        }
        let torchvision = Names::torchvision();
        assert!(torchvision.skips("_orig_mod.layer1.0.bn1.num_batches_tracked"));
        let old = "features.denseblock2.denselayer10.norm.1.running_mean";
        let new = "features.denseblock2.denselayer10.norm1.running_mean";
        assert_eq!([old, new].map(|name| torchvision.renamed(name)), [new; 2]);
    }
}
