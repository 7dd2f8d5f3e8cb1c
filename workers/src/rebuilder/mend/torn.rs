//! Documents of which both indexes have as many chunks, and not the same ones: counts do not show it, ids do.
//!
//! Which of the two is right is known to the log alone. Such a document goes from both, and the next round writes it again; where the log
//! does not have all of it, it stays as it is.

use std::collections::BTreeSet;

use riverrun_schemas::DocumentId;
use riverrun_stores::{Comparison, StoreError, Versions};

use super::super::fold::{Origin, Version};
use super::{Mend, Target};

/// Documents that are taken up in one round.
const MAX_TORN: usize = 1_000;

impl Mend<'_> {
    /// Those that the ids of both indexes tell, and that can be written again.
    pub(super) async fn torn(&self, target: &Target) -> Result<Vec<DocumentId>, StoreError> {
        let (vectors, keywords) = (self.rebuilder.vectors.as_ref(), self.rebuilder.keywords.as_ref());
        let mut comparison = Comparison::new(vectors, keywords, self.collection);
        let mut torn = BTreeSet::new();
        while torn.len() < MAX_TORN {
            let Some(compared) = comparison.next().await? else { break };
            let alone = compared.vectors.iter().chain(&compared.keywords).map(|key| key.document_id);
            torn.extend(alone.filter(|document| self.can_be_written(document, target)));
        }
        Ok(torn.into_iter().collect())
    }

    /// Those of them that are so still, while nobody else writes to the collection.
    pub(super) async fn still_torn(
        &self,
        torn: &[DocumentId],
        target: &Target,
    ) -> Result<Vec<(DocumentId, Versions)>, StoreError> {
        let mut still = Vec::new();
        for document in torn.iter().filter(|document| self.can_be_written(document, target)) {
            let chunks = self.rebuilder.vectors.chunks(self.collection, document).await?;
            let ids: Vec<_> = chunks.into_iter().map(|chunk| chunk.chunk_id).collect();
            let shared = self.rebuilder.keywords.keys_of(self.collection, &ids).await?.len();
            let keywords = self.rebuilder.keywords.count_document(self.collection, document, &Versions::All).await?;
            if shared < ids.len() || shared < keywords {
                still.push((*document, Versions::All));
            }
        }
        Ok(still)
    }

    /// Whether the log has all of what should be found, with vectors that fit, and the indexer does not bring it.
    fn can_be_written(&self, document: &DocumentId, target: &Target) -> bool {
        let wanted = self.fold.wanted(document, &target.model);
        let is_later = |version: &Version| !self.written.contains(document) && version.is_behind(&self.ends);
        wanted.coming.is_none()
            && wanted.whole.is_some_and(|(version, origin)| origin == Origin::Chunks || !is_later(version))
    }
}
