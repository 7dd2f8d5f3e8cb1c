import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Apache Kafka's own client against a broker: `java -cp JARS StockClient.java HOST:PORT [CASE...]`. Prints a line `ok CASE` or
 * `failed CASE: why` for each case; exit status 1 if one failed.
 */
public class StockClient {
    static final Duration SHORT = Duration.ofMillis(200);
    static final long PATIENCE_MS = 40_000;
    static String brokers;

    interface Case { void run() throws Exception; }

    public static void main(String[] arguments) {
        brokers = arguments[0];
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("compressions", StockClient::compressions);
        cases.put("idempotence", StockClient::idempotence);
        cases.put("transactions", StockClient::transactions);
        cases.put("epochs", StockClient::epochs);
        cases.put("fencing", StockClient::fencing);
        cases.put("cooperative", StockClient::cooperative);
        cases.put("static", StockClient::staticMember);
        cases.put("topics", StockClient::topics);
        cases.put("offsets", StockClient::offsets);
        cases.put("groups", StockClient::groups);
        cases.put("refusals", StockClient::refusals);
        List<String> wanted = Arrays.asList(arguments).subList(1, arguments.length);
        int failed = 0;
        for (Map.Entry<String, Case> one : cases.entrySet()) {
            if (!wanted.isEmpty() && !wanted.contains(one.getKey())) continue;
            try {
                one.getValue().run();
                System.out.println("ok " + one.getKey());
            } catch (Throwable problem) {
                failed++;
                System.out.println("failed " + one.getKey() + ": " + problem);
                problem.printStackTrace();
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    // ---- what all cases use ------------------------------------------------------------------------------------------

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void same(Object wanted, Object found, String what) {
        check(Objects.equals(wanted, found), what + ": wanted " + wanted + ", found " + found);
    }

    static void until(String what, BooleanSupplier holds) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!holds.getAsBoolean()) check(System.currentTimeMillis() < deadline, "waited in vain for " + what);
    }

    static <E extends Throwable> void refused(Class<E> kind, Case work) throws Exception {
        try {
            work.run();
        } catch (Throwable problem) {
            Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
            check(kind.isInstance(cause), "wanted " + kind.getSimpleName() + ", found " + cause);
            return;
        }
        throw new AssertionError("wanted " + kind.getSimpleName() + ", nothing was refused");
    }

    static String fresh(String what) {
        return "java-" + what + "-" + UUID.randomUUID();
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", brokers));
    }

    static String topic(int partitions) throws Exception {
        String name = fresh("topic");
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        }
        return name;
    }

    static KafkaProducer<String, String> producer(Object... more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", brokers, "acks", "all", "delivery.timeout.ms", 30_000,
            "request.timeout.ms", 20_000, "linger.ms", 5));
        for (int i = 0; i < more.length; i += 2) settings.put((String) more[i], more[i + 1]);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, Object... more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", brokers, "group.id", group, "auto.offset.reset",
            "earliest", "enable.auto.commit", false, "session.timeout.ms", 6_000, "heartbeat.interval.ms", 500));
        for (int i = 0; i < more.length; i += 2) settings.put((String) more[i], more[i + 1]);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** The values of a partition from its beginning to where it ends for this isolation. */
    static List<String> read(String topic, int partition, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer(fresh("reader"), "isolation.level", isolation)) {
            TopicPartition at = new TopicPartition(topic, partition);
            consumer.assign(List.of(at));
            consumer.seekToBeginning(List.of(at));
            long end = consumer.endOffsets(List.of(at)).get(at);
            List<String> values = new ArrayList<>();
            until("the end of " + at, () -> {
                consumer.poll(SHORT).forEach(record -> values.add(record.value()));
                return consumer.position(at) >= end;
            });
            return values;
        }
    }

    // ---- cases -------------------------------------------------------------------------------------------------------

    static void compressions() throws Exception {
        String topic = topic(1);
        List<String> wanted = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
                for (int i = 0; i < 100; i++) {
                    String value = codec + " " + i + " " + "x".repeat(100);
                    wanted.add(value);
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, "k" + i, value);
                    record.headers().add("codec", codec.getBytes());
                    producer.send(record);
                }
            }
        }
        same(wanted, read(topic, 0, "read_uncommitted"), "records of all codecs");
    }

    static void idempotence() throws Exception {
        String topic = topic(3);
        try (KafkaProducer<String, String> producer = producer("enable.idempotence", true, "max.in.flight.requests.per.connection", 5,
                "batch.size", 200)) {
            for (int i = 0; i < 3_000; i++) producer.send(new ProducerRecord<>(topic, i % 3, null, "" + i));
        }
        for (int partition = 0; partition < 3; partition++) {
            List<String> read = read(topic, partition, "read_uncommitted");
            same(1_000, read.size(), "records of partition " + partition);
            for (int i = 0; i < 1_000; i++) same("" + (i * 3 + partition), read.get(i), "order");
        }
    }

    static void transactions() throws Exception {
        String in = topic(1), out = topic(2), group = fresh("group"), id = fresh("tx");
        TopicPartition source = new TopicPartition(in, 0);
        try (KafkaProducer<String, String> plain = producer()) {
            for (int i = 0; i < 4; i++) plain.send(new ProducerRecord<>(in, 0, null, "in " + i));
        }
        try (KafkaProducer<String, String> producer = producer("transactional.id", id); Admin admin = admin();
                KafkaConsumer<String, String> consumer = consumer(group)) {
            producer.initTransactions();
            consumer.subscribe(List.of(in));
            until("an assignment", () -> { consumer.poll(SHORT); return !consumer.assignment().isEmpty(); });
            producer.beginTransaction();
            for (int i = 0; i < 4; i++) producer.send(new ProducerRecord<>(out, i % 2, null, "kept " + i));
            producer.sendOffsetsToTransaction(Map.of(source, new OffsetAndMetadata(4, "why")), consumer.groupMetadata());
            producer.flush();
            same(TransactionState.ONGOING, admin.describeTransactions(List.of(id)).description(id).get().state(), "state");
            same(List.of(), read(out, 0, "read_committed"), "an open transaction is not read");
            same(2, read(out, 0, "read_uncommitted").size(), "an open transaction is read uncommitted");
            // `committed` would wait for the end of the transaction.
            same(null, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(source), "offsets of an open transaction");
            producer.commitTransaction();
            same(4L, consumer.committed(Set.of(source)).get(source).offset(), "offsets of a committed transaction");
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(out, 0, null, "lost")).get();
            producer.sendOffsetsToTransaction(Map.of(source, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.abortTransaction();
            same(4L, consumer.committed(Set.of(source)).get(source).offset(), "offsets of an aborted transaction");
            same(List.of("kept 0", "kept 2"), read(out, 0, "read_committed"), "partition 0");
            same(List.of("kept 1", "kept 3"), read(out, 1, "read_committed"), "partition 1");
            TopicPartition at = new TopicPartition(out, 0);
            // The newest of all is a marker.
            check(admin.listOffsets(Map.of(at, OffsetSpec.maxTimestamp())).partitionResult(at).get().offset() >= 0, "the greatest time is found");
            same(3, read(out, 0, "read_uncommitted").size(), "aborted records are there for those who want them");
            until("the transaction to be listed as ended", () -> {
                try {
                    return admin.listTransactions().all().get().stream().anyMatch(one ->
                        one.transactionalId().equals(id) && one.state() == TransactionState.COMPLETE_ABORT);
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
        }
    }

    /** Transaction protocol 2: every transaction has an epoch of its own. */
    static void epochs() throws Exception {
        String topic = topic(2), id = fresh("tx");
        TopicPartition at = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer("transactional.id", id); Admin admin = admin()) {
            FinalizedVersionRange protocol = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
            same(2, (int) protocol.maxVersionLevel(), "the protocol");
            producer.initTransactions();
            for (int turn = 0; turn < 4; turn++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, i % 2, null, turn + " " + i));
                producer.flush();
                if (turn % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
                int epoch = turn + 1;
                // A commit is answered when it is decided; the marker, and the epoch with it, may follow.
                until("the epoch behind turn " + turn, () -> {
                    try {
                        List<ProducerState> known = admin.describeProducers(List.of(at)).partitionResult(at).get().activeProducers();
                        check(known.size() == 1, known.size() + " producers of the partition");
                        return known.get(0).producerEpoch() == epoch;
                    } catch (Exception error) {
                        throw new AssertionError(error);
                    }
                });
            }
        }
        for (int partition = 0; partition < 2; partition++) {
            List<String> wanted = new ArrayList<>();
            for (int turn = 0; turn < 4; turn += 2) {
                for (int i = partition; i < 10; i += 2) wanted.add(turn + " " + i);
            }
            same(wanted, read(topic, partition, "read_committed"), "whole transactions in partition " + partition);
        }
    }

    static void fencing() throws Exception {
        String topic = topic(1), id = fresh("tx");
        try (KafkaProducer<String, String> first = producer("transactional.id", id);
                KafkaProducer<String, String> second = producer("transactional.id", id)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "of the first")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "of the second"));
            refused(ApiException.class, first::commitTransaction);
            second.commitTransaction();
            same(List.of("of the second"), read(topic, 0, "read_committed"), "what is committed");
            try (Admin admin = admin()) {
                admin.fenceProducers(List.of(id)).all().get();
            }
            second.beginTransaction();
            refused(Exception.class, () -> second.send(new ProducerRecord<>(topic, 0, null, "of a fenced one")).get());
        }
    }

    /** Consumers that are polled in turn until they share all partitions. */
    static void share(List<KafkaConsumer<String, String>> consumers, int partitions, int least) {
        until(consumers.size() + " members to share " + partitions + " partitions", () -> {
            Set<TopicPartition> all = new HashSet<>();
            boolean fair = true;
            int count = 0;
            for (KafkaConsumer<String, String> one : consumers) {
                one.poll(Duration.ofMillis(50));
                all.addAll(one.assignment());
                count += one.assignment().size();
                fair &= one.assignment().size() >= least;
            }
            return fair && all.size() == partitions && count == partitions;
        });
    }

    static void cooperative() throws Exception {
        String topic = topic(4), group = fresh("group");
        Object[] settings = {"partition.assignment.strategy", CooperativeStickyAssignor.class.getName()};
        try (KafkaConsumer<String, String> first = consumer(group, settings)) {
            List<TopicPartition> lost = new ArrayList<>();
            first.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> gone) { lost.addAll(gone); }
                public void onPartitionsAssigned(Collection<TopicPartition> come) { }
            });
            share(List.of(first), 4, 4);
            try (KafkaConsumer<String, String> second = consumer(group, settings)) {
                second.subscribe(List.of(topic));
                share(List.of(first, second), 4, 2);
                same(2, lost.size(), "only what moves is revoked");
            }
            share(List.of(first), 4, 4);
        }
    }

    static void staticMember() throws Exception {
        String topic = topic(2), group = fresh("group");
        try (KafkaConsumer<String, String> first = consumer(group, "group.instance.id", "one", "session.timeout.ms", 20_000)) {
            first.subscribe(List.of(topic));
            KafkaConsumer<String, String> second = consumer(group, "group.instance.id", "two", "session.timeout.ms", 20_000);
            second.subscribe(List.of(topic));
            share(List.of(first, second), 2, 1);
            int generation = first.groupMetadata().generationId();
            Set<TopicPartition> had = Set.copyOf(second.assignment());
            second.close();
            second = consumer(group, "group.instance.id", "two", "session.timeout.ms", 20_000);
            second.subscribe(List.of(topic));
            share(List.of(first, second), 2, 1);
            same(had, Set.copyOf(second.assignment()), "a static member gets back what it had");
            same(generation, first.groupMetadata().generationId(), "nobody was rebalanced");
            second.close();
            try (Admin admin = admin()) {
                admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(
                    List.of(new MemberToRemove("two")))).all().get();
            }
            share(List.of(first), 2, 2);
        }
    }

    static void topics() throws Exception {
        String name = fresh("topic");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        try (Admin admin = admin()) {
            CreateTopicsResult created = admin.createTopics(List.of(new NewTopic(name, 2, (short) 1).configs(Map.of("retention.ms", "60000"))));
            created.all().get();
            same(2, created.numPartitions(name).get(), "partitions");
            same("60000", created.config(name).get().get("retention.ms").value(), "setting");
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all().get();
            TopicDescription found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
            same(5, found.partitions().size(), "partitions after growth");
            same(created.topicId(name).get(), found.topicId(), "id");
            check(admin.describeTopics(TopicCollection.ofTopicIds(List.of(found.topicId()))).allTopicIds().get().containsKey(found.topicId()), "by id");
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND),
                new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all().get();
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            same("delete,compact", config.get("cleanup.policy").value(), "appended");
            same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("cleanup.policy").source(), "source");
            same("604800000", config.get("retention.ms").value(), "back to the default");
            check(admin.listTopics().names().get().contains(name), "listed");
            check(admin.describeCluster().nodes().get().size() == 1 && admin.describeCluster().clusterId().get() != null, "cluster");
            String node = admin.describeCluster().controller().get().idString();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
            check(!admin.describeConfigs(List.of(broker)).all().get().get(broker).entries().isEmpty(), "the broker's settings");
            admin.deleteTopics(List.of(name)).all().get();
            refused(UnknownTopicOrPartitionException.class, () -> admin.describeTopics(List.of(name)).allTopicNames().get());
        }
    }

    static void offsets() throws Exception {
        String topic = topic(1);
        TopicPartition at = new TopicPartition(topic, 0);
        // Recent, or retention would take the records.
        long base = System.currentTimeMillis() - 3_600_000;
        try (KafkaProducer<String, String> producer = producer(); Admin admin = admin()) {
            for (int i : new int[] {0, 1, 5, 3}) producer.send(new ProducerRecord<>(topic, 0, base + i * 1_000, "k", "v" + i)).get();
            Map<OffsetSpec, Long> wanted = new LinkedHashMap<>();
            wanted.put(OffsetSpec.earliest(), 0L);
            wanted.put(OffsetSpec.latest(), 4L);
            wanted.put(OffsetSpec.maxTimestamp(), 2L);
            wanted.put(OffsetSpec.earliestLocal(), 0L);
            wanted.put(OffsetSpec.latestTiered(), -1L);
            wanted.put(OffsetSpec.forTimestamp(base + 1_500), 2L);
            wanted.put(OffsetSpec.forTimestamp(base + 9_000), -1L);
            for (Map.Entry<OffsetSpec, Long> one : wanted.entrySet()) {
                same(one.getValue(), admin.listOffsets(Map.of(at, one.getKey())).partitionResult(at).get().offset(), "offset of " + one.getKey());
            }
            same(2L, admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(at).get().lowWatermark(), "low watermark");
            same(List.of("v5", "v3"), read(topic, 0, "read_uncommitted"), "what is left");
            refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, () -> admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(9))).all().get());
            same(1, admin.describeProducers(List.of(at)).partitionResult(at).get().activeProducers().size(), "producers");
        }
    }

    static void groups() throws Exception {
        String topic = topic(2), group = fresh("group");
        TopicPartition at = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            try (KafkaConsumer<String, String> consumer = consumer(group, "client.id", "me")) {
                consumer.subscribe(List.of(topic));
                share(List.of(consumer), 2, 2);
                consumer.commitSync(Map.of(at, new OffsetAndMetadata(3, Optional.of(0), "note")));
                ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                same("Stable", found.groupState().toString(), "state");
                same("me", found.members().iterator().next().clientId(), "client");
                same(2, found.members().iterator().next().assignment().topicPartitions().size(), "assignment");
                check(admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)), "listed");
                refused(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
                refused(GroupSubscribedToTopicException.class, () -> admin.deleteConsumerGroupOffsets(group, Set.of(at)).partitionResult(at).get());
                refused(UnknownMemberIdException.class, () -> admin.alterConsumerGroupOffsets(group, Map.of(at, new OffsetAndMetadata(1))).all().get());
            }
            same("note", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(at).metadata(), "metadata");
            admin.alterConsumerGroupOffsets(group, Map.of(at, new OffsetAndMetadata(1))).all().get();
            same(1L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(at).offset(), "altered");
            admin.deleteConsumerGroupOffsets(group, Set.of(at)).all().get();
            check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(at) == null, "deleted");
            admin.alterConsumerGroupOffsets(group, Map.of(at, new OffsetAndMetadata(2))).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            refused(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        }
    }

    static void refusals() throws Exception {
        String topic = topic(1);
        try (Admin admin = admin(); KafkaProducer<String, String> producer = producer("max.request.size", 5_000_000, "max.block.ms", 3_000)) {
            refused(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
            refused(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("not a name", 1, (short) 1))).all().get());
            refused(InvalidReplicationFactorException.class, () -> admin.createTopics(List.of(new NewTopic(fresh("t"), 1, (short) 3))).all().get());
            refused(InvalidConfigurationException.class, () -> admin.createTopics(List.of(new NewTopic(fresh("t"), 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());
            refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get());
            refused(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, "x".repeat(2_000_000))).get());
            refused(TimeoutException.class, () -> producer.send(new ProducerRecord<>(topic, 7, null, "to no partition")).get());
            refused(InvalidTimestampException.class, () -> {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                    new ConfigEntry("message.timestamp.before.max.ms", "1000"), AlterConfigOp.OpType.SET)))).all().get();
                producer.send(new ProducerRecord<>(topic, 0, 1_000L, null, "long ago")).get();
            });
        }
    }
}
