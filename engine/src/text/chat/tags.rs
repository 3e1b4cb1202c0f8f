//! What a template may cost to compile. The template engine folds constants, and tries to at every operator of an
//! expression anew, so that the time grows with the square of an expression's length and more: a template that is short
//! enough may still be a trap.

/// What one multiplication counts in bytes of code: its result may be a list of a thousand elements, which every operator
/// around it makes again.
const BYTES_PER_PRODUCT: u64 = 16 << 10;

/// The sum over all `{{ … }}` and `{% … %}` of the square of their length, times their length and their multiplications:
/// the most expensive ones known take 45 picoseconds for each. Comments count nothing and string literals two
/// bytes, whatever is in them: they cost nothing. A tag that does not end goes on to the end of the source.
///
/// What is a tag, a string or text must be decided just as the template engine does, or code could pass for a string.
pub(super) fn compile_cost(source: &str) -> u64 {
    let bytes = source.as_bytes();
    let (mut at, mut cost) = (0, 0_u64);
    while at + 1 < bytes.len() {
        let rest = &bytes[at..];
        at += match &rest[..2] {
            b"{#" => comment(rest),
            b"{%" if basic_tag(rest, b"raw").is_some() => raw_block(rest),
            open @ (b"{{" | b"{%") => {
                let tag = tag(rest, if open == b"{{" { b"}}" } else { b"%}" });
                cost = cost.saturating_add(tag.cost());
                tag.len
            }
            _ => 1,
        };
    }
    cost
}

/// What was found of a tag.
struct Tag {
    len: usize,
    /// Bytes, without those in string literals.
    code: u64,
    products: u64,
}

impl Tag {
    fn cost(&self) -> u64 {
        let weight = self.code.saturating_add(self.products.saturating_mul(BYTES_PER_PRODUCT));
        self.code.saturating_mul(self.code).saturating_mul(weight)
    }
}

fn comment(rest: &[u8]) -> usize {
    let end = rest[2..].windows(2).position(|pair| pair == b"#}");
    end.map_or(rest.len(), |end| end + 4)
}

/// What is between `{% raw %}` and `{% endraw %}` is text. They are counted.
fn raw_block(rest: &[u8]) -> usize {
    let mut at = 2;
    while at < rest.len() {
        if let Some(length) = basic_tag(&rest[at..], b"endraw") {
            return at + length;
        }
        at += 1;
    }
    rest.len()
}

/// The length of a tag that is `name` alone, if that is what `rest` begins with.
fn basic_tag(rest: &[u8], name: &[u8]) -> Option<usize> {
    let sign = |rest: &[u8]| usize::from(matches!(rest.first(), Some(b'-' | b'+')));
    let inside = rest.strip_prefix(b"{%")?;
    let inside = inside[sign(inside)..].trim_ascii_start().strip_prefix(name)?.trim_ascii_start();
    let after = inside[sign(inside)..].strip_prefix(b"%}")?;
    Some(rest.len() - after.len())
}

fn tag(rest: &[u8], close: &[u8; 2]) -> Tag {
    let mut tag = Tag { len: 2, code: 2, products: 0 };
    let mut braces = 0_usize;
    while tag.len < rest.len() {
        let here = &rest[tag.len..];
        if braces == 0 && here.starts_with(close) {
            return Tag { len: tag.len + 2, code: tag.code + 2, ..tag };
        }
        match here[0] {
            // A literal map, the end of which may look like the tag's.
            b'{' => braces += 1,
            b'}' => braces = braces.saturating_sub(1),
            b'*' => tag.products += 1,
            _ => {}
        }
        let quoted = matches!(here[0], b'"' | b'\'');
        tag.len += if quoted { string(here) } else { 1 };
        tag.code += if quoted { 2 } else { 1 };
    }
    tag
}

/// The length of a string literal, the quotes included.
fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != rest[0] {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    rest.len().min(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, code: &[u64]) {
        let expected: u64 = code.iter().map(|code| code.pow(3)).sum();
        assert_eq!(compile_cost(source), expected, "{source}");
    }

    #[test]
    fn the_code_of_tags_is_measured_with_their_delimiters() {
        check("", &[]);
        check("no tag { % }", &[]);
        check("{{ a }} and {% set b = 1 %}", &[7, 15]);
        check("{#- it's a {{ comment }} -#}{{ a }}", &[7]);
        check("{# never {{ a }}", &[]);
        check("{#}{{ a }}", &[]);
        check(r#"{{ "}} and so on" }}"#, &[8]);
        check(r#"{{ '\'}}' ~ x }}"#, &[12]);
        check("{{ {'a': {}} }} }}", &[14]);
        check("x{{ never", &[8]);
        check("{{ 'never }}", &[5]);
        check(r"{{ '\", &[5]);
        check("{", &[]);
        check("{{", &[2]);
        check("{%}}%}", &[6]);
    }

    #[test]
    fn products_count_more() {
        assert_eq!(compile_cost("{{ '*' * 2 }}"), 12 * 12 * (12 + BYTES_PER_PRODUCT));
    }

    /// Whether code passes for a string depends on where strings begin.
    #[test]
    fn raw_blocks_are_text() {
        check("{% raw %}{{ ' {% endraw %}{{ ' ' + a }}", &[12]);
        check("{%-raw+%}{{ ' {%+ endraw\n-%}{{ ' ' + a }}", &[12]);
        check("{% raw %}{{ ' {% raw %}{%endraw%}{{ a }}", &[7]);
        check("{% raw %}{% {%\tendraw %}{{ a }}", &[7]);
        check("{% raw %} never {{ a }}", &[]);
        check("{% rawer %}{{ ' ' }}", &[11, 8]);
        check("{% raw x %}{{ ' ' }}", &[11, 8]);
        check("{{% raw %}}", &[11]);
    }
}
