"""Summaries above chunks, from the ingest to the removal."""


def test_summaries_are_found_name_their_chunks_and_go_with_their_document(server):
    text = "\n\n".join(f"River number {n} rises in the hills of county {n} and {'flows on ' * (20 + n % 5)}to the sea." for n in range(40))
    place = server.folder / "rivers.txt"
    place.write_text(text)
    view = server.ingest(str(place), "tree", strategy="raptor", chunk_size=300, chunk_overlap=0)
    assert view["indexed"] == 1, view
    again = server.ingest(str(place), "tree", strategy="raptor", chunk_size=300, chunk_overlap=0)
    assert again["unchanged"] == 1, again

    found = server.post("/rag/search", {"query": "rivers that flow to the sea", "collection": "tree", "k": 100, "rerank": False})
    items = found.json["items"]
    summaries = [item for item in items if item["metadata"].get("layer")]
    assert summaries and len(summaries) < len(items), found
    for item in summaries:
        runs = item["metadata"]["leaves"]
        assert item["span"] == {"start": runs[0]["start"], "end": runs[-1]["end"]}, item
        for run in runs:
            assert run["first"] <= run["last"] and text.encode()[run["start"]:run["end"]].strip(), item
    leaves = [item for item in items if not item["metadata"].get("layer")]
    assert all(text.encode()[item["span"]["start"]:item["span"]["end"]].decode() == item["text"] for item in leaves)

    checked = server.cli("collections", "check", "tree")
    assert checked.returncode == 0, checked
    receipt = server.request("DELETE", f"/documents/{items[0]['document_id']}")
    assert receipt.status == 200 and receipt.json["vectors"] == receipt.json["keywords"] >= len(items), receipt
    assert server.post("/rag/search", {"query": "rivers", "collection": "tree"}).status == 404
