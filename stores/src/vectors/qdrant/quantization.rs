//! What a server keeps of vectors in memory for a first look, smaller than they are.

use qdrant_client::qdrant::quantization_config::Quantization as Kept;
use qdrant_client::qdrant::{
    BinaryQuantizationBuilder, CompressionRatio, ProductQuantizationBuilder, QuantizationSearchParams,
    QuantizationSearchParamsBuilder, ScalarQuantizationBuilder,
};

/// How many times as many as are wanted are looked at themselves where the first look is a coarse one.
const OVERSAMPLING: f64 = 3.0;

/// How vectors are kept in memory beside those on disk. What is found by it is compared with the vectors themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantization {
    /// Not at all.
    #[default]
    None,
    /// A byte a dimension: a quarter.
    Int8,
    /// A code for each few dimensions: a sixteenth.
    Product,
    /// A bit a dimension: a thirty-second.
    Binary,
}

impl Quantization {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::None, Self::Int8, Self::Product, Self::Binary];

    /// As settings name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Int8 => "int8",
            Self::Product => "product",
            Self::Binary => "binary",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// What new data is to keep.
    pub(super) fn kept(self) -> Option<Kept> {
        match self {
            Self::None => None,
            Self::Int8 => Some(ScalarQuantizationBuilder::default().always_ram(true).into()),
            Self::Product => {
                let sixteenth = CompressionRatio::X16.into();
                Some(ProductQuantizationBuilder::new(sixteenth).always_ram(true).into())
            }
            Self::Binary => Some(BinaryQuantizationBuilder::new(true).into()),
        }
    }

    /// How it is searched.
    pub(super) fn search(self) -> Option<QuantizationSearchParams> {
        let exactly = QuantizationSearchParamsBuilder::default().rescore(true);
        match self {
            Self::None => None,
            Self::Int8 => Some(exactly.into()),
            Self::Product | Self::Binary => Some(exactly.oversampling(OVERSAMPLING).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(deprecated, reason = "servers before 1.19 know no other field")]
    fn given_each_kind_when_it_is_said_to_the_server_then_it_is_kept_in_memory_and_what_it_finds_is_compared() {
        for kind in Quantization::ALL {
            assert_eq!(Quantization::named(kind.name()), Some(kind));
            let in_memory = match kind.kept() {
                None => None,
                Some(Kept::Scalar(kept)) => kept.always_ram,
                Some(Kept::Product(kept)) => kept.always_ram,
                Some(Kept::Binary(kept)) => kept.always_ram,
                Some(Kept::Turboquant(kept)) => kept.always_ram,
            };
            let compared = kind.search().and_then(|search| search.rescore);
            let expected = (kind != Quantization::None).then_some(true);
            assert_eq!((in_memory, compared), (expected, expected), "{kind:?}");
        }
        let more = |kind: Quantization| kind.search().and_then(|search| search.oversampling);
        assert_eq!(more(Quantization::Int8), None);
        assert_eq!((more(Quantization::Product), more(Quantization::Binary)), (Some(OVERSAMPLING), Some(OVERSAMPLING)));
        assert_eq!(Quantization::named("int4"), None);
    }
}
