-- The newest removal of everything in a collection is asked for whenever a topic is read into it.
CREATE INDEX deletions_by_collection ON deletions (namespace, collection, created_at, deletion_id) WHERE documents IS NOT NULL;
