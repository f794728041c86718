// Package standby keeps copies of a store equal to it, through a replicated log.
//
// The node that owns the log has the store. Its [Shipper] ships each transaction: the commit is durable
// when the log and the local disk have it. The other nodes [Follow] the log and apply the same
// transactions to a replica. When the owner is gone, [Stand] makes one of them the owner, and its replica
// is then opened as the store. So a takeover is the restart of a store on another machine.
//
//	owner:    commit ─> WAL entry ─┬─> local WAL, synced ─────────┬─> durable
//	                               └─> log, on a quorum ──┬───────┘
//	standby:                                              └─> Follow ─> replica
package standby
