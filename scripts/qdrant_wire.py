#!/usr/bin/env python3
"""A server that speaks Qdrant's gRPC definitions, for tests on machines that have no Qdrant: behind the definitions of Qdrant's Python client lies
that client's local mode, which keeps everything in memory and searches by comparing with every point. It is not Qdrant: it tells nothing of
Qdrant's speed, durability or limits, and knows only the calls that riverrun makes. Each API key has a store of its own, as if it were a server of
its own: processes that share nothing can use one, and any key is taken.

    scripts/qdrant_wire.py PORT     until a signal
"""

import signal
import sys
import threading
from concurrent import futures

import grpc
from qdrant_client import grpc as wire
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc, payload_to_grpc
from qdrant_client.local.qdrant_local import QdrantLocal

VERSION = "0.0.0-local-mode"
THREADS = 32


class Stores:
    """A store for each API key, each with the lock that whoever uses it holds."""

    def __init__(self):
        self.made, self.lock = {}, threading.Lock()

    def of(self, context):
        key = dict(context.invocation_metadata()).get("api-key", "")
        with self.lock:
            if key not in self.made:
                self.made[key] = QdrantLocal(":memory:", force_disable_check_same_thread=True), threading.Lock()
            return self.made[key]


def call(method):
    """Runs it alone with the caller's store; what the store refuses becomes gRPC's code for it."""
    def handler(self, request, context):
        store, lock = self.stores.of(context)
        try:
            with lock:
                return method(store, request)
        except ValueError as error:
            missing = "not found" in str(error)
            context.abort(grpc.StatusCode.NOT_FOUND if missing else grpc.StatusCode.INVALID_ARGUMENT, str(error))
    return handler


def filter_of(request):
    return GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None


class Part:
    def __init__(self, stores):
        self.stores = stores


class Health(Part, wire.QdrantServicer):
    def HealthCheck(self, request, context):
        return wire.HealthCheckReply(title="riverrun's test server over the local mode of qdrant-client", version=VERSION)


class Collections(Part, wire.CollectionsServicer):
    @call
    def Get(store, request):
        return wire.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(store.get_collection(request.collection_name)))

    @call
    def Create(store, request):
        vectors = GrpcToRest.convert_vectors_config(request.vectors_config) if request.HasField("vectors_config") else None
        sparse = GrpcToRest.convert_sparse_vector_config(request.sparse_vectors_config) if request.HasField("sparse_vectors_config") else None
        metadata = GrpcToRest.convert_payload(request.metadata) if len(request.metadata) else None
        return wire.CollectionOperationResponse(result=store.create_collection(
            request.collection_name, vectors_config=vectors, sparse_vectors_config=sparse, metadata=metadata))

    @call
    def Delete(store, request):
        # As the server does, and the local mode does not: the aliases go along.
        store.aliases = {alias: name for alias, name in store.aliases.items() if name != request.collection_name}
        return wire.CollectionOperationResponse(result=store.delete_collection(request.collection_name))

    @call
    def UpdateAliases(store, request):
        changes = [GrpcToRest.convert_alias_operations(action) for action in request.actions]
        return wire.CollectionOperationResponse(result=store.update_collection_aliases(changes))

    @call
    def ListAliases(store, request):
        return wire.ListAliasesResponse(aliases=[
            wire.AliasDescription(alias_name=alias, collection_name=name) for alias, name in store.aliases.items()])


def done():
    return wire.PointsOperationResponse(result=wire.UpdateResult(operation_id=0, status=wire.UpdateStatus.Completed))


class Points(Part, wire.PointsServicer):
    @call
    def Upsert(store, request):
        store.upsert(request.collection_name, [GrpcToRest.convert_point_struct(point) for point in request.points])
        return done()

    @call
    def Delete(store, request):
        store.delete(request.collection_name, GrpcToRest.convert_points_selector(request.points))
        return done()

    @call
    def CreateFieldIndex(store, request):
        store.get_collection(request.collection_name)  # everything is looked through anyway
        return done()

    @call
    def Count(store, request):
        counted = store.count(request.collection_name, count_filter=filter_of(request))
        return wire.CountResponse(result=wire.CountResult(count=counted.count))

    @call
    def Facet(store, request):
        found = store.facet(request.collection_name, request.key, facet_filter=filter_of(request), limit=request.limit or 10)
        return wire.FacetResponse(hits=[
            wire.FacetHit(value=wire.FacetValue(string_value=str(hit.value)), count=hit.count) for hit in found.hits])

    @call
    def Scroll(store, request):
        offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
        wanted = request.HasField("with_vectors") and GrpcToRest.convert_with_vectors_selector(request.with_vectors)
        page, following = store.scroll(request.collection_name, scroll_filter=filter_of(request), limit=request.limit or 10, offset=offset, with_vectors=wanted)
        points = [wire.RetrievedPoint(id=RestToGrpc.convert_extended_point_id(point.id), payload=payload_to_grpc(point.payload or {}),
                                      vectors=RestToGrpc.convert_vector_struct_output(point.vector) if point.vector is not None else None)
                  for point in page]
        return wire.ScrollResponse(result=points, next_page_offset=following and RestToGrpc.convert_extended_point_id(following))

    @call
    def Query(store, request):
        using = request.using if request.HasField("using") else None
        limit = request.limit if request.HasField("limit") else 10
        found = store.query_points(request.collection_name, query=GrpcToRest.convert_query(request.query), using=using,
                                        query_filter=filter_of(request), limit=limit)
        return wire.QueryResponse(result=[
            wire.ScoredPoint(id=RestToGrpc.convert_extended_point_id(point.id), payload=payload_to_grpc(point.payload or {}), score=point.score)
            for point in found.points])


def main(port):
    stores = Stores()
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), options=[("grpc.max_receive_message_length", 64 << 20)])
    wire.add_QdrantServicer_to_server(Health(stores), server)
    wire.add_CollectionsServicer_to_server(Collections(stores), server)
    wire.add_PointsServicer_to_server(Points(stores), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    server.start()
    told.wait()
    server.stop(1).wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))
