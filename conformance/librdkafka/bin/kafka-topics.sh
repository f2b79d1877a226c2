#!/bin/sh
# kafka-topics.sh as librdkafka's tests call it: Kafka's own tool, from the jars beside.
exec java -Xmx256m -cp "$KAFKA_PATH/libs/*" org.apache.kafka.tools.TopicCommand "$@"
