//go:build !quick && !race

package cluster

import "testing"

// Each scope is explored to its end, in one goroutine. Three nodes with two takeovers each are
// 3,827,325 states; they hold, too, and take too long for every run.
func TestEveryStateOfLargerScopesIsSafe(t *testing.T) {
	explored(t, []scope{
		{"three records", model{nodes: 2, takes: 2, records: 3, parts: 1}},
		{"records in parts", model{nodes: 2, takes: 2, records: 2, parts: 2}},
		{"crashes and restarts", model{nodes: 2, takes: 2, records: 2, parts: 1, crashes: 2}},
		{"owners that do not stop", model{nodes: 2, takes: 2, records: 2, parts: 1, retries: 1}},
		{"three nodes that do not stop", model{nodes: 3, takes: 1, records: 3, parts: 1, retries: 1}},
		{"three nodes, records in parts", model{nodes: 3, takes: 1, records: 2, parts: 2}},
	})
}
