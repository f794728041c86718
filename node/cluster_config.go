package node

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"strings"

	"edda"
	"edda/cluster"
)

// clusterConfig makes a process a node of a cluster, whose nodes keep copies of one store. Without a name the
// process is alone.
type clusterConfig struct {
	Name string `koanf:"name" flag:"cluster" doc:"of the cluster that keeps this store; unset: this process is alone"`
	Node string `koanf:"node" flag:"node" doc:"name of this node in its cluster; unset: the name of the host"`
	// Advertise is the URL at which other nodes reach the API of this one.
	Advertise string `koanf:"advertise" flag:"advertise" doc:"URL at which other nodes reach this one; unset: of addr"`
	TokenFile string `koanf:"token_file" path:"yes" doc:"file with the token of an admin, for calls to other nodes"`
	Cert      string `koanf:"cert" path:"yes" doc:"file with the certificate of this node, for calls to other nodes"`
	Key       string `koanf:"key" path:"yes" doc:"file with its key"`
	CA        string `koanf:"ca" path:"yes" doc:"file with the authorities of the other nodes' certificates"`
	// Shards is fixed when the cluster is founded.
	Shards int `koanf:"shards" flag:"shards" doc:"stores of the cluster, each with a part of the keys; unset: as it was founded"`
	// Copies must be the same on all nodes.
	Copies int `koanf:"copies" doc:"nodes that have a copy of a store, its owner among them"`
	// LogMax bounds the replicated log.
	LogMax int `koanf:"log_max_bytes" doc:"of the replicated log; a copy that is further behind is copied anew"`
}

// leastReplicas are those of the streams of a cluster.
const leastReplicas = 3

const defaultLogMax = 4 << 30

// defaultCopies outlive the loss of two machines one after the other. A cluster of two or three nodes has a copy on each.
const defaultCopies = 3

// clustered reports whether the process is a node of a cluster.
func (c Config) clustered() bool { return c.Cluster.Name != "" }

// replicas are those of the streams and buckets that the process makes.
func (c Config) replicas() int {
	if c.clustered() {
		return cmp.Or(c.Streams.Replicas, leastReplicas)
	}
	return cmp.Or(c.Streams.Replicas, 1)
}

// minReplicas are those that streams and buckets which exist must have; 0 for a process that is alone.
func (c Config) minReplicas() int {
	if c.clustered() {
		return leastReplicas
	}
	return 0
}

func (c Config) validateCluster() error {
	switch {
	case !c.clustered():
		return nil
	case c.coordinator() || c.runner():
		return configf("role %s: a cluster keeps sagas only; run coordinators and runners without --cluster", c.Role)
	case !c.sagas():
		return configf("role %s: a worker of effects keeps no store and is no node of a cluster: run it without --cluster", c.Role)
	case c.Redis.configured():
		return configf("redis: a cluster sends no Hero messages, because Redis cannot tell a message that is sent twice; run such sagas without --cluster")
	case c.Streams.Replicas != 0 && c.Streams.Replicas < leastReplicas:
		return configf("streams.replicas %d: a cluster needs streams with %d replicas at least, which survive the loss of a NATS server", c.Streams.Replicas, leastReplicas)
	case !cluster.IsName(c.Cluster.Name) || c.Cluster.Node != "" && !cluster.IsName(c.Cluster.Node):
		return configf("cluster.name %q, cluster.node %q: want letters, digits, - and _", c.Cluster.Name, c.Cluster.Node)
	case c.Cluster.Shards < 0 || c.Cluster.Shards > edda.MaxShards || c.Cluster.Shards&(c.Cluster.Shards-1) != 0:
		return configf("cluster.shards %d: want a power of two up to %d", c.Cluster.Shards, edda.MaxShards)
	case c.Cluster.Copies < 2:
		return configf("cluster.copies %d: want 2 at least: with one the loss of a machine would lose the store", c.Cluster.Copies)
	case c.Cluster.LogMax < 1:
		return configf("cluster.log_max_bytes %d: want 1 at least", c.Cluster.LogMax)
	}
	if u, err := url.Parse(c.Cluster.Advertise); c.Cluster.Advertise != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return configf("cluster.advertise %q: want a URL such as https://n1.internal:8700", c.Cluster.Advertise)
	}
	return nil
}

// nodeName is the name of this node: the host's without its domain, if it has no other one.
func (c Config) nodeName() (string, error) {
	if c.Cluster.Node != "" {
		return c.Cluster.Node, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", configf("cluster.node is not set, and the host has no name: %w", err)
	}
	name, _, _ := strings.Cut(host, ".")
	return name, nil
}

// advertised is the URL at which other nodes reach this one, which listens on an address.
func (c Config) advertised(addr string) string {
	if c.Cluster.Advertise != "" {
		return strings.TrimSuffix(c.Cluster.Advertise, "/")
	}
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
