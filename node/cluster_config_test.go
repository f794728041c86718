package node

import (
	"strings"
	"testing"
	"time"

	"edda"
	"edda/internal/testkit"
)

// TestAClusterRefusesWhatItCannotKeep: each with the reason.
func TestAClusterRefusesWhatItCannotKeep(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *Config)
		want   string
	}{
		{"", func(c *Config) {}, ""},
		{"saga and effect", func(c *Config) { c.Role = "saga,effect" }, ""},
		{"sagas alone", func(c *Config) { c.Role = "saga" }, ""},
		{"a coordinator", func(c *Config) { c.Role = "saga,coordinator" }, "without --cluster"},
		{"a runner", func(c *Config) { c.Role = "runner" }, "without --cluster"},
		{"a worker", func(c *Config) { c.Role = "effect" }, "keeps no store"},
		{"Redis", func(c *Config) { c.Redis.Addr = "127.0.0.1:6379" }, "redis"},
		{"one replica", func(c *Config) { c.Streams.Replicas = 1 }, "3 replicas at least"},
		{"five replicas", func(c *Config) { c.Streams.Replicas = 5 }, ""},
		{"a name with a dot", func(c *Config) { c.Cluster.Name = "shop.eu" }, "want letters"},
		{"a node with a dot", func(c *Config) { c.Cluster.Node = "n1.internal" }, "want letters"},
		{"no room for the log", func(c *Config) { c.Cluster.LogMax = 0 }, "cluster.log_max_bytes"},
		{"an address", func(c *Config) { c.Cluster.Advertise = "10.0.0.5:8700" }, "want a URL"},
		{"a URL", func(c *Config) { c.Cluster.Advertise = "https://n1.internal:8700/" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Defaults()
			c.Cluster.Name = "shop"
			tt.change(&c)
			err := c.validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	c := Defaults()
	if c.replicas() != 1 {
		t.Errorf("a process that is alone makes streams with %d replicas", c.replicas())
	}
	c.Cluster.Name = "shop"
	if c.replicas() != 3 {
		t.Errorf("a cluster makes streams with %d replicas", c.replicas())
	}
}

// TestANodeWithAnotherClockIsRefused: in both directions. A slow answer is no difference.
func TestANodeWithAnotherClockIsRefused(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		theirs, way time.Duration // from when it was asked
		want        string
	}{
		"the same":              {0, 0, ""},
		"a slow answer":         {30 * time.Second, time.Minute, ""},
		"a little behind":       {maxSkew, 0, ""},
		"a little ahead":        {-maxSkew, time.Second, ""},
		"behind":                {maxSkew + time.Second, 0, "differs by 6s"},
		"behind, a slow answer": {maxSkew + 2*time.Second, time.Second, "differs by 6s"},
		"ahead":                 {-maxSkew - time.Second, time.Minute, "differs by 6s"},
	} {
		t.Run(name, func(t *testing.T) {
			err := compareClocks(noon, noon.Add(tt.theirs), noon.Add(tt.way))
			if tt.want == "" {
				testkit.Must(t, err)
				return
			}
			testkit.WantError(t, err, edda.Permanent, tt.want)
			testkit.WantError(t, err, edda.Permanent, "chrony")
		})
	}
}

// TestTheURLOfANode: where the others call it.
func TestTheURLOfANode(t *testing.T) {
	c := Defaults()
	for addr, want := range map[string]string{"127.0.0.1:8700": "http://127.0.0.1:8700", "[::1]:8700": "http://[::1]:8700"} {
		if got := c.advertised(addr); got != want {
			t.Errorf("%s is called at %s, want %s", addr, got, want)
		}
	}
	if got := c.advertised("0.0.0.0:8700"); strings.Contains(got, "0.0.0.0") || !strings.HasSuffix(got, ":8700") {
		t.Errorf("a node that listens on all addresses is called at %s", got)
	}
	c.TLS.Cert = "cert.pem"
	if got := c.advertised("10.0.0.5:8700"); got != "https://10.0.0.5:8700" {
		t.Errorf("a node with TLS is called at %s", got)
	}
	c.Cluster.Advertise = "https://n1.internal/"
	if got := c.advertised("10.0.0.5:8700"); got != "https://n1.internal" {
		t.Errorf("a node that says its URL is called at %s", got)
	}
}
