//! The alphabet of byte-level BPE: every byte is written as one printable character, so that a vocabulary of
//! strings can hold tokens that are no valid UTF-8. Printable Latin-1 stands for itself, the other 68 bytes are
//! moved to U+0100 onwards, in order.

/// The character that stands for each byte.
pub(super) const CHARS: [char; 256] = chars();

const fn chars() -> [char; 256] {
    let mut chars = ['\0'; 256];
    let mut moved = 0;
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        chars[byte] = if stands_for_itself(b) {
            b as char
        } else {
            moved += 1;
            // All of U+0100..=U+0143 are characters.
            match char::from_u32(0xff + moved) {
                Some(c) => c,
                None => '\0',
            }
        };
        byte += 1;
    }
    chars
}

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The byte a character stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = c as u32;
    match u8::try_from(code) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        // The moved bytes are 0..=0x20, 0x7f..=0xa0 and 0xad, in order.
        Err(_) => match code - 0x100 {
            n @ 0..=0x20 => Some(n as u8),
            n @ 0x21..=0x42 => Some((n - 0x21 + 0x7f) as u8),
            0x43 => Some(0xad),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_characters_are_one_to_one() {
        for (byte, c) in CHARS.into_iter().enumerate() {
            assert_eq!(byte_of(c), Some(byte as u8), "{c:?}");
        }
        let known = (0..0x3000).filter_map(char::from_u32).filter_map(byte_of).count();
        assert_eq!(known, 256);
        assert_eq!((CHARS[b' ' as usize], CHARS[b'\n' as usize]), ('Ġ', 'Ċ'));
    }
}
