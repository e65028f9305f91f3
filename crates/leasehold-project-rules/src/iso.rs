//! Times as `.lock` writes them, `2026-11-15T14:20:00.000Z`. Only what JavaScript's `toISOString` makes and its
//! relatives with an offset: it must never guess at anything else.

const DAY: u64 = 86_400_000;

/// `2026-11-15T14:20:00.000Z` for milliseconds since 1970.
pub fn write(millis: u64) -> String {
    let (year, month, day) = date(millis / DAY);
    let rest = millis % DAY;
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Milliseconds since 1970, of a date and time with an offset or `Z`. Nothing before 1970.
pub fn read(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, offset) = split_offset(time)?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    let plausible = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !plausible || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = (hour * 60 + minute) * 60 + second;
    let millis = days(year, month, day)? * DAY + seconds * 1_000 + milliseconds(fraction)?;
    u64::try_from(i64::try_from(millis).ok()? - offset).ok()
}

/// Splits `Z`, `+09:00` or `-0330` off, as milliseconds east of Greenwich.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (time, offset) = time.split_at_checked(at)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let (hours, minutes) = offset.split_once(':').or_else(|| offset.split_at_checked(2))?;
    let [hours] = numbers(hours, ':', [2])?;
    let [minutes] = numbers(minutes, ':', [2])?;
    let millis = i64::try_from((hours * 60 + minutes) * 60_000).ok()?;
    Some((time, if sign == "-" { -millis } else { millis }))
}

/// As many numbers as there are widths, each of exactly that many digits.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(separator);
    let mut all = [0; N];
    for (number, width) in all.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width)?;
        *number = digits(part)?;
    }
    parts.next().is_none().then_some(all)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn milliseconds(fraction: &str) -> Option<u64> {
    digits(fraction).filter(|_| fraction.len() <= 18)?;
    let padded: String = fraction.chars().chain("00".chars()).take(3).collect();
    digits(&padded)
}

/// The days from 1970 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years that begin in March end with the leap day.
    let (year, month) = if month <= 2 { (year.checked_sub(1)?, month + 9) } else { (year, month - 3) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    (before + (month * 153 + 2) / 5 + day - 1).checked_sub(719_468)
}

/// The date that is so many days after 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_747_600_123, "2026-11-15T13:00:00.123Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (millis, text) in cases {
            assert_eq!(write(millis), text);
            assert_eq!(read(text), Some(millis), "{text}");
        }
    }

    #[test]
    fn every_day_of_eight_centuries_comes_back() {
        for day in 0..300_000 {
            let millis = day * DAY + 1;
            assert_eq!(read(&write(millis)), Some(millis));
        }
    }

    #[test]
    fn offsets_and_fractions() {
        for text in [
            "2026-11-15T13:00:00Z",
            "2026-11-15T13:00:00.0Z",
            "2026-11-15T22:00:00.000+09:00",
            "2026-11-15T09:30:00.000000-0330",
        ] {
            assert_eq!(read(text), Some(1_794_747_600_000), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "T",
            "now",
            "2026-11-15",
            "2026-11-15T13:00:00",
            "2026-13-15T13:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T13:00:00.Z",
            "1969-12-31T23:59:59Z",
            "+026-11-15T13:00:00Z",
            "2026-11-15T13:00:00.000+é",
            "２０２６-11-15T13:00:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
