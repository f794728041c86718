package edda

import (
	"fmt"
	"hash/fnv"
)

// MaxShards is the most shards that a cluster may have.
const MaxShards = 64

// Shard is one of several parts of all keys. The zero value has every key.
type Shard struct {
	Index int `json:"index"` // from 0
	Of    int `json:"of"`    // how many there are, a power of two; 0 and 1 mean one
}

// Whole reports whether the shard has every key.
func (s Shard) Whole() bool { return s.Of <= 1 }

// Has reports whether a key is in the shard. A store keeps its keys for good, so the same key has the same shard in every
// version. With twice as many shards the keys of shard i are in the shards i and i + the former number.
func (s Shard) Has(k Key) bool {
	if s.Whole() {
		return true
	}
	h := fnv.New32a()
	for _, part := range [...]string{k.Tenant, k.Saga, k.Correlation} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0}) // separates the parts
	}
	sum := h.Sum32()
	sum ^= sum >> 16 // the low bits of FNV depend on little of short texts
	return int(sum%uint32(s.Of)) == s.Index
}

// Share is the shard that a store has of the keys of a cluster. The zero value is a store of all keys.
type Share struct {
	Cluster string `json:"cluster"` // which founded the store
	Shard
}

// Beside reports whether two stores share out the instances of the same tenants: they are shards of one cluster that have no
// key in common, maybe before and after it had twice as many.
func (s Share) Beside(other Share) bool {
	if s.Whole() || other.Whole() || s.Cluster != other.Cluster {
		return false
	}
	of := min(s.Of, other.Of)
	return s.Index%of != other.Index%of
}

// String is the share in display form.
func (s Share) String() string {
	if s.Whole() {
		return "all keys"
	}
	return fmt.Sprintf("shard %d of %d of cluster %s", s.Index, s.Of, s.Cluster)
}
