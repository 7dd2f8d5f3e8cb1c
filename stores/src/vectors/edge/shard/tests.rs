use super::*;

#[test]
fn given_a_crash_before_the_fields_were_indexed_when_opened_then_the_shard_counts_and_filters_as_any() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shard");
    let collection = riverrun_schemas::Collection::new("default".parse().unwrap(), "notes".parse().unwrap());
    let info = CollectionInfo { collection, model: "m".to_owned(), dimensions: 3 };
    let of = |edge| Shard { path: path.clone(), info: info.clone(), index_after_numbers: 100, edge, dirty: false };
    fs::create_dir_all(&path).unwrap();
    drop(EdgeShard::new(&path, of(None).config()).unwrap());
    assert!(path.join(CONFIG_FILE).exists());
    for _ in 0..2 {
        let shard = Shard::open(&path, info.clone(), 100).unwrap();
        assert!(shard.documents().unwrap().is_empty());
        let schema = shard.edge().unwrap().info().payload_schema;
        assert!([DOCUMENT_ID, TAGS].into_iter().all(|field| schema.contains_key(&key(field))), "{schema:?}");
    }
}

#[test]
fn given_a_shard_that_was_made_without_quantized_vectors_when_opened_then_it_is_searched_and_takes_them_with_its_graph()
{
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shard");
    let collection = riverrun_schemas::Collection::new("default".parse().unwrap(), "notes".parse().unwrap());
    let info = CollectionInfo { collection, model: "m".to_owned(), dimensions: LEAST_QUANTIZED };
    let mut former = Shard { path: path.clone(), info: info.clone(), index_after_numbers: 0, edge: None, dirty: false };
    fs::create_dir_all(&path).unwrap();
    let config = EdgeConfig { quantization_config: None, ..former.config() };
    former.edge = Some(EdgeShard::new(&path, config).unwrap());
    let vector = |n: usize| (0..LEAST_QUANTIZED).map(|i| ((n * 31 + i * 7) % 97) as f32 - 48.0).collect::<Vec<_>>();
    let points = (0..90).map(|n| {
        let id = PointId::NumId(n as u64);
        let vectors = std::collections::HashMap::from([(VECTOR.to_owned(), vector(n))]);
        PointStruct::new(id, vectors, serde_json::json!({})).into()
    });
    let points = PointOperations::UpsertPoints(PointInsertOperations::PointsList(points.collect()));
    former.update(points).unwrap();
    former.flush().unwrap();
    drop(former);

    let shard = Shard::open(&path, info, 0).unwrap();
    let nearest = |n: usize| {
        let query = QueryEnum::Nearest(NamedQuery::new(VectorInternal::Dense(vector(n)), VECTOR));
        shard.edge().unwrap().search(nearest_of(query, None, 1)).unwrap()[0].id
    };
    assert_eq!(nearest(42), PointId::NumId(42));
    assert_eq!(shard.wanted_graph().unwrap(), Wanted::AtOnce);
    shard.optimize().unwrap();
    assert_eq!((shard.indexed_points().unwrap(), shard.wanted_graph().unwrap()), (90, Wanted::Nothing));
    assert_eq!(nearest(42), PointId::NumId(42));
    let files = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut folders = vec![path];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for file in files(&folder) {
            names.push(file.file_name().unwrap().to_string_lossy().into_owned());
            if file.is_dir() {
                folders.push(file);
            }
        }
    }
    assert!(names.iter().any(|name| name.contains("quantized")), "{names:?}");
}
