//! Vectors of single tokens, as a layer of an encoder makes them: what measures such as BERTScore compare.

/// Texts whose tokens are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenVectorsRequest {
    /// An embedding model of the in-process runtime.
    pub model: String,
    /// The texts; at most 256, since a token of a text takes some kilobytes.
    pub texts: Vec<String>,
    /// Layers that the tokens go through; 0 is before the first one. Left out, two thirds of the model's, rounded up: what
    /// `bert-score` found best for MPNet (8 of 12).
    pub layer: Option<usize>,
}

/// The tokens of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenVectors {
    /// Layers that the tokens went through.
    pub layer: usize,
    /// One for each text, in their order.
    pub texts: Vec<TextTokens>,
    /// Texts that were longer than the model reads; their ends are not there.
    pub truncated: usize,
}

/// The tokens of a text, with those that the model puts around it. All three lists have the same length.
#[derive(Debug, Clone, PartialEq)]
pub struct TextTokens {
    /// Numbers in the vocabulary.
    pub ids: Vec<u32>,
    /// Which the model has put around the text.
    pub added: Vec<bool>,
    /// Their vectors, not normalized.
    pub vectors: Vec<Vec<f32>>,
}
