//! Statistics of the records: counts and durations.

use super::records::{Batch, Fact};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// How statistics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Table,
    Json,
}

/// By which column names are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    Total,
    Avg,
    Min,
    Max,
    Count,
}

/// Of one name. Times are in nanoseconds; of a counter, `total` is the sum of its values and `last`
/// the last of them.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    count: u64,
    total: i128,
    min: i64,
    max: i64,
    last: i64,
    last_at_ns: u64,
}

impl Figures {
    fn add(&mut self, at_ns: u64, value: i64) {
        let is_first = self.count == 0;
        self.min = if is_first { value } else { self.min.min(value) };
        self.max = if is_first { value } else { self.max.max(value) };
        self.count += 1;
        self.total += i128::from(value);
        // Records of different threads come out of order.
        if at_ns >= self.last_at_ns {
            (self.last, self.last_at_ns) = (value, at_ns);
        }
    }

    fn average(&self) -> f64 {
        self.total as f64 / self.count.max(1) as f64
    }
}

/// Figures by category and name.
type Table = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Figures>>;

/// All that was recorded while statistics were wanted.
#[derive(Default)]
pub struct Statistics {
    times: Table,
    memory: Table,
    counters: Table,
}

/// One kind of figures as it is written: its title in JSON, its unit, and the number of counted
/// units in one of these.
struct Kind<'a> {
    title: &'static str,
    unit: &'static str,
    scale: f64,
    /// True if the sum of all values is reported, false for the last value.
    sums: bool,
    table: &'a Table,
}

impl Statistics {
    pub fn add(&mut self, batch: &Batch) {
        for record in &batch.records {
            let (table, value) = match record.fact {
                Fact::Span { end_ns } | Fact::Interval { end_ns, .. } => {
                    (&mut self.times, end_ns.saturating_sub(record.start_ns) as i64)
                }
                Fact::Count { value } if record.device.is_some() => (&mut self.memory, value),
                Fact::Count { value } => (&mut self.counters, value),
                Fact::Mark { .. } => continue,
            };
            let category = table.entry(batch.name(record.named.category).clone()).or_default();
            let figures = category.entry(batch.name(record.named.name).clone()).or_default();
            figures.add(record.start_ns, value);
        }
    }

    fn kinds(&self) -> [Kind<'_>; 3] {
        [
            Kind { title: "Time", unit: "ms", scale: 1e6, sums: true, table: &self.times },
            Kind { title: "Memory", unit: "kB", scale: 1e3, sums: false, table: &self.memory },
            Kind { title: "Counter", unit: "", scale: 1.0, sums: false, table: &self.counters },
        ]
    }

    pub fn text(&self, format: Format, sort: SortBy, ascending: bool) -> String {
        match format {
            Format::Table => self.as_table(sort, ascending),
            Format::Json => self.as_json(sort, ascending),
        }
    }

    fn as_table(&self, sort: SortBy, ascending: bool) -> String {
        let mut text = String::from("\nProfile Statistics:\n");
        text.push_str(
            "\tTimes are in milliseconds (ms), memory is in kilobytes (kB, 1000 bytes).\n",
        );
        for kind in self.kinds() {
            for (category, names) in kind.table {
                let columns = kind.columns();
                let _ = write!(text, "\n{category}\n{}\n", "=".repeat(category.chars().count()));
                let rule = columns.each_ref().map(|c| "-".repeat(c.len()));
                let mut line = |name: &str, cells: &[String; 5]| {
                    let name: String = name.chars().take(40).collect();
                    text.push_str(&format!("{name:<40}"));
                    cells.iter().for_each(|cell| text.push_str(&format!(" {cell:>16}")));
                    text.push('\n');
                };
                line("Name", &columns);
                line("----", &rule);
                for (name, figures) in ordered(names, sort, ascending) {
                    line(name, &kind.cells(figures));
                }
            }
        }
        text
    }

    fn as_json(&self, sort: SortBy, ascending: bool) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut parts = Vec::new();
        for kind in self.kinds() {
            let categories = kind.table.iter().map(|(category, names)| {
                let rows = ordered(names, sort, ascending);
                let rows: Vec<_> = rows.iter().map(|(n, f)| kind.json(&quoted(n), f)).collect();
                format!("{}: {{{}}}", quoted(category), rows.join(", "))
            });
            let categories: Vec<_> = categories.collect();
            parts.push(format!("\"{}\": {{{}}}", kind.title, categories.join(", ")));
        }
        parts.push("\"Unit\": {\"Time\": \"ms\", \"Memory\": \"kB\"}".to_owned());
        format!("{{{}}}", parts.join(", "))
    }
}

impl Kind<'_> {
    fn columns(&self) -> [String; 5] {
        let shown = |word: &str| match (self.title, self.unit) {
            ("Time", unit) if word == "Total" => format!("Time ({unit})"),
            ("Time", unit) => format!("{word} Time ({unit})"),
            (_, "") => word.to_owned(),
            (_, unit) => format!("{word} ({unit})"),
        };
        let total = if self.sums { "Total" } else { "Last" };
        ["Total Count".to_owned(), shown(total), shown("Min"), shown("Max"), shown("Avg")]
    }

    /// Total (or last value), minimum, maximum, average.
    fn values(&self, f: &Figures) -> [f64; 4] {
        let total = if self.sums { f.total as f64 } else { f.last as f64 };
        [total, f.min as f64, f.max as f64, f.average()].map(|v| v / self.scale)
    }

    fn cells(&self, f: &Figures) -> [String; 5] {
        let [total, min, max, avg] = self.values(f).map(|v| format!("{v:.4}"));
        [f.count.to_string(), total, min, max, avg]
    }

    fn json(&self, name: &str, f: &Figures) -> String {
        let [total, min, max, avg] = self.values(f);
        let count = f.count;
        format!(
            "{name}: {{\"Count\": {count}, \"Total\": {total}, \"Min\": {min}, \"Max\": {max}, \
             \"Avg\": {avg}}}"
        )
    }
}

fn ordered(
    names: &BTreeMap<Arc<str>, Figures>,
    sort: SortBy,
    ascending: bool,
) -> Vec<(&Arc<str>, &Figures)> {
    let key = |f: &Figures| match sort {
        SortBy::Total => f.total as f64,
        SortBy::Avg => f.average(),
        SortBy::Min => f.min as f64,
        SortBy::Max => f.max as f64,
        SortBy::Count => f.count as f64,
    };
    let mut rows: Vec<_> = names.iter().collect();
    rows.sort_by(|a, b| key(a.1).total_cmp(&key(b.1)));
    if !ascending {
        rows.reverse();
    }
    rows
}
