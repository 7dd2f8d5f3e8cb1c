#!/usr/bin/env python3
"""Measures how documents come in and are found, each figure beside LlamaIndex, bm25s or DuckDB in the same run. Prints a Markdown table.

    ./x bench knowledge [--part NAME ...] [--json FILE]

    chunking    MB/s of the splitter alone, beside LlamaIndex's; needs --chunking PROGRAM, which
                `./x bench knowledge` builds and names
    ingest      chunks/s and CPU a chunk from POST /ingest until all can be found, with an embedding server of its own process that
                computes nothing, beside LlamaIndex's ingestion pipeline with the same one; with --model NAME also with that model,
                which LlamaIndex asks through riverrun's /v1/embeddings
    search      by words and fused, over HTTP, in --chunks chunks, beside bm25s and a plain matrix product in their caller's process
    warehouse   statements over HTTP, and a load, beside DuckDB's library in its caller's process, on the same file
    memory      a server with --memory-chunks chunks, beside the same in Python; only where it is named: it takes long and 15 GB of disk

Texts are made, the same for the same sizes. Ours and the peers' take turns (A B A B) and medians are given.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/interop"))

import measure  # noqa: E402
from run import median, mib, ms, rounded, table  # noqa: E402
from server import Server, wait_for  # noqa: E402

PARTS = ("chunking", "ingest", "search", "warehouse", "memory")
USUAL = PARTS[:-1]
# Of the usual 800 characters with an overlap of 100 a chunk has about so many that the one before has not.
NEW_CHARACTERS = 640
DOCUMENT_CHUNKS = 100
SENTENCES = 50_000
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or", "un")]
PATIENCE_S = 4 * 3600
# A little longer than nobody has to have written to a collection before its graph is built.
REST_S = 13
# Of a core, in a second: what a server that has nothing to do may use, with somebody who looks.
IDLE_CPU_S = 0.05


# ---- what is read ----------------------------------------------------------------------------------------------------


def sentences():
    """Sentences of words that are as unevenly common as those of a language (Zipf)."""
    dice = random.Random(1)
    words = sorted({"".join(dice.choices(SYLLABLES, k=dice.randrange(1, 5))) for _ in range(40_000)})
    dice.shuffle(words)
    weights = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(words))))
    made = []
    for _ in range(SENTENCES):
        chosen = dice.choices(words, cum_weights=weights, k=dice.randrange(6, 22))
        made.append(" ".join(chosen).capitalize() + ".")
    return made


def write_texts(folder, chunks, pool):
    """Text files that come to about so many chunks. Returns their bytes."""
    folder.mkdir(parents=True)
    dice, written = random.Random(chunks), 0
    documents = max(1, chunks // DOCUMENT_CHUNKS)
    length = chunks * NEW_CHARACTERS // documents
    for number in range(documents):
        paragraphs, size = [], 0
        while size < length:
            paragraphs.append(" ".join(dice.choices(pool, k=dice.randrange(3, 9))))
            size += len(paragraphs[-1])
        text = "\n\n".join(paragraphs) + "\n"
        written += len(text)
        (folder / f"{number:06}.txt").write_text(text)
    return written


def queries(count, pool):
    """Three words of a sentence each, all different."""
    dice, made = random.Random(2), set()
    while len(made) < count:
        made.add(" ".join(dice.sample(dice.choice(pool).rstrip(".").lower().split(), k=3)))
    return sorted(made)


def write_rows(path, count):
    dice = random.Random(count)
    regions = ["north", "east", "south", "west", "centre", "coast", "islands", "abroad"]
    with path.open("w") as file:
        file.write("id,region,day,amount,note\n")
        for number in range(count):
            file.write(f"{number},{dice.choice(regions)},2025-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02},"
                       f"{dice.randrange(100_000) / 100:.2f},order {dice.randrange(1000)}\n")


STATEMENTS = {
    "count": "SELECT count(*) FROM prices",
    "group": "SELECT region, sum(amount), avg(amount) FROM prices GROUP BY region ORDER BY region",
    "filter": "SELECT * FROM prices WHERE region = 'north' AND amount > 990 ORDER BY amount DESC, id LIMIT 100",
    "1,000 rows": "SELECT * FROM prices ORDER BY id LIMIT 1000",
}


# ---- both sides ------------------------------------------------------------------------------------------------------


def peer(part, **task):
    """A part of knowledge_peers.py; `None` where its packages are not installed or it failed."""
    done = subprocess.run([sys.executable, HERE / "knowledge_peers.py", part, json.dumps(task)], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        print(f"  {part} of the peers did not run: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


@contextlib.contextmanager
def embedding_server(dimensions):
    process = subprocess.Popen([sys.executable, HERE / "knowledge_embedder.py", str(dimensions)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)


class Calls:
    """Requests over one kept connection."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.api_port, timeout=120)

    def post(self, path, body):
        """The answer, and how long it took."""
        began = time.perf_counter()
        self.connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = self.connection.getresponse()
        read = reply.read()
        took = time.perf_counter() - began
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {read[:600]!r}")
        return json.loads(read), took


class Peak(threading.Thread):
    """The most memory that a process had, looked at each second."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.ended, self.most = pid, threading.Event(), 0

    def run(self):
        while not self.ended.wait(1):
            with contextlib.suppress(OSError):
                self.most = max(self.most, measure.memory_bytes(self.pid))

    def end(self):
        self.ended.set()
        self.join()
        return self.most


def anonymous_bytes(pid):
    """Memory of the process that is no file, and that the system can't take back."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} shows no Pss_Anon")


def disk_bytes(folder):
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def ingest(server, source, collection, **more):
    """Chunks, seconds and CPU from the request until everything can be found."""
    pid = server.process.pid
    used, began = measure.cpu_s(pid), time.perf_counter()
    reply = server.post("/ingest", {"source": str(source), "collection": collection, **more})
    assert reply.status == 202, reply
    place = f"/ingest/{reply.json['ingest_id']}"

    def ended():
        view = server.get(place)
        return view.json if view.status == 200 and view.json["status"] != "running" else None
    view = wait_for(ended, PATIENCE_S, "the ingest to end", every_s=0.05)
    took, used = time.perf_counter() - began, measure.cpu_s(pid) - used
    assert view["status"] == "done" and view["failed"] == 0 and view["chunks"] > 0, view
    return {"chunks": view["chunks"], "seconds": took, "cpu_s": used}


def rest(server):
    """Waits until the server has had nothing to do for so long that graphs are built; the CPU seconds that it took till then."""
    pid = server.process.pid
    began, quiet, deadline = measure.cpu_s(pid), 0, time.monotonic() + PATIENCE_S
    while quiet < REST_S:
        assert time.monotonic() < deadline, "the server never rests"
        used = measure.cpu_s(pid)
        time.sleep(1)
        quiet = quiet + 1 if measure.cpu_s(pid) - used <= IDLE_CPU_S else 0
    return measure.cpu_s(pid) - began


# ---- the parts -------------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, folder, options):
        self.folder, self.options, self.rows, self.figures = folder, options, [], {}
        self.pool = sentences()

    def row(self, what, unit, ours, theirs, name, note=""):
        self.rows.append({"what": what, "unit": unit, "riverrun": ours, "peer": theirs, "peer_name": name, "note": note})
        print(f"  {what}: {ours} | {name}: {theirs}", file=sys.stderr, flush=True)

    def texts(self, chunks):
        """A folder of texts for so many chunks, written once."""
        folder = self.folder / f"texts-{chunks}"
        if not folder.exists():
            print(f"writing texts for {chunks} chunks", file=sys.stderr)
            write_texts(folder, chunks, self.pool)
        return folder

    @contextlib.contextmanager
    def server(self, name, url=None, model=None):
        settings = {"RIVERRUN_INGEST_ROOTS": str(self.folder), "RIVERRUN_INGEST_MAX_FILES": "100000", "RIVERRUN_CHUNK_UNIT": "characters",
                    "RIVERRUN_DEFAULT_EMBED_MODEL": model or "ollama/bench"}
        if url:
            settings["RIVERRUN_MODEL_RUNTIME_BASE_URL"] = url
        server = Server(self.folder / name, settings).start()
        try:
            yield server
        finally:
            server.stop()

    def chunking(self):
        folder, seconds, theirs = self.texts(self.options.split_chunks), [], {"characters": [], "tokens": []}
        files = sorted(folder.iterdir())
        for _ in range(self.options.rounds):
            done = subprocess.run([self.options.chunking, "--rounds", "1", *files], capture_output=True, text=True, check=True)
            ours = json.loads(done.stdout)
            seconds += ours["seconds"]
            found = peer("split", folder=str(folder), rounds=1)
            for unit in theirs if found else ():
                theirs[unit] += found[unit]["seconds"]
        self.figures["chunking"] = {"bytes": ours["bytes"], "chunks": ours["chunks"], "seconds": seconds, "llamaindex": theirs}

        def rate(samples):
            return f"{ours['bytes'] / 1e6 / median(samples):.1f}" if samples else None
        self.row("splitting text, 800 characters with 100 shared", "MB/s", rate(seconds), rate(theirs["characters"]),
                 "LlamaIndex, SentenceSplitter, characters", "one thread each")
        self.row("the same", "MB/s", rate(seconds), rate(theirs["tokens"]), "LlamaIndex, SentenceSplitter as it is set up, 200 tokens")

    def ingest(self):
        folder = self.texts(self.options.ingest_chunks)
        with embedding_server(self.options.dimensions) as url, self.server("ingest", url) as server:
            self.ingest_rounds(server, folder, f"an embedding server that computes nothing, {self.options.dimensions} numbers", url=url)
        if self.options.model:
            with self.server("ingest-model", model=self.options.model) as server:
                self.ingest_rounds(server, self.texts(self.options.model_chunks), self.options.model, url=server.url)

    def ingest_rounds(self, server, folder, embedder, url):
        model = None if embedder != self.options.model else embedder
        ours, theirs = [], []
        # The first one finds its way, loads the model and opens the indexes.
        warm = self.folder / "warm"
        if not warm.exists():
            write_texts(warm, DOCUMENT_CHUNKS, self.pool)
        ingest(server, warm, "warm")
        for number in range(self.options.rounds):
            ours.append(ingest(server, folder, f"round{number}"))
            found = peer("ingest", folder=str(folder), url=url, model=model)
            theirs += [found] if found else []
        self.figures.setdefault("ingest", {})[embedder] = {"riverrun": ours, "llamaindex": theirs}

        def middle(samples, figure):
            return median([figure(sample) for sample in samples])
        name = "LlamaIndex, IngestionPipeline, a store in memory"
        self.row(f"documents to found chunks, {embedder}", "chunks/s", rounded(middle(ours, lambda one: one["chunks"] / one["seconds"])),
                 rounded(middle(theirs, lambda one: one["chunks"] / one["seconds"])), name,
                 f"{ours[0]['chunks']:,} chunks; ours durable and in both indexes")
        if model is None:
            def cpu(samples):
                found = middle(samples, lambda one: one["cpu_s"] / one["chunks"] * 1e6)
                return None if found is None else f"{found:.0f}"
            self.row("CPU a chunk without the model", "µs", cpu(ours), cpu(theirs), name,
                     "reading, splitting, the log, both indexes, read models, and the talk with the embedding server")

    def search(self):
        asked = queries(self.options.queries, self.pool)
        folder = self.texts(self.options.chunks)
        with embedding_server(self.options.dimensions) as url, self.server("search", url) as server:
            loaded = ingest(server, folder, "texts")
            server.settle(600)
            loaded["graph_cpu_s"] = rest(server)
            found = {mode: self.ask(server, asked, mode) for mode in ("sparse", "hybrid")}
        theirs = peer("search", folder=str(folder), chunks=loaded["chunks"], queries=asked, dimensions=self.options.dimensions)
        self.figures["search"] = {"loaded": loaded, "riverrun": found, "peer": theirs}

        def both(samples):
            if not samples:
                return None
            spread = measure.spread(samples)
            return f"{ms(spread['p50'])} / {ms(spread['p99'])}"
        self.row("CPU a chunk for the graph of vectors, later, when nobody writes", "µs", f"{loaded['graph_cpu_s'] / loaded['chunks'] * 1e6:.0f}", None,
                 "the same has none", f"{loaded['chunks']:,} chunks; once, for all of them")
        words, hybrid = (theirs["words"], theirs["hybrid"]) if theirs else (None, None)
        note = f"{loaded['chunks']:,} chunks, {len(asked)} queries; ours over HTTP with whole chunks"
        self.row("search by words, p50 / p99", "ms", both(found["sparse"]["wall"]), both(words), "bm25s, stemmed", note)
        name = "bm25s and a matrix product, fused"
        self.row("search by words and meaning, p50 / p99", "ms", both(found["hybrid"]["wall"]), None, name, "with the query's embedding")
        self.row("the same without the embedding", "ms", both(found["hybrid"]["without_model"]), both(hybrid), name)

    def ask(self, server, asked, mode):
        calls, wall, without_model = Calls(server), [], []
        body = {"collection": "texts", "k": 10, "mode": mode, "rerank": False}
        for query in asked[:20]:
            calls.post("/rag/search", body | {"query": f"{query} {query}"})
        for query in asked:
            answer, took = calls.post("/rag/search", body | {"query": query})
            # In few chunks some words may be nowhere.
            assert (answer["items"] or mode == "sparse") and not answer.get("incomplete"), answer
            wall.append(took)
            without_model.append(took - answer["took_ms"]["embed"] / 1000)
        return {"wall": wall, "without_model": without_model}

    def warehouse(self):
        path = self.folder / "prices.csv"
        write_rows(path, self.options.rows)
        rounds = self.options.rounds * 20
        with embedding_server(self.options.dimensions) as url, self.server("warehouse", url) as server:
            loaded = ingest(server, path, "prices", table="prices")
            calls, ours = Calls(server), {}
            for name, sql in STATEMENTS.items():
                body = {"sql": sql, "limit": 1000}
                calls.post("/warehouse/query", body)
                ours[name] = [calls.post("/warehouse/query", body)[1] for _ in range(rounds)]
        theirs = peer("tables", csv=str(path), database=str(self.folder / "peer.duckdb"), queries=STATEMENTS, rounds=rounds)
        self.figures["warehouse"] = {"loaded": loaded, "riverrun": ours, "duckdb": theirs}
        name = f"DuckDB {theirs['version']}, in its caller's process" if theirs else "DuckDB"
        for statement, samples in ours.items():
            self.row(f"statement over {self.options.rows:,} rows: {statement}, p50", "ms", ms(median(samples)),
                     theirs and ms(median(theirs["took"][statement])), name, "ours checked, over HTTP and as JSON")
        self.row(f"{self.options.rows:,} rows of CSV loaded", "s", f"{loaded['seconds']:.2f}", theirs and f"{theirs['load_s']:.2f}", name,
                 f"ours also as {loaded['chunks']:,} chunks that are found by words and meaning")

    def memory(self):
        chunks = self.options.memory_chunks
        folder, asked = self.texts(chunks), queries(100, self.pool)
        with embedding_server(self.options.dimensions) as url:
            with self.server("memory", url) as server:
                peak = Peak(server.process.pid)
                peak.start()
                loaded = ingest(server, folder, "texts")
                loaded |= {"peak": peak.end(), "disk": disk_bytes(server.folder / "data")}
            with self.server("memory", url) as server:
                # What the first process left without a graph gets one when the collection was opened.
                self.ask(server, asked[:1], "hybrid")
                loaded |= {"graph_cpu_s": rest(server), "took": self.ask(server, asked, "hybrid")}
                pid = server.process.pid
                loaded |= {"pss": measure.memory_bytes(pid), "anonymous": anonymous_bytes(pid)}
        theirs = peer("search", folder=str(folder), chunks=loaded["chunks"], queries=asked, dimensions=self.options.dimensions)
        for samples in ("words", "hybrid") if theirs else ():
            del theirs[samples]
        self.figures["memory"] = {"riverrun": loaded, "peer": theirs}
        name = "bm25s, vectors and texts in memory"
        note = f"{loaded['chunks']:,} chunks, {self.options.dimensions} numbers a vector"
        self.row("memory (PSS) while it searches, started anew", "MiB", mib(loaded["pss"]), theirs and mib(theirs["pss"]), name, note)
        self.row("of it what is no file", "MiB", mib(loaded["anonymous"]), theirs and mib(theirs["anonymous"]), name)
        self.row("most memory (PSS) while it was loaded", "MiB", mib(loaded["peak"]), None, name)
        self.row("disk", "MiB", mib(loaded["disk"]), None, name, "log, blobs, vectors, keywords, read models")
        spread = measure.spread(loaded["took"]["without_model"])
        self.row("search by words and meaning without the embedding, p50 / p99", "ms", f"{ms(spread['p50'])} / {ms(spread['p99'])}", None, name)
        self.row("chunks a second while it was loaded", "chunks/s", rounded(loaded["chunks"] / loaded["seconds"]), None, name)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, dest="parts", help=f"as often as wanted; {', '.join(USUAL)} when left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunking", type=Path, help="the program that times how texts are split")
    parser.add_argument("--split-chunks", type=int, default=20_000)
    parser.add_argument("--ingest-chunks", type=int, default=20_000)
    parser.add_argument("--model", help="an embedding model that runs in riverrun's process, such as all-minilm-l6-v2")
    parser.add_argument("--model-chunks", type=int, default=500)
    parser.add_argument("--dimensions", type=int, default=384, help="of the vectors of the embedding server; a multiple of 8")
    parser.add_argument("--chunks", type=int, default=100_000, help="that are searched")
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=200_000, help="of the table; at most about 400,000, for the file is limited")
    parser.add_argument("--memory-chunks", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where texts and data lie while it runs; a folder of the system when left out")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    options.parts = options.parts or [part for part in USUAL if part != "chunking" or options.chunking]
    if "chunking" in options.parts and not options.chunking:
        parser.error("chunking needs --chunking PROGRAM; the head of this file says how it is built")
    if options.dimensions % 8:
        parser.error(f"--dimensions is {options.dimensions}, which is no multiple of 8")
    return options


def main():
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="riverrun-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder).resolve(), options)
        for part in options.parts:
            print(part, file=sys.stderr, flush=True)
            getattr(bench, part)()
    where = measure.machine()
    print(f"\n{options.rounds} rounds on {where['cores']} cores of {where['cpu']}, load {where['load']:.1f}, "
          f"{os.environ.get('RIVERRUN_BIN', 'target/debug/riverrun')}.\n")
    print("\n".join(table(bench.rows)))
    if "chunking" not in options.parts and options.parts != ["memory"]:
        print("\nnot measured: splitting alone (--chunking PROGRAM)")
    if options.json:
        done = {"machine": where, "rounds": options.rounds, "rows": bench.rows, "figures": bench.figures}
        options.json.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
