// Package cluster is the protocol of a replicated log with one owner: the WAL entries of a store,
// which its standbys apply. It decides and knows no network: [Append] says what to send and what an
// answer means, [Reader] says which records count, [Detector] says which nodes are dead.
// stream/clusterlog and stream/clusternodes carry that out on JetStream.
//
// The log is a sequence of messages that a server appends by compare-and-set: an append names the
// sequence of the last message, and the server refuses it if the log ends elsewhere. The rules:
//
//   - One append is in flight. It names the sequence of the owner's own last acknowledged message,
//     and never a predicted one.
//   - An append without a certain answer is resolved by the last message of the log.
//   - The epoch is the fencing token. A takeover appends an "own" record of the next epoch behind
//     everything that it has read, and only its acknowledgement makes an owner.
//
// So no record of an older epoch follows a newer owner's "own" record, although both nodes may
// believe that they own the log. The tests explore that exhaustively.
package cluster
