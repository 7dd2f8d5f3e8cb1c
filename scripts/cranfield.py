"""Makes the Cranfield collection (1,400 abstracts, 225 queries, graded judgements) into files for `riverrun rag eval`.

    python3 scripts/cranfield.py FOLDER_WITH_cran.all.1400_AND_SO_ON OUT
    riverrun ingest OUT/docs -c cranfield
    riverrun rag eval -c cranfield --qrels OUT/qrels.tsv --queries OUT/queries.tsv

The collection is not part of this repository: it is at http://ir.dcs.gla.ac.uk/resources/test_collections/cran/. Queries
are numbered 1 to 225 in the order of the file, as the judgements have them. Its codes 1 (complete answer) to 4 (some
interest) become grades 4 to 1; -1 (no interest) becomes 0.
"""

import pathlib
import re
import sys


def records(text):
    """The fields of each record, by their letter."""
    for part in re.split(r"^\.I +\d+\s*$", text, flags=re.M)[1:]:
        fields = re.split(r"^\.([TABW])\s*$", part, flags=re.M)
        yield {letter: body.strip() for letter, body in zip(fields[1::2], fields[2::2])}


def main(source, out):
    source, out = pathlib.Path(source), pathlib.Path(out)
    docs = out / "docs"
    docs.mkdir(parents=True, exist_ok=True)
    for number, record in enumerate(records((source / "cran.all.1400").read_text()), 1):
        title, body = record.get("T", ""), record.get("W", "")
        # Two of them have neither; an ingest would name them as failed.
        if title or body:
            (docs / f"{number}.txt").write_text(f"{title}\n\n{body}\n")
    queries = enumerate(records((source / "cran.qry").read_text()), 1)
    (out / "queries.tsv").write_text("".join(f"{n}\t{' '.join(q['W'].split())}\n" for n, q in queries))
    lines = []
    for line in (source / "cranqrel").read_text().splitlines():
        query, document, grade = line.split()[:3]
        lines.append(f"{query}\t{document}\t{max(5 - int(grade), 0) if int(grade) > 0 else 0}\n")
    (out / "qrels.tsv").write_text("".join(lines))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
