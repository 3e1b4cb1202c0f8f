//! From model shapes and a budget in bytes to a number of blocks. All maths is checked: the
//! numbers come out of model files.

use crate::pool::BLOCKS_MAX;

/// The shape of one lane's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneGeometry {
    /// Transformer layers that keep keys and values.
    pub layers: u32,
    /// Key/value heads per layer (not query heads).
    pub kv_heads: u32,
    /// Elements per head.
    pub head_dim: u32,
    /// Bytes per element as stored.
    pub element_bytes: u32,
}

/// Why no number of blocks could be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A field that must be at least 1 is 0.
    #[error("{field} must be at least 1")]
    Zero {
        /// Name of the field.
        field: &'static str,
    },
    /// The product does not fit 64 bits.
    #[error("the size of a {what} in bytes does not fit 64 bits")]
    Overflow {
        /// What was being sized.
        what: &'static str,
    },
    /// The budget does not hold a single block.
    #[error("a budget of {budget_bytes} bytes holds no block; the least is {minimum_bytes} bytes")]
    BudgetTooSmall {
        /// What was given.
        budget_bytes: u64,
        /// The bytes of one block over all lanes.
        minimum_bytes: u64,
    },
}

impl LaneGeometry {
    /// Bytes of the keys and values of one token, over all layers.
    pub fn bytes_per_token(&self) -> Result<u64, GeometryError> {
        let factors = [
            ("layers", self.layers),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("element_bytes", self.element_bytes),
        ];
        let keys_and_values = 2u64;
        factors.into_iter().try_fold(keys_and_values, |bytes, (field, factor)| {
            if factor == 0 {
                return Err(GeometryError::Zero { field });
            }
            bytes.checked_mul(u64::from(factor)).ok_or(GeometryError::Overflow { what: "token" })
        })
    }
}

/// How many blocks of `block_size` tokens fit `budget_bytes`, each holding all `lanes`.
///
/// The answer is at least 1 and at most [`BLOCKS_MAX`]. A budget too small names the least that
/// would do.
pub fn blocks_within(
    budget_bytes: u64,
    block_size: u32,
    lanes: &[LaneGeometry],
) -> Result<u32, GeometryError> {
    if block_size == 0 {
        return Err(GeometryError::Zero { field: "block_size" });
    }
    if lanes.is_empty() {
        return Err(GeometryError::Zero { field: "lanes" });
    }
    let overflow = || GeometryError::Overflow { what: "block" };
    let mut block_bytes = 0u64;
    for lane in lanes {
        let bytes =
            lane.bytes_per_token()?.checked_mul(u64::from(block_size)).ok_or_else(overflow)?;
        block_bytes = block_bytes.checked_add(bytes).ok_or_else(overflow)?;
    }
    let blocks = budget_bytes / block_bytes;
    if blocks == 0 {
        return Err(GeometryError::BudgetTooSmall { budget_bytes, minimum_bytes: block_bytes });
    }
    Ok(u32::try_from(blocks).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: LaneGeometry =
        LaneGeometry { layers: 30, kv_heads: 3, head_dim: 64, element_bytes: 4 };

    #[test]
    fn a_token_is_keys_and_values_of_every_layer() {
        assert_eq!(SMALL.bytes_per_token(), Ok(2 * 30 * 3 * 64 * 4));
    }

    #[test]
    fn blocks_hold_all_lanes_and_round_down() {
        let token = SMALL.bytes_per_token().unwrap();
        let block = token * 32;
        assert_eq!(blocks_within(block * 7 + block - 1, 32, &[SMALL]), Ok(7));
        assert_eq!(blocks_within(block * 7, 32, &[SMALL]), Ok(7));
        assert_eq!(blocks_within(block * 7, 32, &[SMALL, SMALL]), Ok(3));
        assert_eq!(blocks_within(block * 2, 32, &[SMALL, SMALL]), Ok(1));
    }

    #[test]
    fn a_budget_too_small_names_the_least() {
        let block = SMALL.bytes_per_token().unwrap() * 32 * 2;
        let error = blocks_within(block - 1, 32, &[SMALL, SMALL]).unwrap_err();
        assert_eq!(
            error,
            GeometryError::BudgetTooSmall { budget_bytes: block - 1, minimum_bytes: block }
        );
        assert!(error.to_string().contains(&block.to_string()));
    }

    #[test]
    fn zeros_and_overflows_are_refused_by_name() {
        let zero = LaneGeometry { head_dim: 0, ..SMALL };
        assert_eq!(zero.bytes_per_token(), Err(GeometryError::Zero { field: "head_dim" }));
        let one_byte = LaneGeometry { layers: 1, kv_heads: 1, head_dim: 1, element_bytes: 1 };
        assert_eq!(
            blocks_within(1 << 40, 0, &[one_byte]),
            Err(GeometryError::Zero { field: "block_size" })
        );
        assert_eq!(blocks_within(1, 1, &[]), Err(GeometryError::Zero { field: "lanes" }));
        let huge = LaneGeometry {
            layers: u32::MAX,
            kv_heads: u32::MAX,
            head_dim: u32::MAX,
            element_bytes: 1,
        };
        assert_eq!(huge.bytes_per_token(), Err(GeometryError::Overflow { what: "token" }));
        let wide = LaneGeometry { layers: 1 << 31, kv_heads: 1 << 30, head_dim: 1, ..one_byte };
        assert_eq!(
            blocks_within(u64::MAX, 32, &[wide]),
            Err(GeometryError::Overflow { what: "block" })
        );
        let half = LaneGeometry { layers: 1 << 31, kv_heads: 1 << 31, ..one_byte };
        assert_eq!(
            blocks_within(u64::MAX, 1, &[half, half]),
            Err(GeometryError::Overflow { what: "block" })
        );
    }

    #[test]
    fn the_number_of_blocks_is_capped() {
        let one_byte = LaneGeometry { layers: 1, kv_heads: 1, head_dim: 1, element_bytes: 1 };
        assert_eq!(blocks_within(u64::MAX, 1, &[one_byte]), Ok(BLOCKS_MAX));
    }
}
