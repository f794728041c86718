package effecttest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// Faults is a network between a provider and its server that breaks on demand. Each fault replaces
// the one before. It applies to later bytes, also on existing connections. Where new connections
// are reset, existing ones are ended.
type Faults struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewFaults forwards to a server at host:port until the test ends.
func NewFaults(t testing.TB, server string) *Faults {
	t.Helper()
	quiet := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	f := &Faults{t, toxiproxy.NewProxy(quiet, "faults", "127.0.0.1:0", server)}
	if err := f.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.proxy.Stop)
	return f
}

// Address is the host:port to call instead of the server's.
func (f *Faults) Address() string { return f.proxy.Listen }

// None ends the current fault.
func (f *Faults) None() { f.proxy.Toxics.ResetToxics(f.t.Context()) }

// SlowAnswers delays each answer.
func (f *Faults) SlowAnswers(by time.Duration) {
	f.only("downstream", "latency", &toxics.LatencyToxic{Latency: by.Milliseconds()})
}

// NoRequests drops requests and keeps the connection open: the server never sees the call.
func (f *Faults) NoRequests() { f.only("upstream", "timeout", &toxics.TimeoutToxic{}) }

// NoAnswers forwards requests, drops answers, and keeps the connection open.
func (f *Faults) NoAnswers() { f.only("downstream", "timeout", &toxics.TimeoutToxic{}) }

// ResetRequests resets the connection when something is sent: the server never sees the call.
func (f *Faults) ResetRequests() { f.only("upstream", "reset_peer", &toxics.ResetToxic{}) }

// ResetAnswers forwards requests, and resets the connection when the server answers.
func (f *Faults) ResetAnswers() { f.only("downstream", "reset_peer", &toxics.ResetToxic{}) }

// CutAnswers ends each connection after a number of bytes from the server.
func (f *Faults) CutAnswers(after int64) {
	f.only("downstream", "limit_data", &toxics.LimitDataToxic{Bytes: after})
}

// Down ends all connections and accepts none until Up.
func (f *Faults) Down() { f.proxy.Stop() }

// Up accepts connections again, at the same address.
func (f *Faults) Up() {
	f.t.Helper()
	if err := f.proxy.Start(); err != nil {
		f.t.Fatal(err)
	}
}

// only makes a fault the current one. The library takes faults as JSON.
func (f *Faults) only(direction, kind string, fault toxics.Toxic) {
	f.t.Helper()
	f.None()
	description, err := json.Marshal(map[string]any{"name": kind, "type": kind, "stream": direction, "attributes": fault})
	if err == nil {
		_, err = f.proxy.Toxics.AddToxicJson(bytes.NewReader(description))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
