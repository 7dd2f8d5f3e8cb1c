//! Charts of office documents (ECMA-376, DrawingML): their titles, and series with names, categories and values as the chart keeps them,
//! so that the workbook behind it is not needed.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceError;
use super::archive::{Package, Relation};
use super::builder::Builder;
use super::xml::{self, Node, Tag};

/// A chart.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chart {
    /// Its own title, then those of its axes.
    titles: Vec<String>,
    series: Vec<Series>,
}

/// Points by their number: a chart may have gaps.
type Points = BTreeMap<u32, String>;

#[derive(Debug, Default, Clone, PartialEq)]
struct Series {
    name: String,
    categories: Points,
    values: Points,
}

/// What the values that come next are of.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Part {
    #[default]
    None,
    Name,
    Categories,
    Values,
}

#[derive(Default)]
struct Reading {
    chart: Chart,
    series: Option<Series>,
    part: Part,
    point: u32,
    text: String,
    /// Within an element whose characters are text.
    in_text: bool,
    /// How deep within titles.
    titles: usize,
    title: Vec<String>,
    /// Within labels and lines that a program draws for the values.
    unseen: usize,
}

/// Reads the chart in `xml`. `name` and `format` are for messages.
pub(super) fn read(name: &str, format: &str, xml: &str) -> Result<Chart, SourceError> {
    let mut reading = Reading::default();
    xml::walk(name, format, xml, |node| match node {
        Node::Open(tag) => reading.open(tag),
        Node::Text(words) if reading.in_text => reading.text.push_str(words),
        Node::Text(_) => {}
        Node::Close(element) => reading.close(element),
    })?;
    Ok(reading.chart)
}

/// The charts that stand in a part, by its relations.
pub(super) fn of_part(
    name: &str,
    format: &str,
    package: &mut Package<'_>,
    relations: &[Relation],
) -> Result<Vec<Chart>, SourceError> {
    let mut charts = Vec::new();
    for (.., part) in relations.iter().filter(|(_, kind, _)| kind.ends_with("/chart")) {
        let Some(xml) = package.xml(part)? else { continue };
        charts.push(read(name, format, &xml)?);
    }
    charts.retain(|chart| !chart.is_blank());
    Ok(charts)
}

/// Elements of a series that say nothing of its own.
fn is_unseen(element: &str) -> bool {
    matches!(element, "dLbls" | "trendline" | "errBars" | "extLst" | "Fallback")
}

impl Reading {
    fn open(&mut self, tag: &Tag<'_>) {
        match tag.name() {
            element if is_unseen(element) => self.unseen += 1,
            _ if self.unseen > 0 => {}
            "ser" => self.series = Some(Series::default()),
            "title" => self.titles += 1,
            "tx" if self.titles == 0 => self.part = Part::Name,
            "cat" | "xVal" => self.part = Part::Categories,
            "val" | "yVal" => self.part = Part::Values,
            "pt" => self.point = tag.attribute("idx").and_then(|number| number.parse().ok()).unwrap_or(0),
            "v" | "t" => {
                self.text.clear();
                self.in_text = true;
            }
            _ => {}
        }
    }

    fn close(&mut self, element: &str) {
        match element {
            element if is_unseen(element) => self.unseen = self.unseen.saturating_sub(1),
            _ if self.unseen > 0 => {}
            "v" | "t" => {
                self.in_text = false;
                self.take_text();
            }
            "tx" | "cat" | "xVal" | "val" | "yVal" => self.part = Part::None,
            "title" => {
                self.titles = self.titles.saturating_sub(1);
                let title = std::mem::take(&mut self.title).concat();
                if !title.trim().is_empty() {
                    self.chart.titles.push(title.trim().to_owned());
                }
            }
            "p" if self.titles > 0 => self.title.push(" ".to_owned()),
            "ser" => self.chart.series.extend(self.series.take().filter(|series| !series.is_blank())),
            _ => {}
        }
    }

    fn take_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        if self.titles > 0 {
            self.title.push(text);
            return;
        }
        let Some(series) = &mut self.series else { return };
        match self.part {
            Part::None => {}
            Part::Name if series.name.is_empty() => text.trim().clone_into(&mut series.name),
            Part::Name => series.name.extend([" ", text.trim()]),
            Part::Categories => put(&mut series.categories, self.point, text.trim()),
            Part::Values => put(&mut series.values, self.point, text.trim()),
        }
    }
}

/// Of categories in levels the inner ones come first.
fn put(points: &mut Points, point: u32, text: &str) {
    let known = points.entry(point).or_default();
    *known = if known.is_empty() { text.to_owned() } else { format!("{text} {known}") };
}

impl Series {
    fn is_blank(&self) -> bool {
        self.name.is_empty() && self.categories.is_empty() && self.values.is_empty()
    }
}

impl Chart {
    fn is_blank(&self) -> bool {
        self.titles.is_empty() && self.series.is_empty()
    }

    /// Its titles as paragraphs, its series as tables.
    pub(super) fn write(&self, out: &mut Builder) {
        self.titles.iter().for_each(|title| out.paragraph(title));
        self.tables().iter().for_each(|table| out.table(table));
    }

    /// Series over the same categories are columns of one table.
    fn tables(&self) -> Vec<Vec<Vec<String>>> {
        let mut groups: Vec<Vec<&Series>> = Vec::new();
        for series in &self.series {
            match groups.last_mut() {
                Some(group) if group[0].categories == series.categories => group.push(series),
                Some(_) | None => groups.push(vec![series]),
            }
        }
        groups.iter().map(|group| table(group)).collect()
    }
}

fn table(group: &[&Series]) -> Vec<Vec<String>> {
    let points: BTreeSet<u32> =
        group.iter().flat_map(|series| series.categories.keys().chain(series.values.keys())).copied().collect();
    let of = |points: &Points, point: u32| points.get(&point).cloned().unwrap_or_default();
    let header = std::iter::once(String::new()).chain(group.iter().map(|series| series.name.clone())).collect();
    let row = |point: u32| -> Vec<String> {
        let category = group.first().map(|series| of(&series.categories, point)).unwrap_or_default();
        std::iter::once(category).chain(group.iter().map(|series| of(&series.values, point))).collect()
    };
    std::iter::once(header).chain(points.into_iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(xml: &str) -> String {
        let mut out = Builder::default();
        read("a.pptx", "PPTX presentation", xml).unwrap().write(&mut out);
        out.finish("a.pptx", "blank").map_or_else(|error| error.code().to_owned(), |text| text.text)
    }

    #[test]
    fn given_series_over_other_categories_when_written_then_each_has_a_table_and_gaps_stay() {
        let series = |name: &str, x: &str, y: &str| {
            format!(
                "<c:ser><c:tx><c:v>{name}</c:v></c:tx><c:xVal><c:numRef><c:numCache><c:formatCode>General</c:formatCode>{x}</c:numCache></c:numRef></c:xVal>\
                 <c:yVal><c:numRef><c:numCache>{y}</c:numCache></c:numRef></c:yVal></c:ser>"
            )
        };
        let point = |number: u32, value: &str| format!("<c:pt idx='{number}'><c:v>{value}</c:v></c:pt>");
        let both = point(0, "1") + &point(4_294_967_295, "2");
        let xml = format!(
            "<c:chartSpace><c:chart>{}{}</c:chart></c:chartSpace>",
            series("Up", &both, &point(0, "10")),
            series("Down", &point(0, "7"), &point(0, "70"))
        );
        let expected = "|  | Up |\n| --- | --- |\n| 1 | 10 |\n| 2 |  |\n\n|  | Down |\n| --- | --- |\n| 7 | 70 |";
        assert_eq!(written(&xml).trim(), expected);
    }

    #[test]
    fn given_categories_in_levels_and_labels_when_written_then_levels_are_joined_and_labels_left_out() {
        let xml = "<c:chart><c:ser><c:dLbls><c:dLbl><c:tx><c:rich><a:p><a:r><a:t>drawn</a:t></a:r></a:p></c:rich></c:tx></c:dLbl></c:dLbls>\
                   <c:cat><c:multiLvlStrRef><c:multiLvlStrCache><c:lvl><c:pt idx='0'><c:v>May</c:v></c:pt></c:lvl>\
                   <c:lvl><c:pt idx='0'><c:v>2024</c:v></c:pt></c:lvl></c:multiLvlStrCache></c:multiLvlStrRef></c:cat>\
                   <c:val><c:numLit><c:pt idx='0'><c:v>3</c:v></c:pt></c:numLit></c:val></c:ser></c:chart>";
        assert_eq!(written(xml).trim(), "|  |  |\n| --- | --- |\n| 2024 May | 3 |");
        assert_eq!(written("<c:chart/>"), "no_text");
    }
}
