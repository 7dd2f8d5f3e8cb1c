-- What ingests say beside their counts: what was left out, and what people should know of documents that could be read.
ALTER TABLE ingests ADD COLUMN left_out TEXT;      -- [LeftOut] as JSON; null before the source was read, and where nothing was left out
ALTER TABLE ingest_documents ADD COLUMN notes TEXT; -- [text] as JSON; null where there is nothing to say
