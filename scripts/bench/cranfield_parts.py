"""A Python copy of the searches on Cranfield with parts that are not built: proximity, token by token, latent semantic analysis.

    python3 scripts/bench/cranfield_parts.py FOLDER --model FOLDER_OF_THE_ENCODER --cache FOLDER

FOLDER has cran.all.1400, cran.qry and cranqrel (see scripts/cranfield.py). It needs numpy, scipy, PyStemmer, torch and transformers. The
tokens' vectors are kept in the cache: all-mpnet-base-v2 takes a core half an hour. Whatever is to be chosen is chosen by the first
column: queries made of the collection, the title of a document for the other documents of its authors. See docs/retrieval.md.
"""

import argparse
import collections
import pathlib
import re
import sys

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import Stemmer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cranfield  # noqa: E402  (beside this folder)

K1, B = 1.2, 0.75
RRF_K, RRF_DEPTH, DEPTH = 60, 100, 400
# Of all words, of neighbours in order, and within WINDOW words: Metzler and Croft, 2005.
WORDS, ORDERED, NEAR, WINDOW = 0.85, 0.10, 0.05, 8
DIMENSIONS = (100, 200, 300)
CANDIDATES = 100
# The index leaves the same words out of queries.
WORDS_OF_INDEX = pathlib.Path(__file__).resolve().parents[2] / "stores/src/keywords/words.rs"


class Collection:
    """The documents' words, and how queries are cut."""

    def __init__(self, texts):
        listed = re.search(r'STOP_WORDS: &str = "(.*?)";', WORDS_OF_INDEX.read_text(), flags=re.S).group(1)
        self.stop = set(listed.replace("\\", " ").split())
        self.stem = Stemmer.Stemmer("english").stemWords
        self.words = [self.stem(self.cut(text)) for text in texts]
        self.lengths = np.array([len(words) for words in self.words], float)
        self.numbers = {word: at for at, word in enumerate(dict.fromkeys(word for words in self.words for word in words))}
        rows = np.repeat(np.arange(len(texts)), self.lengths.astype(int))
        columns = [self.numbers[word] for words in self.words for word in words]
        counts = scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(self.numbers))).tocoo()
        self.rarity = self.idf(np.bincount(counts.col, minlength=len(self.numbers)))
        weights = self.bm25(counts.data, self.rarity[counts.col], counts.row)
        self.weights = scipy.sparse.csc_matrix((weights, (counts.row, counts.col)), shape=counts.shape)
        self.places = [collections.defaultdict(list) for _ in texts]
        for places, words in zip(self.places, self.words):
            for at, word in enumerate(words):
                places[word].append(at)

    @staticmethod
    def cut(text):
        return re.findall(r"[^\W_]+", text.lower())

    def query(self, text):
        words = self.cut(text)
        return list(dict.fromkeys(self.stem([word for word in words if word not in self.stop] or words)))

    def columns(self, text):
        return [self.numbers[word] for word in self.query(text) if word in self.numbers]

    def idf(self, documents):
        return np.log(1 + (len(self.words) - documents + 0.5) / (documents + 0.5))

    def bm25(self, counts, rarity, documents):
        lengths = self.lengths[documents] / self.lengths.mean()
        return rarity * counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths))

    def by_words(self, texts):
        return np.array([np.asarray(self.weights[:, self.columns(text)].sum(axis=1)).ravel() for text in texts])

    def of_pair(self, counts):
        scores = np.zeros(len(self.words))
        documents = np.array(list(counts), int)
        scores[documents] = self.bm25(np.array(list(counts.values()), float), self.idf(len(counts)), documents)
        return scores

    def by_proximity(self, texts):
        """What the sequential dependence model adds to words."""
        found = np.zeros((len(texts), len(self.words)))
        for scores, text in zip(found, texts):
            words = self.query(text)
            for first, second in zip(words, words[1:]):
                ordered, near = {}, {}
                for document, places in enumerate(self.places):
                    if first in places and second in places:
                        gaps = np.subtract.outer(places[second], places[first])
                        ordered[document] = np.count_nonzero(gaps == 1)
                        near[document] = np.count_nonzero(np.abs(gaps) < WINDOW)
                for weight, counts in ((ORDERED, ordered), (NEAR, near)):
                    scores += weight * self.of_pair({at: count for at, count in counts.items() if count})
        return found

    def by_latent(self, texts):
        """The mean cosine over DIMENSIONS of the documents' and queries' places in the decomposition of the BM25 weights."""
        norms = np.sqrt(np.asarray(self.weights.multiply(self.weights).sum(axis=1)).ravel())
        scaled = scipy.sparse.diags(1 / np.maximum(norms, 1e-9)) @ self.weights
        left, values, right = scipy.sparse.linalg.svds(scaled, k=max(DIMENSIONS), random_state=0)
        order = np.argsort(-values)
        documents, right = (left * values)[:, order], right[order]
        queries = np.zeros((len(texts), max(DIMENSIONS)))
        for at, text in enumerate(texts):
            columns = self.columns(text)
            queries[at] = right[:, columns] @ self.rarity[columns]
        return sum(unit(queries[:, :k]) @ unit(documents[:, :k]).T for k in DIMENSIONS) / len(DIMENSIONS)


def unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


def pooled(texts):
    return unit(np.array([each.mean(axis=0) for each in texts]))


def tokens(model, cache, what, texts):
    """Of each text its tokens' vectors, with the first and the last, which are marks."""
    kept = cache / f"{pathlib.Path(model).name}.{what}.npz"
    if not kept.exists():
        import torch
        import transformers

        cache.mkdir(parents=True, exist_ok=True)
        read = transformers.AutoTokenizer.from_pretrained(model)
        encoder = transformers.AutoModel.from_pretrained(model).eval()
        longest = 384 if "mpnet" in str(model) else 256
        vectors = []
        with torch.inference_mode():
            for text in texts:
                inputs = read(text, truncation=True, max_length=longest, return_tensors="pt")
                vectors.append(encoder(**inputs).last_hidden_state[0].numpy().astype(np.float16))
        ends = np.cumsum([0] + [len(each) for each in vectors])
        np.savez(kept, emb=np.concatenate(vectors), off=ends)
    stored = np.load(kept)
    all_of_them, ends = stored["emb"], stored["off"]
    return [all_of_them[start:end].astype(np.float32) for start, end in zip(ends, ends[1:])]


def by_tokens(queries, documents):
    """Of each of the query's tokens the best cosine with one of the document's, averaged."""
    starts = np.cumsum([0] + [len(each) - 2 for each in documents])[:-1]
    stacked = unit(np.concatenate([each[1:-1] for each in documents]))
    return np.array([np.maximum.reduceat(unit(each[1:-1]) @ stacked.T, starts, axis=1).mean(axis=0) for each in queries])


def best(scores, count):
    """The same with nothing for what isn't among the best."""
    kept = np.full(scores.shape, np.nan)
    for row, out in zip(scores, kept):
        at = np.argsort(-row, kind="stable")[:count]
        out[at] = row[at]
    return kept


def shares(scores, least):
    found = best(scores, DEPTH) - least
    found[found <= 0] = np.nan
    return np.nan_to_num(found / np.nanmax(found, axis=1, keepdims=True))


def by_scores(dense, sparse):
    return 0.8 * shares(dense, -1) + 0.2 * shares(sparse, 0)


def by_ranks(*lists):
    fused = np.zeros(lists[0].shape)
    for scores in lists:
        for row, out in zip(scores, fused):
            at = np.argsort(-row, kind="stable")[:RRF_DEPTH]
            out[at] += 1 / (RRF_K + 1 + np.arange(len(at)))
    return fused


def standard(first, *parts):
    """The best of a first order, by the sum of parts, each less its mean over its deviation; then the rest."""
    chosen = ~np.isnan(best(first, CANDIDATES))
    total = np.zeros(first.shape)
    for part in parts:
        among = np.where(chosen, part, np.nan)
        total += (among - np.nanmean(among, axis=1, keepdims=True)) / (np.nanstd(among, axis=1, keepdims=True) + 1e-9)
    return np.where(chosen, total, first - 1e6)


def ndcg(scores, judged):
    discounts = 1 / np.log2(np.arange(2, 12))
    found = []
    for row, grades in zip(scores, judged):
        gains = [2 ** grades.get(at, 0) - 1 for at in np.argsort(-row, kind="stable")[:10]]
        most = sorted((2**grade - 1 for grade in grades.values()), reverse=True)[:10]
        found.append(np.dot(gains, discounts) / np.dot(most, discounts[: len(most)]))
    return np.mean(found)


def authors(record):
    line = re.sub(r"[^a-z, .\-]", " ", " ".join(record.get("A", "").split()).lower())
    names = re.split(r"\band\b|,\s*(?=[a-z\-]{3,},)", line)
    names = [re.sub(r"[ .]", "", name.strip(" ,.")) for name in names]
    return {name for name in names if len(name) > 4 and "," in name}


def made(records):
    """Documents whose titles become queries, and what is to be found for each."""
    of = [authors(record) for record in records]
    found = [{other: 1 for other, names in enumerate(of) if other != at and names & of[at]} for at in range(len(records))]
    return [(at, judged) for at, judged in enumerate(found) if judged and records[at].get("T")]


def measure(collection, vectors, texts, asked, judged, own):
    words = collection.by_words(texts)
    dense = pooled(asked) @ pooled(vectors).T
    parts = {"sparse": words, "proximity": WORDS * words + collection.by_proximity(texts), "dense": dense,
             "tokens": by_tokens(asked, vectors), "latent": collection.by_latent(texts)}
    # The document that a query was made of is none of its answers.
    for scores in parts.values():
        for row, at in zip(scores, own):
            row[at] = -0.999
    proximity, late, latent = parts["proximity"], parts["tokens"], parts["latent"]
    scores = by_scores(dense, words)
    orders = parts | {
        "hybrid": by_ranks(dense, words), "scores": scores, "scores, proximity": by_scores(dense, proximity),
        "scores, z(dense) + z(proximity)": standard(scores, dense, proximity),
        "scores, z(dense) + z(proximity) + z(tokens)": standard(scores, dense, proximity, late),
        "scores, z(dense) + z(proximity) + z(latent)": standard(scores, dense, proximity, latent),
        "scores, z(dense) + z(proximity) + z(tokens) + z(latent)": standard(scores, dense, proximity, late, latent),
        "scores, z(tokens) + z(latent)": standard(scores, late, latent),
    }
    return {name: ndcg(order, judged) for name, order in orders.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    options = parser.parse_args()
    numbered = list(enumerate(cranfield.records((options.folder / "cran.all.1400").read_text()), 1))
    numbered = [(number, record) for number, record in numbered if record.get("T") or record.get("W")]
    places, records = {number: at for at, (number, _) in enumerate(numbered)}, [record for _, record in numbered]
    collection = Collection([f"{record.get('T', '')}\n\n{record.get('W', '')}\n" for record in records])
    titles = [" ".join(record.get("T", "").split()) for record in records]
    queries = [" ".join(record["W"].split()) for record in cranfield.records((options.folder / "cran.qry").read_text())]
    judged = [{} for _ in queries]
    for line in (options.folder / "cranqrel").read_text().splitlines():
        query, document, grade = map(int, line.split()[:3])
        if document in places:
            judged[query - 1][places[document]] = 5 - grade if grade > 0 else 0
    texts = [f"{record.get('T', '')}\n\n{record.get('W', '')}\n" for record in records]
    vectors = tokens(options.model, options.cache, "d", texts)
    of_titles = tokens(options.model, options.cache, "t", titles)
    made_of = made(records)
    own = [at for at, _ in made_of]
    asked, answers = [of_titles[at] for at in own], [answer for _, answer in made_of]
    by_made = measure(collection, vectors, [titles[at] for at in own], asked, answers, own)
    asked = tokens(options.model, options.cache, "q", queries)
    by_people = measure(collection, vectors, queries, asked, judged, [])
    print("| search | made queries | nDCG@10 |\n|---|---|---|")
    for name, found in by_people.items():
        print(f"| {name} | {by_made[name]:.3f} | {found:.3f} |", flush=True)


if __name__ == "__main__":
    main()
