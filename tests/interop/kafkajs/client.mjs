// What a JavaScript program does with Kafka: node client.mjs BROKER TOPIC. Prints one line of JSON with what it saw.
import { CompressionTypes, Kafka, logLevel } from "kafkajs";

const [broker, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [broker], logLevel: logLevel.NOTHING });
const admin = kafka.admin();
await admin.connect();
const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] });

const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: `${topic}-tx` });
await producer.connect();
const send = (where, values) =>
  where.send({ topic, compression: CompressionTypes.GZIP, messages: values.map((value) => ({ key: value, value, headers: { from: "kafkajs" } })) });
const committed = await producer.transaction();
await send(committed, ["a", "b", "c", "d"]);
await committed.commit();
const aborted = await producer.transaction();
await send(aborted, ["lost"]);
await aborted.abort();
await producer.disconnect();

const group = `${topic}-group`;
const consumer = kafka.consumer({ groupId: group, readUncommitted: false, sessionTimeout: 6000, heartbeatInterval: 500 });
await consumer.connect();
await consumer.subscribe({ topics: [topic], fromBeginning: true });
const seen = [];
await new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error(`saw only ${seen}`)), 30_000);
  consumer
    .run({
      eachMessage: async ({ message }) => {
        seen.push([message.value.toString(), message.headers.from.toString()]);
        if (seen.length === 4) resolve();
      },
    })
    .catch(reject);
});
const described = await admin.describeGroups([group]);
await consumer.disconnect();
const offsets = await admin.fetchTopicOffsets(topic);
await admin.deleteTopics({ topics: [topic] });
const left = await admin.listTopics();
await admin.disconnect();
console.log(
  JSON.stringify({
    created,
    seen: seen.sort(),
    state: described.groups[0].state,
    ends: offsets.map((one) => Number(one.high)),
    deleted: !left.includes(topic),
  }),
);
process.exit(0);
