//! What a pull under way has written down about the parts that are whole: a line each.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use super::alias::Known;

/// The part number, where it ends, and the SHA-256 of the file up to there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) part: u32,
    pub(super) end: u64,
    pub(super) sha256: String,
}

impl Record {
    pub(super) fn line(&self) -> String {
        format!("{} {} {}", self.part, self.end, self.sha256)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let record = Self {
            part: words.next()?.parse().ok()?,
            end: words.next()?.parse().ok()?,
            sha256: words.next().filter(|sha| sha.len() == 64)?.to_owned(),
        };
        words.next().is_none().then_some(record)
    }
}

/// The file the journal is about: a later build may know the same alias with other contents.
fn heading(known: &Known) -> String {
    format!("redline pull {} {}", known.requirement(1), known.sha256)
}

/// The records up to the first that makes no sense.
pub(super) fn read(journal: &mut File, known: &Known) -> Vec<Record> {
    // A journal is a few lines long; a damaged one may be anything.
    let mut lines = BufReader::new(journal.take(64 * 1024)).lines().map_while(Result::ok);
    if lines.next().as_deref() != Some(heading(known).as_str()) {
        return Vec::new();
    }
    let mut records: Vec<Record> = Vec::new();
    for record in lines.map_while(|line| Record::parse(&line)) {
        let end = records.last().map_or(0, |last| last.end);
        if record.part as usize != records.len() + 1 || record.end < end || record.end > known.bytes
        {
            break;
        }
        records.push(record);
    }
    records
}

pub(super) fn rewrite(journal: &mut File, known: &Known, records: &[Record]) -> io::Result<()> {
    journal.set_len(0)?;
    journal.seek(SeekFrom::Start(0))?;
    let mut text = heading(known) + "\n";
    for record in records {
        text.push_str(&record.line());
        text.push('\n');
    }
    journal.write_all(text.as_bytes())?;
    journal.sync_data()
}
