//! The source of an iterator's images: the records of its part, and their labels.

use super::params::{BatchParam, Damaged};
use super::random::permutation;
use super::records::{Header, RecordFile, unpack};
use crate::error::{Error, Result};
use std::collections::HashMap;

/// The records of one part of the files.
pub struct RecordSource {
    files: Vec<RecordFile>,
    /// File and offset of each record.
    records: Vec<(u32, u64)>,
    /// Labels by the record's id, from a list file.
    list: Option<HashMap<u64, Vec<f32>>>,
    label_width: i32,
    shuffle: bool,
    seed: u64,
    /// Damaged records that were found when the files were scanned.
    pub damages: Vec<Error>,
}

/// A record's header and the bytes of its image, within `payload`.
pub struct Record {
    pub header: Header,
    pub payload: Vec<u8>,
    pub image: usize,
}

impl RecordSource {
    pub fn new(param: &BatchParam) -> Result<Self> {
        let mut source = RecordSource {
            files: Vec::new(),
            records: Vec::new(),
            list: None,
            label_width: param.label_width,
            shuffle: param.shuffle,
            seed: param.seed as u32 as u64,
            damages: Vec::new(),
        };
        if !param.path_imglist.is_empty() {
            source.list = Some(read_list(&param.path_imglist, param.label_width)?);
        }
        let paths: Vec<&str> = param.path_imgrec.split(';').filter(|p| !p.is_empty()).collect();
        let indexes: Vec<&str> = param.path_imgidx.split(';').filter(|p| !p.is_empty()).collect();
        if paths.is_empty() {
            return Err(Error::argument("path_imgrec", "value", "''", "the path of a record file"));
        }
        if !indexes.is_empty() && indexes.len() != paths.len() {
            let expected = format!("as many as record files, {}", paths.len());
            return Err(Error::argument("path_imgidx", "number of files", indexes.len(), expected));
        }
        for (i, path) in paths.iter().enumerate() {
            let file = RecordFile::open(path)?;
            let index = file.index(indexes.get(i).unwrap_or(&""))?;
            source.records.extend(index.offsets.into_iter().map(|offset| (i as u32, offset)));
            source.damages.extend(index.damages);
            source.files.push(file);
        }
        if let (Damaged::Raise, Some(error)) = (param.damaged, source.damages.first()) {
            return Err(error.clone());
        }
        source.keep_part(param)?;
        Ok(source)
    }

    fn keep_part(&mut self, param: &BatchParam) -> Result<()> {
        let (parts, part) = (param.num_parts as usize, param.part_index as usize);
        if part >= parts {
            let expected = format!("less than num_parts, {parts}");
            return Err(Error::argument("part_index", "value", part, expected));
        }
        let all = self.records.len();
        if all == 0 {
            return Err(self.without_records(&param.path_imgrec));
        }
        let size = all.div_ceil(parts);
        let begin = (part * size).min(all);
        self.records = self.records[begin..(begin + size).min(all)].to_vec();
        if self.records.is_empty() {
            let which = format!("part {part} of {parts} of '{}'", param.path_imgrec);
            return Err(Error::value(format!(
                "{which} has no records: expected at most {all} parts, one per record"
            )));
        }
        Ok(())
    }

    /// The error of files of which no record can be read.
    fn without_records(&self, files: &str) -> Error {
        match &self.damages[..] {
            [] => Error::io(format!("'{files}' has no records, expected one at least")),
            [first, ..] => Error::io(format!(
                "'{files}' has no record that can be read, expected one at least; the first that \
                 cannot: {first}"
            )),
        }
    }

    /// Records of the part.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// The order of an epoch; `None` is that of the file.
    pub fn order(&self, epoch: u64) -> Option<Vec<u32>> {
        self.shuffle.then(|| permutation(self.count(), self.seed, epoch))
    }

    /// The record `i`, read.
    pub fn read(&self, i: usize) -> Result<Record> {
        let (file, offset) = self.records[i];
        let mut payload = Vec::new();
        self.files[file as usize].read(offset, &mut payload)?;
        let (header, image) = unpack(&payload).map_err(|e| self.at(i, &e))?;
        let image = payload.len() - image.len();
        Ok(Record { header, payload, image })
    }

    /// Names the record `i` in an error about it.
    pub fn at(&self, i: usize, error: &Error) -> Error {
        let (file, offset) = self.records[i];
        self.files[file as usize].at(offset, error)
    }

    /// The labels of a record; the list's, if there is one.
    pub fn labels(&self, header: &Header) -> Result<Vec<f32>> {
        let labels = match &self.list {
            Some(list) => list.get(&header.id).ok_or_else(|| {
                Error::value(format!(
                    "invalid id {} of an image: expected one of those in the list file",
                    header.id
                ))
            })?,
            None => &header.labels,
        };
        let width = self.label_width;
        if width >= 0 && labels.len() != width as usize {
            let got = labels.len();
            return Err(Error::argument(
                "label_width",
                "value",
                width,
                format!("{got}, as the record has"),
            ));
        }
        Ok(labels.clone())
    }

    /// The largest number of labels of a record; records that cannot be read count as none.
    pub fn longest_label(&self) -> usize {
        let count = |i| self.read(i).ok().and_then(|e| self.labels(&e.header).ok());
        (0..self.count()).filter_map(count).map(|labels| labels.len()).max().unwrap_or(0)
    }
}

/// Labels by id, of lines `id TAB label TAB ... TAB path`.
fn read_list(path: &str, width: i32) -> Result<HashMap<u64, Vec<f32>>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::io(format!("cannot read '{path}': {e}")))?;
    let mut list = HashMap::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = || {
            let what = format!("{path}: line {}: '{line}'", i + 1);
            Error::io(format!("{what}, expected id, labels and path, with tabs between them"))
        };
        let fields: Vec<&str> = line.trim_end().split('\t').collect();
        let id = fields[0].trim().parse::<f64>().ok();
        let id = id.filter(|id| (0.0..u64::MAX as f64).contains(id)).ok_or_else(bad)?;
        let labels = fields.get(1..fields.len().max(2) - 1).ok_or_else(bad)?;
        let labels: Result<Vec<f32>> =
            labels.iter().map(|l| l.trim().parse().map_err(|_| bad())).collect();
        let labels = labels?;
        if labels.is_empty() || (width >= 0 && labels.len() != width as usize) {
            return Err(bad());
        }
        list.insert(id as u64, labels);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{table_from_strangers, with_path};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_of_a_list_are_numbers_of_records() {
        let ids = |text: &str| with_path(text.as_bytes(), |path| read_list(path, 1));
        assert_eq!(ids("7\t0.5\tx.jpg\n").unwrap(), HashMap::from([(7, vec![0.5])]));
        for id in ["nan", "inf", "-1", "1e30", ""] {
            let message = ids(&format!("{id}\t0.5\tx.jpg\n")).unwrap_err().to_string();
            assert!(message.contains("line 1") && message.contains("expected id"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn lists_from_strangers_do_no_harm(table in table_from_strangers(), width in -1..3i32) {
            with_path(&table, |path| match read_list(path, width) {
                Ok(list) => assert!(list.values().all(|labels| !labels.is_empty())),
                Err(error) => assert!(error.to_string().contains(path), "{error}"),
            });
        }
    }
}
