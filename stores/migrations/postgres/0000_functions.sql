-- What SQLite has and PostgreSQL has not, so that every statement is said once. Runs before the shared migrations.

-- A field of a document that is kept as text, by a path such as $.session.
CREATE FUNCTION json_extract(document TEXT, path TEXT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT document::json #>> string_to_array(substr(path, 3), '.') $$;
