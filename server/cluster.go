package server

import (
	"context"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"edda"
)

// Cluster is what a process knows of its cluster. Its methods are safe for concurrent use.
type Cluster interface {
	// Status returns what this node knows, at once and also while no node owns the store.
	Status(ctx context.Context) ClusterStatus
	// Move has the owner hand over to a node, or to the standby with the most records if to is empty. It
	// returns when the hand-over has begun; Status shows its end. It returns ErrNoSuchNode for an unknown
	// node, an edda.Permanent error if that node cannot own the store now, because it is dead, lags or owns
	// it already, and an edda.Temporary one if the same call may succeed later.
	Move(ctx context.Context, to string, who Operator) (ClusterMove, error)
	// Finalize raises the level of the cluster to the highest that all its nodes know, and returns it. Its
	// errors have the classes of Move.
	Finalize(ctx context.Context, who Operator) (level int, err error)
	// Forget has the cluster forget a dead node, whose copy the log would be kept for. Its errors are those of
	// Move.
	Forget(ctx context.Context, node string, who Operator) error
	// Owner returns the URL at which the owner answers; false while no node owns the store.
	Owner() (url string, ok bool)
}

// ErrNoCluster says that a process is in no cluster.
var ErrNoCluster = edda.Classify(edda.Permanent, "this process is in no cluster: it owns its store alone (see --cluster)")

// ErrNoSuchNode says that a cluster has no node of a name.
var ErrNoSuchNode = edda.Classify(edda.Permanent, "the cluster has no such node")

// The roles of a node in its cluster.
const (
	NodeOwner   = "owner"
	NodeStandby = "standby"
	NodeJoining = "joining"
	NodeSpare   = "spare"
)

// The states of a node in its cluster.
const (
	NodeAlive   = "alive"
	NodeDead    = "dead"
	NodeUnknown = "unknown" // NATS does not answer the node that says so
)

// ClusterStatus is the state of a cluster, as one node knows it.
type ClusterStatus struct {
	Name    string `json:"name"`
	StoreID string `json:"store_id,omitempty" doc:"the store that the cluster keeps; absent before there is one"`
	Node    string `json:"node" doc:"the node that gives this answer"`
	Owner   string `json:"owner,omitempty" doc:"the node that owns the store; absent while no node does"`
	Epoch   uint64 `json:"epoch" doc:"grows with each change of the owner"`
	Level   int    `json:"level" doc:"what all nodes must know to take part; POST /cluster/finalize raises it"`
	LSN     uint64 `json:"lsn" doc:"the last record of the log that the answering node knows"`
	// Nodes are sorted by name.
	Nodes []ClusterNode `json:"nodes"`
	// Shards are sorted by number. A cluster with one store has none, and with several ones the fields of a store are
	// absent or 0 above.
	Shards []ClusterShard `json:"shards,omitempty"`
	// Problem is about the whole cluster, or about what the answering node knows of it.
	Problem string `json:"problem,omitempty"`
}

// ClusterShard is the state of one of several shards, as one node knows it.
type ClusterShard struct {
	Shard   int           `json:"shard" doc:"its number, from 0"`
	StoreID string        `json:"store_id,omitempty"`
	Owner   string        `json:"owner,omitempty"`
	Epoch   uint64        `json:"epoch"`
	LSN     uint64        `json:"lsn"`
	Nodes   []ClusterNode `json:"nodes"`
	Problem string        `json:"problem,omitempty"`
}

// ClusterNode is one node of a cluster.
type ClusterNode struct {
	Node      string    `json:"node"`
	URL       string    `json:"url,omitempty" doc:"where other nodes reach its API"`
	Role      string    `json:"role" enum:"owner,standby,joining,spare" doc:"joining: it has no copy of the store that could take over; spare: other nodes have the copies"`
	State     string    `json:"state" enum:"alive,dead,unknown" doc:"unknown: the answering node hears nobody, because NATS does not answer it"`
	Version   string    `json:"version,omitempty" doc:"of its program"`
	Level     int       `json:"level" doc:"the highest level that its program knows"`
	Epoch     uint64    `json:"epoch" doc:"of the last record that its copy has"`
	LSN       uint64    `json:"lsn" doc:"the last record that its copy has"`
	Lag       uint64    `json:"lag" doc:"records of the log that its copy does not have"`
	Owns      []int     `json:"owns,omitempty" doc:"the shards that it owns, in a cluster with several ones"`
	Since     time.Time `json:"since,omitzero" doc:"when it joined"`
	BeatAge   int64     `json:"beat_age_ms" doc:"milliseconds since its last beat was seen; 0 for the answering node"`
	Revision  uint64    `json:"revision,omitempty" doc:"of the manifests that it runs, or would run after a takeover"`
	Manifests string    `json:"manifests,omitempty" doc:"the hash of that revision's files"`
	Problem   string    `json:"problem,omitempty"`
}

// ClusterMove is a hand-over that has begun.
type ClusterMove struct {
	From  string `json:"from" doc:"the owner that hands over"`
	To    string `json:"to" doc:"the node that takes over"`
	Epoch uint64 `json:"epoch" doc:"of the owner that hands over: the next one has a higher epoch"`
}

// ClusterLevel is the level of a cluster.
type ClusterLevel struct {
	Level int `json:"level"`
}

// ClusterForgotten is a node that the cluster does not know any more.
type ClusterForgotten struct {
	Node string `json:"node"`
}

type forgetInput struct {
	Operator
	Node string `path:"node" maxLength:"100" doc:"a dead node that does not come back"`
}

type moveInput struct {
	Operator
	To string `query:"to" maxLength:"100" doc:"the node that takes over; if absent, the standby with the most records"`
}

// errNoCluster answers a single process.
var errNoCluster = huma.Error404NotFound(ErrNoCluster.Error())

// cluster registers the routes of a cluster. A single process has them too, so that their answer says why.
func (s *Server) cluster() {
	s.clusterStatus()
	s.clusterManifests()
	huma.Post(s.api, "/cluster/move", func(ctx context.Context, in *moveInput) (*body[ClusterMove], error) {
		c := s.options.Cluster
		if c == nil {
			return nil, errNoCluster
		}
		move, err := c.Move(ctx, in.To, in.Operator)
		if err != nil {
			return nil, s.clusterFailed("move the store", err)
		}
		return &body[ClusterMove]{move}, nil
	}, summary("Have the owner hand the store over to another node; answers when that has begun", "cluster"))
	huma.Post(s.api, "/cluster/forget/{node}", func(ctx context.Context, in *forgetInput) (*body[ClusterForgotten], error) {
		c := s.options.Cluster
		if c == nil {
			return nil, errNoCluster
		}
		if err := c.Forget(ctx, in.Node, in.Operator); err != nil {
			return nil, s.clusterFailed("forget a node", err)
		}
		return &body[ClusterForgotten]{ClusterForgotten{in.Node}}, nil
	}, summary("Forget a dead node that does not come back", "cluster"))
	huma.Post(s.api, "/cluster/finalize", func(ctx context.Context, in *Operator) (*body[ClusterLevel], error) {
		c := s.options.Cluster
		if c == nil {
			return nil, errNoCluster
		}
		if err := in.reasoned("a higher level of the cluster"); err != nil {
			return nil, err
		}
		level, err := c.Finalize(ctx, *in)
		if err != nil {
			return nil, s.clusterFailed("finalize the cluster", err)
		}
		return &body[ClusterLevel]{ClusterLevel{level}}, nil
	}, summary("Raise the level of the cluster after an upgrade of all nodes; older programs cannot take part again", "cluster"))
}

// clusterStatus registers the route that every node answers itself.
func (s *Server) clusterStatus() {
	huma.Get(s.api, "/cluster", func(ctx context.Context, _ *struct{}) (*body[ClusterStatus], error) {
		if s.options.Cluster == nil {
			return nil, errNoCluster
		}
		status := s.options.Cluster.Status(ctx)
		if status.Nodes == nil {
			status.Nodes = []ClusterNode{}
		}
		return &body[ClusterStatus]{status}, nil
	}, summary("Show the nodes of the cluster and the owner of the store; every node answers, also without an owner", "cluster"))
}

// clusterFailed converts an error of Move and Finalize.
func (s *Server) clusterFailed(doing string, err error) error {
	switch {
	case errors.Is(err, ErrNoSuchNode), errors.Is(err, ErrNoCluster):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, edda.Permanent):
		return huma.Error409Conflict(err.Error())
	case errors.Is(err, edda.Temporary):
		return huma.Error503ServiceUnavailable(err.Error())
	}
	return s.internal(doing, err)
}
