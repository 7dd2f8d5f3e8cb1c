"""Our measures beside the packages that define them, over two hundred samples of training/tests/data: answers.jsonl has sentences in which
words were changed, texts.jsonl whatever texts may be: Article 1 of the Universal Declaration of Human Rights in 23 languages, sentences of
this repository's pages (as they are, in other order, with words left out and put in, of several lines), code, markup, marks, repeated words,
and texts of which nearly nothing is left.

    python scripts/bench/finetune_reference.py --write                     # porter.txt and rouge*.jsonl, which the tests of training/ read
    python scripts/bench/finetune_reference.py --write-bertscore           # bertscore.jsonl, which tests/interop/test_finetune.py reads
    python scripts/bench/finetune_reference.py [--binary target/release/riverrun] [--bertscore all-mpnet-base-v2] [--layer 8] [--idf]

Needs rouge-score, and for BERTScore also bert-score, torch and transformers below 5 (bert-score asks its tokenizers for what 5 left out);
the files that lie there were written with rouge-score 0.1.2, bert-score 0.3.13, torch 2.15.0 and transformers 4.57.6.
The encoder is looked for in RIVERRUN_MODELS_DIR, where it lies in Hugging Face's layout, so that both read the same files. Exits with 1 when
a number of any sample differs by more than 1e-4.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "training/tests/data"
SAMPLES = DATA / "answers.jsonl"
TEXTS = DATA / "texts.jsonl"
# What `rouge-score` says of each.
SCORES = {SAMPLES: DATA / "rouge.jsonl", TEXTS: DATA / "rouge_texts.jsonl"}
BERTSCORES = DATA / "bertscore.jsonl"
# The encoder of the tests, and how they ask for it: by the layer that is meant when none is named, by rarity, and by a named layer.
ENCODER = "all-minilm-l6-v2"
ASKED = {"usual": (4, False), "idf": (4, True), "layer 2": (2, False)}
ROUGE = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
NEAR = 1e-4


def samples(path=SAMPLES):
    # Texts may hold what else counts as the end of a line.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def rouge(stemming, path=SAMPLES):
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(ROUGE, use_stemmer=stemming)
    return [scorer.score(one["reference"], one["prediction"]) for one in samples(path)]


def write():
    """What the packages say, as the tests read it."""
    from nltk.stem.porter import PorterStemmer

    texts = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "docs/finetuning.md")] + [SAMPLES]
    words = {word for path in texts for word in re.findall("[a-z0-9]+", path.read_text(encoding="utf-8").lower()) if len(word) > 3}
    words |= set(PAPER.split())
    stemmer = PorterStemmer()
    (DATA / "porter.txt").write_text("".join(f"{word} {stemmer.stem(word)}\n" for word in sorted(words)))
    for path, written in SCORES.items():
        with open(written, "w", encoding="utf-8") as file:
            for plain, stemmed in zip(rouge(False, path), rouge(True, path)):
                file.write(json.dumps({kind: {name: [round(number, 7) for number in scores[name]] for name in ROUGE}
                                       for kind, scores in (("plain", plain), ("stemmed", stemmed))}) + "\n")


def write_bertscore():
    """What `bert-score` says of texts.jsonl, as the tests read it: a line a sample."""
    found = {kind: bertscore(ENCODER, layer, idf, TEXTS) for kind, (layer, idf) in ASKED.items()}
    with open(BERTSCORES, "w", encoding="utf-8") as file:
        for scores in zip(*found.values()):
            file.write(json.dumps({kind: [round(number, 7) for number in numbers] for kind, numbers in zip(found, scores)}) + "\n")


def ours(binary, *options):
    done = subprocess.run([binary, "finetune", "eval", SAMPLES, "--each", "--json", *options], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def compare(name, found, wanted):
    """`found` by line, `wanted` in the order of the samples; the largest difference."""
    worst, counted = 0.0, 0
    for line, numbers in enumerate(wanted, 1):
        mine = found.get((name, line))
        if mine is None:
            print(f"{name}: line {line} is unscored here; the package says {numbers}")
            continue
        differences = [abs(a - b) for a, b in zip(mine, numbers)]
        worst, counted = max(worst, *(math.inf if math.isnan(d) else d for d in differences)), counted + 1
        if not max(differences) <= NEAR:
            print(f"{name}: line {line} is {mine} here and {numbers} there")
    print(f"{name}: {counted} of {len(wanted)} samples compared, largest difference {worst:.2e}")
    return counted > 0 and worst <= NEAR


def by_line(report):
    return {(one["metric"], one["line"]): (one["precision"], one["recall"], one["fmeasure"]) for one in report["each"]}


def check_rouge(binary):
    good = True
    for stemming in (False, True):
        print("with stemming" if stemming else "without stemming")
        found = by_line(ours(binary, "--metrics", "rouge", *(["--stem"] if stemming else []))["rouge"])
        wanted = rouge(stemming)
        for name in ROUGE:
            good &= compare(name, found, [tuple(scores[name]) for scores in wanted])
    return good


def bounded(module):
    """A folder without tokenizer_config.json has no longest text, and fast tokenizers refuse the number that stands for that."""
    original = module.get_tokenizer

    def get_tokenizer(*given, **named):
        tokenizer = original(*given, **named)
        tokenizer.model_max_length = min(tokenizer.model_max_length, 512)
        return tokenizer

    module.get_tokenizer = get_tokenizer


def bertscore(model, layer, idf, path=SAMPLES):
    """Precision, recall and F1 of each sample."""
    from bert_score import score

    bounded(sys.modules["bert_score.score"])
    folder, lines = str(Path(os.environ["RIVERRUN_MODELS_DIR"]) / model), samples(path)
    found = score([one["prediction"] for one in lines], [one["reference"] for one in lines], model_type=folder, num_layers=layer, idf=idf,
                  device="cpu", batch_size=8, nthreads=0, use_fast_tokenizer=True)
    return list(zip(*(part.tolist() for part in found)))


def check_bertscore(binary, model, layer, idf):
    options = ["--metrics", "bertscore", "--encoder", model, "--layer", str(layer), *(["--idf"] if idf else [])]
    report = ours(binary, *options)["bertscore"]
    if report["truncated"]:
        print(f"{report['truncated']} texts are longer than the encoder reads here, where the package may read more")
    return compare("bertscore", by_line(report), bertscore(model, layer, idf))


# The examples of Porter's paper, NLTK's irregular words, and words at the edges of the rules.
PAPER = """caresses ponies ties caress cats feed agreed disabled plastered bled motoring sing conflated troubled sized hopping tanned falling
hissing fizzed failing filing happy sky relational conditional rational valency hesitancy digitizer conformably radically differently vilely
analogously vietnamization predication operator feudalism decisiveness hopefulness callousness formality sensitivity sensibility triplicate
formative formalize electricity electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant
replacement adjustment dependent adoption homologou communism activate angularity homologous effective bowdlerize probate rate cease controll
roll skies dying lying tying news innings inning outings outing cannings canning howe proceed exceed succeed died spied dies flies tried
enjoy enjoyment happily geology theology archaeology philology biologically hopefully basically usefully totally formally finally equally
yyyy syzygy toying employed say saying eyes yes anyed oxed boxed fixing playing 2024 a100 3rds abc123ing union onion ration station nation
station passion fusion eeds feed seed need needed bleed aed iing eding ing seing aging owed owing sses ssess mississippi add adding added
egg egging err erring inn off offed odd oddly ally rally tally bally allies alliance ability nobility able stable tables ably ibly""".replace("\n", " ")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--write-bertscore", action="store_true")
    arguments.add_argument("--binary", default=str(ROOT / "target/release/riverrun"))
    arguments.add_argument("--bertscore", metavar="MODEL")
    arguments.add_argument("--layer", type=int, default=8)
    arguments.add_argument("--idf", action="store_true")
    given = arguments.parse_args()
    if given.write:
        return write()
    if given.write_bertscore:
        return write_bertscore()
    good = check_rouge(given.binary)
    if given.bertscore:
        good &= check_bertscore(given.binary, given.bertscore, given.layer, given.idf)
    return sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
