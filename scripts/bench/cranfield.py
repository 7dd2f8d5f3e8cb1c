"""Measures retrieval on Cranfield: nDCG@10 by words, by meaning, fused by ranks and by scores, and re-ranked, for each embedding model.

    python3 scripts/bench/cranfield.py FOLDER [--model NAME ...] [--json FILE]

FOLDER has cran.all.1400, cran.qry and cranqrel (see scripts/cranfield.py). RIVERRUN_BIN names the binary, RIVERRUN_MODELS_DIR where the
models lie. The rows of searches are tuned on nothing; those behind `tuned` have each query searched with what was learned from other ones
(`collections tune`: cross-validation over five parts). The first model is ingested, the others come by `collections reembed`, so that the keyword
side is the same for all. An abstract is one chunk, as in the reference. `rerank` is left out where no re-ranker can be had.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cranfield  # noqa: E402  (beside this folder)

COLLECTION = "cranfield"
CONFIGS = ("sparse", "dense", "hybrid", "scores", "rerank")
# A plain Python reference on the same files: BM25 (bm25s, stemmed); dense and RRF (k = 60, 100 deep) with sentence-transformers.
REFERENCE = {
    ("all-minilm-l6-v2", "sparse"): 0.541, ("all-minilm-l6-v2", "dense"): 0.504, ("all-minilm-l6-v2", "hybrid"): 0.565,
    ("all-mpnet-base-v2", "sparse"): 0.541, ("all-mpnet-base-v2", "dense"): 0.513, ("all-mpnet-base-v2", "hybrid"): 0.574,
}


def run(env, *arguments, check=True):
    done = subprocess.run([os.environ.get("RIVERRUN_BIN", "riverrun"), *arguments, "--json"], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0 and check:
        sys.exit(f"riverrun {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else None


def measure(env, files, model):
    """One line for each way of searching that can be done here."""
    env = env | {"RIVERRUN_DEFAULT_EMBED_MODEL": model}
    judged = ["-c", COLLECTION, "--qrels", str(files / "qrels.tsv"), "--queries", str(files / "queries.tsv")]
    for config in CONFIGS:
        found = run(env, "rag", "eval", *judged, "--config", config, check=config != "rerank")
        for line in found["items"] if found else []:
            yield {"model": model, **line, "reference": REFERENCE.get((model, config))}
    tuned = run(env, "collections", "tune", COLLECTION, *judged[2:])
    for gain in tuned["gains"]:
        yield {"model": model, "config": f"{gain['search']}, tuned", "ndcg_at_10": gain["ndcg_at_10_after"],
               "recall_at_100": gain["recall_at_100_after"], "mrr": None, "reference": None}
    run(env, "collections", "tune", COLLECTION, "--off")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", action="append", dest="models")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    models = options.models or ["all-minilm-l6-v2", "all-mpnet-base-v2"]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        files = pathlib.Path(folder)
        cranfield.main(options.folder, files)
        env = os.environ | {"RIVERRUN_DATA_DIR": str(files / "data"), "RIVERRUN_API_PORT": "0", "RIVERRUN_BROKER_PORT": "0"}
        for position, model in enumerate(models):
            if position == 0:
                run(env | {"RIVERRUN_DEFAULT_EMBED_MODEL": model}, "ingest", str(files / "docs"), "-c", COLLECTION,
                    "--chunk-size", "16000", "--chunk-overlap", "0")
            else:
                run(env, "collections", "reembed", COLLECTION, "--model", model)
            lines += measure(env, files, model)
    print("| model | search | nDCG@10 | reference | recall@100 | MRR |\n|---|---|---|---|---|---|")
    for line in lines:
        reference = f"{line['reference']:.3f}" if line["reference"] else ""
        mrr = f"{line['mrr']:.3f}" if line["mrr"] else ""
        print(f"| {line['model']} | {line['config']} | {line['ndcg_at_10']:.3f} | {reference} | {line['recall_at_100']:.3f} | {mrr} |")
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
