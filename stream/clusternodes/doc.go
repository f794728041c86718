// Package clusternodes carries the beats of a cluster's nodes on a JetStream KV bucket, and feeds the detector
// of the package cluster with them.
//
// Each node puts its key every cluster.BeatEvery. The bucket has replicas and no TTL: an election of its leader
// takes 4 to 9 s and would expire the keys of living nodes. So nothing expires, and the detector counts silence
// in beats that the bucket accepted from us. What the watch says is checked by a read from the leader, because a
// watch is silent for longer than an election.
package clusternodes
