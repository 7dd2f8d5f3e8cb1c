"""Hangs a span of your own below each run, as it ends: any consumer of the log can join a run's trace.

    pip install confluent-kafka opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:6006 python join_trace.py
"""

import os

from confluent_kafka import Consumer
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

provider = TracerProvider(resource=Resource.create({"service.name": "billing", "openinference.project.name": "riverrun"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("join_trace")

consumer = Consumer({
    "bootstrap.servers": os.environ.get("RIVERRUN_KAFKA_BROKERS", "127.0.0.1:9092"),
    "group.id": "billing",
    "auto.offset.reset": "earliest",
})
consumer.subscribe(["riverrun.agent.events"])
while True:
    record = consumer.poll(1.0)
    if record is None or record.error():
        continue
    headers = {name: value.decode() for name, value in record.headers() or []}
    if headers.get("ce_type") != "riverrun.agent.RunFinished":
        continue
    with tracer.start_as_current_span("bill the run", TraceContextTextMapPropagator().extract(headers)):
        print(record.key().decode(), headers["traceparent"])
