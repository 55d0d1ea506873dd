//! The part of Protocol Buffers that CRIU's messages need: numbers, booleans, texts, nested
//! messages. Less than a generator and its run time, and without a build step.

/// Field of a message that was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

const WIRE_VARINT: u64 = 0;
const WIRE_FIXED64: u64 = 1;
const WIRE_BYTES: u64 = 2;
const WIRE_FIXED32: u64 = 5;

#[derive(Debug, Default)]
pub(crate) struct MessageWriter(Vec<u8>);

impl MessageWriter {
    pub(crate) fn number(mut self, field: u32, value: u64) -> Self {
        self.tag(field, WIRE_VARINT);
        self.varint(value);
        self
    }

    pub(crate) fn flag(self, field: u32, value: bool) -> Self {
        self.number(field, value.into())
    }

    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.tag(field, WIRE_BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
    }
}

/// Fields of a message in their order. Ends at the first malformed one.
pub(crate) struct MessageReader<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for MessageReader<'a> {
    type Item = (u64, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let tag = self.varint()?;
            let field = tag >> 3;
            match tag & 7 {
                WIRE_VARINT => return Some((field, FieldValue::Number(self.varint()?))),
                WIRE_BYTES => {
                    let length = usize::try_from(self.varint()?).ok()?;
                    return Some((field, FieldValue::Bytes(self.take(length)?)));
                }
                WIRE_FIXED64 => self.take(8)?,
                WIRE_FIXED32 => self.take(4)?,
                _ => return None,
            };
        }
    }
}

impl<'a> MessageReader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn message_is_read_back_in_order() {
        let inner = MessageWriter::default().number(1, 300).finish();
        let written = MessageWriter::default()
            .flag(67, true)
            .bytes(2, &inner)
            .number(3, u64::MAX)
            .finish();
        let fields: Vec<_> = MessageReader(&written).collect();
        assert_eq!(fields[0], (67, FieldValue::Number(1)));
        assert_eq!(fields[1], (2, FieldValue::Bytes(&[8, 0xac, 2])));
        assert_eq!(fields[2], (3, FieldValue::Number(u64::MAX)));
        assert_eq!(fields.len(), 3);
    }

    proptest! {
        #[test]
        fn malformed_message_ends_early(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(MessageReader(&bytes).count() <= bytes.len());
        }
    }
}
