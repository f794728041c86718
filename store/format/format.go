// Package format is the form of the rows of a store, as FORMAT.md describes it: the names of the
// keyspaces, and the encoding of keys and values.
//
// It promises that keys sort as their parts do, and that a row of any bytes is decoded or is an
// error. It reads and writes no file: package store does, and package admin.
//
// Values are compact JSON. Two keyspaces have some bytes before it, which a commit reads without
// decoding the JSON: saga a [Head], and history a [Pointer].
package format

// Version is the format that this code reads and writes. No release wrote formats 1 to 3.
const Version = 4

// Keyspace is the name of a top-level bucket.
type Keyspace string

// The keyspaces.
const (
	Meta         Keyspace = "meta"
	Saga         Keyspace = "saga"
	Count        Keyspace = "count"
	Checkpoint   Keyspace = "checkpoint"
	Position     Keyspace = "position"
	Outbox       Keyspace = "outbox"
	Due          Keyspace = "due"
	Ended        Keyspace = "ended"
	Claim        Keyspace = "claim"   // has a bucket for each hour
	History      Keyspace = "history" // has a bucket for each day
	Parked       Keyspace = "parked"
	Held         Keyspace = "held"
	DeadLetter   Keyspace = "deadletter"
	DeadLetterID Keyspace = "deadletter-id"
	Manifest     Keyspace = "manifest"
	Schedule     Keyspace = "schedule"
	Audit        Keyspace = "audit"
	Replay       Keyspace = "replay"
	Part         Keyspace = "part"
)

// Keyspaces lists them.
var Keyspaces = []Keyspace{
	Meta, Saga, Count, Checkpoint, Position, Outbox, Due, Ended,
	Claim, History, Parked, Held, DeadLetter, DeadLetterID, Manifest, Schedule, Audit, Replay, Part,
}

// Sealed reports whether the values of the keyspace are encrypted, because they may have payloads.
// Keys, heads, counters, positions and manifests are never encrypted.
func (k Keyspace) Sealed() bool {
	switch k {
	case Saga, Outbox, Claim, History, Parked, Held, DeadLetter, Audit, Replay, Part:
		return true
	}
	return false
}

// The rows of [Meta].
var (
	MetaFormat  = []byte("format")
	MetaID      = []byte("id")
	MetaCreated = []byte("created")
	MetaCommit  = []byte("commit")
	MetaSealed  = []byte("sealed") // proves that a keyset is the store's
	// MetaDropped and MetaRetention are missing until something was removed.
	MetaDropped   = []byte("dropped")
	MetaRetention = []byte("retention")
	// MetaBegun lists the sagas that have begun to read the streams. Stores of older versions lack it.
	MetaBegun = []byte("begun")
	// MetaUnclaimed names the effects whose commands may be called without a claim in the ledger.
	MetaUnclaimed = []byte("unclaimed")
	// MetaDeployed and MetaDeployedFiles are in the store of a cluster: the newest revision of its manifests.
	MetaDeployed      = []byte("deployed")
	MetaDeployedFiles = []byte("deployed/files")
	// MetaShare is in a store that has one of several shards.
	MetaShare = []byte("share")
	// MetaTenant and MetaOrigins are in a store that has the rows of one tenant alone: the tenant,
	// and marks of the stores that the rows came from, newest first, separated by spaces.
	MetaTenant  = []byte("tenant")
	MetaOrigins = []byte("origins")
)

// MetaMark and the name of a stream are the key of the stream's last published message.
const MetaMark = "mark/"
