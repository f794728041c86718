// Package clusterlog keeps the replicated log of package cluster in JetStream: one stream for each
// shard, EDDA_LOG_<shard>, with three replicas. It carries out what the protocol decides and decides
// nothing about ownership.
//
// An append is a publish with Nats-Expected-Last-Sequence, which the server compares with the last
// sequence of the stream. Nothing else may write to the stream, and only Trim removes messages.
package clusterlog
