"""What riverrun's knowledge is measured beside: LlamaIndex, bm25s and DuckDB, each in a process of its own.

    knowledge_peers.py PART JSON       prints one JSON object; PART is one of split, ingest, search, tables

Only what is named is timed: programs are imported and files read before, and each is asked once before it counts, as riverrun is.
"""

import http.client
import json
import resource
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

CHARACTERS, OVERLAP = 800, 100
# As deep as riverrun goes before it fuses.
DEPTH, K = 50, 60


def texts(folder):
    return [path.read_text() for path in sorted(Path(folder).iterdir())]


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory():
    """Proportional set size in bytes, and what of it is no file."""
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Pss", "Pss_Anon"):
            found[name] = int(rest.split()[0]) * 1024
    return {"pss": found["Pss"], "anonymous": found["Pss_Anon"]}


def splitter(unit):
    from llama_index.core.node_parser import SentenceSplitter
    if unit == "tokens":
        return SentenceSplitter(chunk_size=200, chunk_overlap=25)
    # Each character is a token: sizes count what riverrun's count.
    return SentenceSplitter(chunk_size=CHARACTERS, chunk_overlap=OVERLAP, tokenizer=list)


def split(task):
    """LlamaIndex's usual splitter over all texts, `rounds` times."""
    read, found = texts(task["folder"]), {}
    for unit in ("characters", "tokens"):
        one, seconds, chunks = splitter(unit), [], 0
        one.split_text(read[0])
        for _ in range(task["rounds"]):
            began = time.perf_counter()
            chunks = sum(len(one.split_text(text)) for text in read)
            seconds.append(time.perf_counter() - began)
        found[unit] = {"seconds": seconds, "chunks": chunks}
    return {"bytes": sum(len(text.encode()) for text in read), **found}


def embedder(url, model):
    """A model behind HTTP for LlamaIndex: Ollama's API, or OpenAI's where a model is named. One kept connection."""
    from llama_index.core.base.embeddings.base import BaseEmbedding

    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)
    path = "/v1/embeddings" if model else "/api/embed"

    def ask(inputs):
        connection.request("POST", path, json.dumps({"model": model or "bench", "input": inputs}), {"content-type": "application/json"})
        reply = connection.getresponse()
        body = json.loads(reply.read())
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {body}")
        return [one["embedding"] for one in body["data"]] if model else body["embeddings"]

    class Embedder(BaseEmbedding):
        def _get_query_embedding(self, query):
            return ask([query])[0]

        async def _aget_query_embedding(self, query):
            return ask([query])[0]

        def _get_text_embedding(self, text):
            return ask([text])[0]

        def _get_text_embeddings(self, inputs):
            return ask(inputs)

    return Embedder(model_name=model or "bench", embed_batch_size=32)


def ingest(task):
    """LlamaIndex's ingestion pipeline from files to a store in memory: read, split, embedded, kept."""
    from llama_index.core import Document
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.vector_stores import SimpleVectorStore

    one = embedder(task["url"], task["model"])
    split = splitter("characters")
    split.split_text("What it needs besides is read with the first text.")
    one.get_text_embedding_batch(["And the model is loaded."])
    pipeline = IngestionPipeline(transformations=[split, one], vector_store=SimpleVectorStore(), disable_cache=True)
    used, began = cpu_s(), time.perf_counter()
    documents = [Document(text=path.read_text(), doc_id=str(path)) for path in sorted(Path(task["folder"]).iterdir())]
    nodes = pipeline.run(documents=documents)
    return {"chunks": len(nodes), "seconds": time.perf_counter() - began, "cpu_s": cpu_s() - used, **memory()}


def search(task):
    """bm25s, and its ranks fused with those of a plain matrix product: nothing else, nothing durable. The product is the same whatever
    the vectors are, so they are drawn."""
    import bm25s
    import numpy
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def words(of):
        return bm25s.tokenize(of, stopwords="en", stemmer=stemmer, show_progress=False)

    step = CHARACTERS - OVERLAP
    pieces = (text[at:at + CHARACTERS] for text in texts(task["folder"]) for at in range(0, len(text), step))
    chunks = [piece for piece, _ in zip(pieces, range(task["chunks"]))]
    began = time.perf_counter()
    index = bm25s.BM25()
    index.index(words(chunks), show_progress=False)
    indexed = time.perf_counter() - began
    dice = numpy.random.default_rng(1)
    matrix = dice.standard_normal((len(chunks), task["dimensions"]), dtype=numpy.float32)
    queries = dice.standard_normal((len(task["queries"]), task["dimensions"]), dtype=numpy.float32)
    depth, by_words, hybrid = min(DEPTH, len(chunks)), [], []
    for query in task["queries"][:20]:
        index.retrieve(words([f"{query} {query}"]), k=depth, show_progress=False)
    for query, vector in zip(task["queries"], queries):
        began = time.perf_counter()
        found, _ = index.retrieve(words([query]), k=depth, show_progress=False)
        by_words.append(time.perf_counter() - began)
        scores = matrix @ vector
        near = numpy.argpartition(scores, -depth)[-depth:]
        near = near[numpy.argsort(-scores[near])]
        fused = {}
        for ranking in (found[0], near):
            for rank, chunk in enumerate(ranking, 1):
                fused[int(chunk)] = fused.get(int(chunk), 0.0) + 1 / (K + rank)
        best = sorted(fused, key=lambda chunk: (-fused[chunk], chunk))[:10]
        _ = [chunks[chunk] for chunk in best]
        hybrid.append(time.perf_counter() - began)
    return {"chunks": len(chunks), "index_s": indexed, "words": by_words, "hybrid": hybrid, **memory()}


def tables(task):
    """DuckDB's own library in this process: the same file, the same statements."""
    import duckdb

    connection = duckdb.connect(task["database"])
    began = time.perf_counter()
    connection.execute("CREATE TABLE prices AS SELECT * FROM read_csv($1)", [task["csv"]])
    loaded = time.perf_counter() - began
    rows = connection.execute("SELECT count(*) FROM prices").fetchone()[0]
    took = {}
    for name, sql in task["queries"].items():
        samples = []
        connection.execute(sql).fetchall()
        for _ in range(task["rounds"]):
            began = time.perf_counter()
            connection.execute(sql).fetchall()
            samples.append(time.perf_counter() - began)
        took[name] = samples
    return {"version": duckdb.__version__, "rows": rows, "load_s": loaded, "took": took, **memory()}


PARTS = {"split": split, "ingest": ingest, "search": search, "tables": tables}


if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](json.loads(sys.argv[2]))))
