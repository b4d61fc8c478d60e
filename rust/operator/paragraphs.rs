//! Documentation in the width that it is shown in.

/// How a line is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Blank,
    /// The first line of an item of a list.
    Item,
    /// A line of a list's item after the first.
    Hanging,
    Plain,
    /// A heading's underline, a table, an example.
    Fixed,
}

fn treatment(line: &str) -> Line {
    let is_rule = |c: char| line.len() >= 3 && line.chars().all(|l| l == c);
    match line {
        "" => Line::Blank,
        _ if ['-', '=', '~'].into_iter().any(is_rule) => Line::Fixed,
        _ if line.starts_with("- ") => Line::Item,
        _ if line.starts_with("  ") && !line.starts_with("   ") => Line::Hanging,
        _ if line.starts_with([' ', '|', '>', ':']) || line.starts_with("...") => Line::Fixed,
        _ => Line::Plain,
    }
}

/// The text with every paragraph that has a longer line than `width` wrapped to it. Examples (what
/// follows `>>>` up to a blank line), tables, headings and indented lines stay as they are.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut is_example = false;
    for line in text.split('\n') {
        let kind = treatment(line);
        is_example = kind != Line::Blank && (is_example || line.starts_with(">>>"));
        let goes_on = match (paragraph.first().map(|first| self::treatment(first)), kind) {
            (Some(Line::Plain), Line::Plain) | (Some(Line::Item), Line::Hanging) => !is_example,
            _ => false,
        };
        if !goes_on {
            out.extend(filled(&paragraph, width));
            paragraph.clear();
        }
        match kind {
            _ if goes_on => paragraph.push(line),
            Line::Plain | Line::Item if !is_example => paragraph.push(line),
            _ => out.push(line.to_owned()),
        }
    }
    out.extend(filled(&paragraph, width));
    out.join("\n")
}

/// The lines of a paragraph, filled again if one is too long.
fn filled(lines: &[&str], width: usize) -> Vec<String> {
    if lines.iter().all(|line| line.chars().count() <= width) {
        return lines.iter().map(|&line| line.to_owned()).collect();
    }
    let indent = if lines[0].starts_with("- ") { "  " } else { "" };
    let mut out: Vec<String> = Vec::new();
    let mut length = 0;
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        let long = word.chars().count();
        match out.last_mut() {
            Some(line) if length + 1 + long <= width => {
                line.extend([" ", word]);
                length += 1 + long;
            }
            last => {
                let indent = if last.is_some() { indent } else { "" };
                out.push(format!("{indent}{word}"));
                length = indent.len() + long;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_with_a_long_line_are_filled() {
        assert_eq!(wrapped("one two\nthree four five\nsix", 9), "one two\nthree\nfour five\nsix");
        assert_eq!(wrapped("short\nlines stay", 20), "short\nlines stay");
        assert_eq!(wrapped("Title\n-----\na b c d", 5), "Title\n-----\na b c\nd");
        assert_eq!(
            wrapped("- one two\n  three four\n- five", 10),
            "- one two\n  three\n  four\n- five"
        );
    }

    #[test]
    fn examples_and_tables_stay() {
        let text = ">>> f(a, b, c)\n[1. 2. 3. 4.]\n[[1. 2.]\n [3. 4.]]\n\n| a table of it |";
        assert_eq!(wrapped(text, 8), text);
        assert_eq!(wrapped(">>> f(a)\nb c d\n\ne f g", 3), ">>> f(a)\nb c d\n\ne f\ng");
    }

    #[test]
    fn words_are_kept_whole() {
        assert_eq!(wrapped("a verylongword b", 5), "a\nverylongword\nb");
    }
}
