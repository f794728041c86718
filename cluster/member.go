package cluster

import (
	"strings"
	"time"
)

// Level is the version of what this program writes into a log and of what nodes agree on. A node with a lower one cannot
// take part. Level 2 knows shards: a program without them would take the keys of all shards into the first.
const Level = 2

// Beat is what a node tells the others.
type Beat struct {
	Run       string    `json:"run"`           // of this stay in the cluster
	URL       string    `json:"url,omitempty"` // of its API
	Version   string    `json:"version,omitempty"`
	Level     int       `json:"level"`          // the highest that it can apply and write
	Role      string    `json:"role,omitempty"` // what it does as the owner
	Owner     bool      `json:"owner,omitempty"`
	Following bool      `json:"following,omitempty"` // it has a replica and applies the log to it
	Spare     bool      `json:"spare,omitempty"`     // other nodes have the copies, and this one needs none
	Epoch     uint64    `json:"epoch,omitempty"`     // of the last record that it has
	LSN       uint64    `json:"lsn,omitempty"`       // of the last record that it has
	Needs     uint64    `json:"needs,omitempty"`     // it copies the store, and will read the log from this LSN on
	Revision  uint64    `json:"revision,omitempty"`  // of the manifests that it runs, or would run
	Manifests string    `json:"manifests,omitempty"` // the hash of that revision's files
	Since     time.Time `json:"since"`               // when this stay began
	Problem   string    `json:"problem,omitempty"`   // why it does not follow or cannot own
}

// Member is another node of the cluster.
type Member struct {
	Node
	Beat Beat
}

// Run names a stay of a node. The names of its later stays are greater, if the texts of the stays are.
func Run(node, stay string) string { return node + "." + stay }

// IsName reports whether a text can name a cluster, a node or a shard: it is a part of names of streams and of keys.
func IsName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// NodeOf is the node of a run. The id of a node has no dot.
func NodeOf(run string) string {
	node, _, _ := strings.Cut(run, ".")
	return node
}
