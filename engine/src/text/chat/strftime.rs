//! `strftime_now`: today's date in a prompt. In UTC, since the standard library knows no other time zone and a
//! server's should not leak into its answers.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// A few hundred dates; the format comes from the template.
const MAX_FORMAT_BYTES: usize = 1024;

/// `now` as Python's `strftime` formats it in the C locale.
pub(super) fn format(format: &str, now: SystemTime) -> Result<String, Error> {
    if format.len() > MAX_FORMAT_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "strftime_now: the format is too long",
        ));
    }
    // A clock before 1970 is a clock that is not set.
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = Time::new(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        // `%-d`: without leading zeros.
        let bare = directive == Some('-');
        if bare {
            directive = chars.next();
        }
        let begun = out.len();
        if directive.is_none_or(|directive| !time.write(directive, &mut out)) {
            let name: String = directive.into_iter().collect();
            let reason = format!("strftime_now: `%{name}` is not supported");
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        if bare {
            let zeros = out[begun..].bytes().take_while(|byte| *byte == b'0').count();
            let keep = out.len() - begun - 1;
            out.drain(begun..begun + zeros.min(keep));
        }
    }
    Ok(out)
}

struct Time {
    year: u64,
    /// 0 is January.
    month: usize,
    day: u64,
    year_day: u64,
    /// 0 is Sunday.
    week_day: usize,
    seconds: u64,
}

impl Time {
    fn new(since_epoch: u64) -> Self {
        let days = since_epoch / 86_400;
        let mut year = 1970;
        let mut left = days;
        // A year at a time: clear, and a few dozen steps for any clock that is set. Clocks beyond 9999 are not.
        while left >= year_length(year) && year < 9999 {
            left -= year_length(year);
            year += 1;
        }
        let year_day = left + 1;
        let mut month = 0;
        while month < 11 && left >= month_length(year, month) {
            left -= month_length(year, month);
            month += 1;
        }
        let week_day = ((days + 4) % 7) as usize;
        Self { year, month, day: left + 1, year_day, week_day, seconds: since_epoch % 86_400 }
    }

    /// Writes one directive; `false` if it is not known.
    fn write(&self, directive: char, out: &mut String) -> bool {
        let (hour, minute, second) =
            (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        let (day, month, year) = (self.day, self.month + 1, self.year);
        let twelve = (hour + 11) % 12 + 1;
        let written = match directive {
            'A' => write!(out, "{}", DAYS[self.week_day]),
            'a' => write!(out, "{}", &DAYS[self.week_day][..3]),
            'B' => write!(out, "{}", MONTHS[self.month]),
            'b' | 'h' => write!(out, "{}", &MONTHS[self.month][..3]),
            'd' => write!(out, "{day:02}"),
            'e' => write!(out, "{day:2}"),
            'm' => write!(out, "{month:02}"),
            'y' => write!(out, "{:02}", year % 100),
            'Y' => write!(out, "{year}"),
            'j' => write!(out, "{:03}", self.year_day),
            'H' => write!(out, "{hour:02}"),
            'I' => write!(out, "{twelve:02}"),
            'M' => write!(out, "{minute:02}"),
            'S' => write!(out, "{second:02}"),
            'p' => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            'F' => write!(out, "{year}-{month:02}-{day:02}"),
            'D' => write!(out, "{month:02}/{day:02}/{:02}", year % 100),
            'T' => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            'R' => write!(out, "{hour:02}:{minute:02}"),
            'Z' => write!(out, "UTC"),
            'z' => write!(out, "+0000"),
            '%' => write!(out, "%"),
            _ => return false,
        };
        written.is_ok()
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn year_length(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn month_length(year: u64, month: usize) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64, pattern: &str) -> String {
        format(pattern, UNIX_EPOCH + Duration::from_secs(seconds)).unwrap()
    }

    /// The expected texts were made by Python.
    #[test]
    fn dates_as_python_writes_them() {
        assert_eq!(at(0, "%A %d %B %Y %H:%M:%S"), "Thursday 01 January 1970 00:00:00");
        assert_eq!(
            at(1_709_210_096, "%a %d %b %Y|%j|%I:%M %p|%F|%y"),
            "Thu 29 Feb 2024|060|12:34 PM|2024-02-29|24"
        );
        assert_eq!(at(951_782_400, "%d %b %Y"), "29 Feb 2000");
        assert_eq!(at(4_107_542_399, "%d %b %Y %T"), "28 Feb 2100 23:59:59");
        assert_eq!(at(4_107_542_400, "%-d/%-m/%Y %-H:%-M 100%%"), "1/3/2100 0:0 100%");
        assert_eq!(at(1_735_689_599, "%e %B %Y %j"), "31 December 2024 366");
    }

    #[test]
    fn unknown_directives_and_strange_clocks() {
        assert!(format("%Q", UNIX_EPOCH).is_err() && format("%", UNIX_EPOCH).is_err());
        assert!(format(&"x".repeat(2000), UNIX_EPOCH).is_err());
        assert_eq!(format("%Y", UNIX_EPOCH - Duration::from_secs(1)).unwrap(), "1970");
        // Far in the future: no endless loop, no overflow.
        assert!(format("%F", UNIX_EPOCH + Duration::from_secs(u64::MAX / 1_000_000)).is_ok());
    }
}
